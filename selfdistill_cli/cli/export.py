"""`selfdistill export RUN OUT`: a trained policy for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.cli.arguments import names_and_keys
from selfdistill_cli.core.errors import UserError, did_you_mean

HELP = """\
usage: selfdistill export RUN[:best|:latest|:STEP|:teacher] OUT [KEY=VALUE ...] [--config-dir DIR]

Writes the policy of a run (default: its best checkpoint) to the new folder OUT, with tokenizer and
chat template. `teacher` is the slow copy.

  format   merged: one model that transformers loads, adapters added to its weights (default)
           adapter: the adapters alone, for peft or policy.init_from; the base is named in it
  root     folder of all runs (default: runs)

examples:
  selfdistill export RUN model
  selfdistill export RUN:latest adapter format=adapter
"""
KEYS = {"format": ("merged", "adapter"), "root": None}


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill export`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    names, typed, config_dir = parse(argv)

    from selfdistill_cli.config import catalog
    from selfdistill_cli.config.resolved import load_resolved
    from selfdistill_cli.launching.threads import sleep_while_waiting

    sleep_while_waiting()
    from selfdistill_cli.training.export import export_policy
    from selfdistill_cli.training.run_directory import find_run
    from selfdistill_cli.training.start import prepare_process

    root = typed.get("root", "runs")
    directory = find_run(names[0].partition(":")[0], root)
    catalog.extend_import_path(config_dir)
    settings = load_resolved(directory / "config.yaml")
    prepare_process(settings.run.num_threads)
    form = "adapter" if typed.get("format") == "adapter" else "merged"
    found = export_policy(settings, names[0], root, Path(names[1]), form)
    print(f"{found['from']} -> {names[1]}: {form}, {found['bytes'] / 1e6:.1f} MB")
    return 0


def parse(argv: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
    """Return [RUN, OUT], the typed keys and --config-dir; raises UserError."""
    names, typed, config_dir = names_and_keys(argv, "export", list(KEYS))
    choices = KEYS["format"] or ()
    if typed.get("format", "merged") not in choices:
        near = did_you_mean(typed["format"], choices)
        raise UserError(
            f"format: got '{typed['format']}', expected {' or '.join(choices)}{near}"
        )
    if len(names) != 2:
        found = ", ".join(names) or "none"
        raise UserError(f"expected RUN and OUT, got {found}; see selfdistill export --help")
    return names, typed, config_dir
