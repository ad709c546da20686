"""`selfdistill resume RUN`: continue a run from its directory, without its command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.cli.train import launch
from selfdistill_cli.core.errors import UserError, did_you_mean

HELP = """\
usage: selfdistill resume RUN [KEY=VALUE ...] [--config-dir DIR]

Continues RUN (a run directory, or the name of a run in ./runs) with the configuration that it was
started with. KEY=VALUE changes a setting that may change, as for `selfdistill train`: run.*,
checkpoint.*, tracker.*, launcher.*, guards.*, and what resume.allow names.

examples:
  selfdistill resume gear-code-s0-1a2b3c
  selfdistill resume runs/long run.max_steps=500
  selfdistill resume runs/long resume.step=40        go back; later checkpoints are set aside
  selfdistill resume runs/job launcher=inline        a job of Slurm goes on in this process
"""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill resume`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    runs, words, config_dir = parse(argv)
    if len(runs) != 1:
        raise UserError(
            f"expected one RUN, got {', '.join(runs) or 'none'}; see selfdistill resume --help"
        )

    from selfdistill_cli.config import catalog, rules
    from selfdistill_cli.config.resolved import changed, checked, read_container
    from selfdistill_cli.training.run_directory import find_run

    directory = find_run(runs[0], "runs")
    catalog.extend_import_path(config_dir)
    path = directory / "config.yaml"
    container = read_container(path)
    if not all(isinstance(container.get(group), dict) for group in ("run", "resume")):
        checked(container, path)  # says what is wrong with them
    # A run that was only prepared, for a cluster, is started by this.
    container["resume"] = {**container["resume"], "mode": "auto", "step": None, "allow": []}
    # After it: going back is asked for at every call.
    container = changed(container, words, config_dir)
    placed = dict(container["run"])
    container["run"] |= {"root": str(directory.parent), "name": directory.name}
    settings = checked(container, path, words)
    rules.check(settings)
    if Path(placed["root"], placed["name"]).resolve() == directory.resolve():
        # A cell of a sweep lies deeper than run.root, where other runs are looked for by name.
        container["run"] |= {"root": placed["root"], "name": placed["name"]}
        settings = checked(container, path, words)
    return launch(settings, container)


def parse(argv: Sequence[str]) -> tuple[list[str], list[str], str | None]:
    """Return what names a run, the words KEY=VALUE and --config-dir; raises UserError."""
    runs: list[str] = []
    words: list[str] = []
    config_dir: str | None = None
    rest = iter(argv)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            config_dir = value if equals else next(rest, None)
        elif word.startswith("-"):
            raise UserError(
                f"there is no flag {flag}{did_you_mean(flag, ['--config-dir', '--help'])}"
            )
        elif equals and not Path(word).is_dir():
            words.append(word)
        else:
            runs.append(word)
    return runs, words, config_dir
