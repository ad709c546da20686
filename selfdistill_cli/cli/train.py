"""`selfdistill train`: compose, check, and hand the run to its launcher."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.cli.arguments import TrainArguments, parse
from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.core.errors import ConfigError, Preempted, UserError
from selfdistill_cli.tracking.wandb_trial import current_trial


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill train`; return its exit code."""
    arguments = parse(argv)
    if arguments.help:
        from selfdistill_cli.cli.train_help import train_help

        print(train_help(arguments.config_dir), end="")
        return 0
    check_trial(arguments)
    if arguments.dry_run:
        return dry_run(arguments)
    if arguments.multirun and not runs_with_hydra(arguments):
        return multirun(arguments)
    if arguments.hydra_flags:
        return with_hydra(arguments)
    return train(arguments.words, arguments.config_dir, arguments.config_name)


def check_trial(arguments: TrainArguments) -> None:
    """Raise UserError if several runs would be one trial of a W&B sweep."""
    if arguments.multirun and current_trial() is not None:
        raise UserError(
            "-m: W&B's agent started this command as one trial, with one id for one run; leave -m "
            "out of the sweep's `command`, or sweep here without the agent"
        )


def train(words: Sequence[str], config_dir: str | None, config_name: str) -> int:
    """Compose, check, train; return the exit code. Raises errors of core.errors."""
    from selfdistill_cli.config import rules
    from selfdistill_cli.config.compose import compose

    composed = compose(words, config_dir, config_name)
    rules.check(composed.settings)
    return launch(composed.settings, composed.container)


def launch(settings: Any, container: Mapping[str, Any]) -> int:
    """Hand a checked run to its launcher; return the exit code. Raises errors of core.errors."""
    from selfdistill_cli.config.data_rules import problems_with_files
    from selfdistill_cli.tracking.progress import make_display

    if getattr(settings.launcher, "starts_later", False):
        found = problems_with_files(settings)
        if found:
            raise ConfigError("\n".join(found))
    display = make_display(settings.run.max_steps, sys.stdout, None)
    return settings.launcher.build().launch(settings, container, display)


def dry_run(arguments: TrainArguments) -> int:
    """Print the resolved configuration and where each value came from; touch nothing."""
    from selfdistill_cli.config import rules
    from selfdistill_cli.config.compose import compose
    from selfdistill_cli.config.data_rules import problems_with_files
    from selfdistill_cli.config.provenance import render

    if arguments.multirun:
        raise ConfigError("--dry-run shows one run; leave -m and choose one value for each key")
    composed = compose(arguments.words, arguments.config_dir, arguments.config_name)
    run = composed.settings.run
    directory = Path(run.root) / str(run.name)
    state = "exists: would be continued" if (directory / "config.yaml").is_file() else "new"
    found = rules.violations(composed.settings) or problems_with_files(composed.settings)
    print(f"# run        {run.name}")
    print(f"# directory  {directory} ({state})")
    print(f"# rules      {len(found)} violated" if found else "# rules      all hold")
    print(render(composed.container, composed.origins))
    if found:
        raise ConfigError("\n".join(found))
    return 0


HYDRAS_OWN = ("hydra/sweeper", "hydra/launcher", "hydra.sweeper", "hydra.launcher", "hydra.sweep.")
"""Beginnings of words by which a sweeper or launcher of Hydra is asked for."""


def runs_with_hydra(arguments: TrainArguments) -> bool:
    """Whether Hydra's own sweeper is meant, by its name or by another flag beside -m."""
    others = [flag for flag in arguments.hydra_flags if flag not in ("-m", "--multirun")]
    return bool(others) or any(word.lstrip("+~").startswith(HYDRAS_OWN) for word in arguments.words)


def multirun(arguments: TrainArguments) -> int:
    """Every combination of the swept values, each in a process of its own (docs/sweeps.md).

    Hydra composes twice before it asks a sweeper, so that is left to `hydra/sweeper=selfdistill`.
    """
    from selfdistill_cli.sweeping.folder import Command
    from selfdistill_cli.sweeping.start import sweep

    return sweep(
        Command(
            words=tuple(arguments.words),
            config_dir=arguments.config_dir,
            config_name=arguments.config_name,
        )
    )


def with_hydra(arguments: TrainArguments) -> int:
    """Everything that Hydra offers: --cfg, --info, -m, its launchers and sweepers."""
    from selfdistill_cli.config import catalog, sweeps
    from selfdistill_cli.config.compose import compose_unchecked, read_words
    from selfdistill_cli.sweeping import hydra_sweeper

    folders = catalog.config_dirs(arguments.config_dir)
    if arguments.multirun:
        words = sweeps.check_sweep(arguments.words, arguments.config_dir, arguments.config_name)
    else:
        typed = read_words(arguments.words, folders)
        compose_unchecked(typed, folders, arguments.config_name)
        words = [str(override.input_line) for override in typed]
    hydra_sweeper.register(arguments.config_dir, arguments.config_name)
    own = ["--config-dir", str(folders[1])] if len(folders) > 1 else []
    argv = [*arguments.hydra_flags, *own, *words]
    outcomes: list[tuple[str, int]] = []
    code = run_hydra(argv, lambda: _job(arguments, outcomes), arguments.config_name)
    if hydra_sweeper.asked.error is not None:
        raise hydra_sweeper.asked.error
    if len(outcomes) > 1:
        print("\n".join(["", "all runs:", *(f"  exit {c}  {label}" for label, c in outcomes)]))
    return code or next((c for _, c in outcomes if c), 0)


def run_hydra(argv: Sequence[str], job: Callable[[], None], config_name: str = "train") -> int:
    """Give a command line to `hydra.main`; return the exit code."""
    import hydra

    from selfdistill_cli.config.catalog import shipped_dir

    def function(_: Any) -> None:
        job()

    sys.argv = [sys.argv[0], *argv]
    decorate = hydra.main(
        version_base="1.3", config_path=str(shipped_dir()), config_name=config_name
    )
    try:
        decorate(function)()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def _job(arguments: TrainArguments, outcomes: list[tuple[str, int]]) -> None:
    """One run of a multirun. A failed one is told at once and the others go on."""
    from hydra.core.hydra_config import HydraConfig

    config = HydraConfig.get()
    words = list(config.overrides.task)
    try:
        code = exit_code(lambda: train(words, arguments.config_dir, arguments.config_name))
    except Exception:  # a mistake of ours: its traceback is shown, the other runs go on
        traceback.print_exc()
        code = 1
    outcomes.append((" ".join(words), code))
    if code == Preempted.exit_code:
        sys.exit(code)
    if code and not config.launcher._target_.endswith("BasicLauncher"):
        # Another launcher runs jobs in processes of its own, where `outcomes` is a copy.
        raise RuntimeError(f"exit code {code} of: {' '.join(words)}")
