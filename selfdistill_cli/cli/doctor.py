"""`selfdistill doctor`: what this machine has, and whether training can start on it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from selfdistill_cli.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from selfdistill_cli.cli.checks import Finding

HELP = """\
usage: selfdistill doctor [KEY=VALUE ...] [--config-dir DIR]

Says what this machine has and whether `selfdistill train` with the same KEY=VALUE can start:
Python and libraries, cores, memory, GPU, disk, W&B, and every level of the code sandbox, each
tried for real. Nothing is trained and nothing stays on the disk.

Exit code: 0 if training can start, 1 if something that it needs is missing.

examples:
  selfdistill doctor
  selfdistill doctor env.sandbox=landlock run.root=/data/runs
"""
WIDTH = 100


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill doctor`; return its exit code."""
    if "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0
    words, config_dir = parse(argv)

    from selfdistill_cli.cli.checks import CHECKS
    from selfdistill_cli.config.compose import compose

    settings = compose(words, config_dir).settings
    blocking: list[Finding] = []
    for check in CHECKS:
        for finding in check(settings):
            print("\n".join(lines(finding)), flush=True)
            if finding.state == "failed":
                blocking.append(finding)
    if blocking:
        names = ", ".join(finding.name for finding in blocking)
        print(f"\ntraining cannot start: {names}")
        return 1
    print("\ntraining can start: selfdistill train " + " ".join(words))
    return 0


def parse(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the overrides and --config-dir; raises UserError for anything else."""
    words: list[str] = []
    config_dir: str | None = None
    rest = iter(argv)
    for word in rest:
        key, equals, value = word.partition("=")
        if key == "--config-dir":
            config_dir = value if equals else next(rest, None)
            if not config_dir:
                raise UserError("--config-dir: expected a folder after it, got nothing")
        elif word.startswith("-"):
            near = did_you_mean(key, ["--config-dir", "--help"])
            raise UserError(f"doctor has no flag {key}{near}")
        elif not equals:
            raise UserError(f"doctor takes KEY=VALUE, got '{word}'; see selfdistill doctor --help")
        else:
            words.append(word)
    return words, config_dir


def lines(finding: Finding) -> Iterator[str]:
    """Yield a finding for a person: state, name, text, and what can be done."""
    text = f"{finding.text}; to do: {finding.remedy}" if finding.remedy else finding.text
    head = f"{finding.state:<8}{finding.name:<16}"
    yield textwrap.fill(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
