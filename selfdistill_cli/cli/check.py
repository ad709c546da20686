"""`selfdistill check WHAT`: questions that are worth an answer before a run."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Sequence
from typing import Any

from selfdistill_cli.cli.arguments import parse
from selfdistill_cli.core.errors import ConfigError, UserError, did_you_mean

HELP = """\
usage: selfdistill check WHAT [KEY=VALUE ...] [--config-dir DIR]

checks:
{checks}

examples:
  selfdistill check reward
  selfdistill check reward reward=composite reward.components.lint.weight=0.5

Takes what `selfdistill train` takes. Exit codes: 0 passed, 1 failed, 2 the input was wrong.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill check`; return its exit code."""
    if not argv or argv[0] in ("-h", "--help") or "--help" in argv:
        width = max(map(len, CHECKS))
        rows = "\n".join(f"  {name:<{width}}  {meaning}" for name, (meaning, _) in CHECKS.items())
        print(HELP.format(checks=rows), end="")
        return 0 if argv else UserError.exit_code
    name, *words = argv
    if name not in CHECKS:
        raise UserError(
            f"there is no check '{name}'{did_you_mean(name, CHECKS)} (checks: {', '.join(CHECKS)})"
        )
    arguments = parse(words)
    if arguments.dry_run or arguments.hydra_flags:
        raise ConfigError("check takes KEY=VALUE and --config-dir; other flags belong to train")

    from selfdistill_cli.config import rules
    from selfdistill_cli.config.compose import compose

    settings = compose(arguments.words, arguments.config_dir, arguments.config_name).settings
    rules.check(settings)
    return CHECKS[name][1](settings)


def reward(settings: Any) -> int:
    """Print what the reward says of right and wrong answers; 1 if it cannot rank them."""
    check_reward = importlib.import_module("selfdistill_cli.training.check_reward").check_reward
    report = check_reward(settings)
    print("\n".join(described(report)))
    text, passed = verdict(report, settings.guards.rank_floor)
    print(f"\n{text}")
    return 0 if passed else 1


def described(report: Any) -> list[str]:
    """Lines of a table, and of the failures."""
    lines = [
        f"{report.num_tasks} tasks: reference answers and wrong ones made of them, "
        f"{report.num_solved} solved attempts, {report.num_pairs} pairs (a token is taken as 4 "
        "characters)",
        "",
        f"{'':<16}{'mean':>8}{'std':>8}{'min':>8}{'max':>8}{'missing':>9}{'ranks':>8}{'flat':>7}",
    ]
    for found in report.findings:
        numbers = [f"{value:8.3f}" for value in _distribution(found.values)] or [f"{'-':>8}"] * 4
        ranks = "-" if found.concordance is None else f"{found.concordance:.3f}"
        cells = "".join(numbers)
        lines.append(
            f"{found.name:<16}{cells}{found.missing:>9}{ranks:>8}{found.flat_groups:>7.2f}"
        )
    lines += [
        "",
        "ranks: share of pairs of a solved and a less solved attempt that are in order, 0.5 is "
        "chance",
        "flat:  share of tasks whose attempts all have the same value",
    ]
    errors = {k: v for k, v in report.errors.items() if k != "reward/errors"}
    return lines + [f"failed: {n:g}x {k.removeprefix('reward/errors/')}" for k, n in errors.items()]


def verdict(report: Any, floor: float) -> tuple[str, bool]:
    """One sentence, and whether the reward passed."""
    if report.ranks is None:
        return (
            "failed: no pair of attempts has two totals to compare; see the column missing, and "
            "whether the environment calls any attempt solved",
            False,
        )
    if report.ranks < floor:
        return (
            f"failed: the reward cannot rank: {report.ranks:.3f} is below guards.rank_floor="
            f"{floor:g}. Lower the weight of a component whose column ranks is below 0.5, or "
            "raise that of one that ranks well",
            False,
        )
    return f"passed: the reward ranks ({report.ranks:.3f} >= guards.rank_floor={floor:g})", True


def _distribution(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    return [statistics.fmean(values), statistics.pstdev(values), min(values), max(values)]


CHECKS = {"reward": ("can the reward tell right answers from wrong ones?", reward)}
"""Name: what it asks, and the function that answers with an exit code."""
