"""`selfdistill eval RUN`: a checkpoint of a run on a panel of tasks, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from selfdistill_cli.cli.arguments import names_and_keys
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.settings import in_range

HELP = """\
usage: selfdistill eval RUN [KEY=VALUE ...] [--config-dir DIR]

RUN is a run directory, or the name of a run under `root`.

{keys}

examples:
  selfdistill eval RUN
  selfdistill eval RUN split=test checkpoint=latest
  selfdistill eval RUN checkpoint=start              the policy before training
  selfdistill eval RUN data=humaneval samples=1      a benchmark that the run never saw
  selfdistill eval RUN 'hints=[answer]'              the teacher's view: prompts with hints
"""


@dataclass(frozen=True, kw_only=True)
class EvalArguments:
    """What may be typed after RUN."""

    split: str | None = None
    """Tasks of the environment; code: train, validation, test, demonstrations, practice (default:
    the run's eval.panel)."""
    checkpoint: str | int = "best"
    """best, latest, a step, or start (default: best)."""
    hints: list[HintKind] = field(default_factory=list)
    """Privileged text in the prompt, for example [answer] (default: none)."""
    samples: int | None = None
    """Attempts per task (default: the run's eval.samples_per_task)."""
    num_tasks: int | None = None
    """Tasks of the panel (default: the run's eval.num_tasks)."""
    data: str | None = None
    """Other tasks: a file, or humaneval; all of them unless its lines name splits, or num_tasks is
    given (default: the run's env.data)."""
    root: str = "runs"
    """Folder of all runs (default: runs)."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "samples", "num_tasks")


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill eval`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        from selfdistill_cli.config.wording import field_documents

        documents = field_documents(EvalArguments)
        keys = "\n".join(f"  {name:<10}  {text}" for name, text in documents.items())
        print(HELP.format(keys=keys), end="")
        return 0 if argv else UserError.exit_code
    run, arguments, config_dir = parse(argv)

    from selfdistill_cli.config import catalog
    from selfdistill_cli.config.resolved import load_resolved
    from selfdistill_cli.launching.threads import sleep_while_waiting

    sleep_while_waiting()
    from selfdistill_cli.training.run_directory import find_run

    directory = find_run(run, arguments.root)
    catalog.extend_import_path(config_dir)
    settings = load_resolved(directory / "config.yaml")

    from selfdistill_cli.training.evaluate_run import evaluate_run

    found = evaluate_run(
        settings,
        directory,
        split=arguments.split,
        checkpoint=str(arguments.checkpoint),
        hints=list(arguments.hints),
        samples=arguments.samples,
        num_tasks=arguments.num_tasks,
        data=arguments.data,
    )
    print("\n".join(report(directory.name, arguments, found)))
    return 0


def parse(argv: Sequence[str]) -> tuple[str, EvalArguments, str | None]:
    """Return RUN, the checked arguments and --config-dir; raises UserError."""
    from selfdistill_cli.config.checked import build

    known = [argument.name for argument in fields(EvalArguments)]
    runs, words, config_dir = names_and_keys(argv, "eval", known)
    typed = {key: _value(key, text) for key, text in words.items()}
    if len(runs) != 1:
        found = ", ".join(runs) or "none"
        raise UserError(f"expected one RUN, got {found}; see selfdistill eval --help")
    return runs[0], build(typed, EvalArguments), config_dir


def _value(key: str, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(
            f"{key}: got '{text}', which cannot be read as YAML; quote it for the shell where it "
            "has brackets, for example 'hints=[answer]'"
        ) from error


def report(name: str, arguments: EvalArguments, found: Any) -> list[str]:
    """Lines for a person."""
    evaluation, against = found.evaluation, found.against_plain
    low, high = evaluation.interval
    lines = [
        f"run          {name}",
        f"checkpoint   {arguments.checkpoint} (step {evaluation.step})",
        f"panel        {len(evaluation.task_ids)} tasks, fingerprint {evaluation.panel}",
        f"hints        {', '.join(arguments.hints) or 'none'}",
        f"success      {evaluation.success:.3f} [{low:.3f}, {high:.3f}]",
        f"mean reward  {evaluation.mean_reward:.3f}",
    ]
    if against:
        difference, low, high = (against[key] for key in ("difference", "low", "high"))
        lines.append(f"over plain   {difference:+.3f} [{low:+.3f}, {high:+.3f}], paired")
    return [*lines, f"attempts     {found.path}"]
