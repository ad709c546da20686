"""The command `selfdistill`: finds the sub-command, imports it, and turns errors into exit codes.

Imports nothing heavy, so that `selfdistill --help` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from selfdistill_cli import __version__
from selfdistill_cli.core.disk import NO_ROOM, unwritten
from selfdistill_cli.core.errors import Preempted, SelfDistillError, UserError, did_you_mean
from selfdistill_cli.core.secrets import NO_TELEMETRY

COMMANDS: dict[str, str] = {
    "train": "train a policy, or continue a run that was stopped",
    "resume": "continue a run from its directory, or go back to one of its checkpoints",
    "checkpoints": "list, verify and prune the checkpoints of a run",
    "sweep": "watch, continue, retry or cancel the runs of train -m",
    "verify-resume": "prove with your configuration that a killed run continues exactly",
    "sync": "build one gap-free copy of a run for W&B, TensorBoard or Trackio",
    "eval": "measure a checkpoint of a run on a panel of tasks, with an interval",
    "validate": "check an environment's tasks: do their references pass, do wrong answers fail",
    "check": "find out before a run whether its reward can rank",
    "compare": "set the runs of several methods side by side, with intervals and curves",
    "plan": "say before a run how much memory, disk and time it needs, and which zero fits",
    "export": "write a trained policy as a folder that transformers or peft load",
    "doctor": "say what this machine has, and whether training can start on it",
}
"""Sub-commands, each a module of this package with `main(argv) -> int`, and what they do."""

USAGE = """\
selfdistill: train LLM agents by reinforcement learning and self-distillation

usage: selfdistill COMMAND [KEY=VALUE ...]

commands:
{commands}

examples:
  selfdistill train                                  the embedded model, method=gear, env=code
  selfdistill train method=grpo run.max_steps=20     another method, fewer steps
  selfdistill train method=ppo --dry-run             show every value and where it comes from
  selfdistill train -m method=gear,grpo seed=0,1,2   six runs, as many at once as fit
  selfdistill resume RUN                             a run that was stopped goes on
  selfdistill verify-resume method=gear              is resuming exact, byte for byte?
  selfdistill eval RUN split=test                    a finished run on held-out tasks
  selfdistill validate env.data=FILE                 your tasks, before a long run
  selfdistill check reward reward=composite          can this reward rank at all?
  selfdistill compare 'gear_*' 'grpo_*'              methods side by side
  selfdistill plan method=step_kd plan.gpus=8        does it fit, before it starts?
  selfdistill export RUN OUT                         a model for other programs

`selfdistill COMMAND --help` says more. Completion: eval "$(selfdistill -sc install=bash)"
Exit codes: 0 finished, 1 the run failed, 2 the input was wrong, 75 stopped after a checkpoint.
"""


def usage() -> str:
    """The text of `selfdistill --help`."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {meaning}" for name, meaning in COMMANDS.items())
    return USAGE.format(commands=rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    os.environ.update(NO_TELEMETRY)  # before any library is imported: some look only then
    words = without_local_rank(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if words[0] == "--version":
        print(f"selfdistill {__version__}")
        return 0
    if words[0] in ("-sc", "--shell-completion"):
        return complete(words)
    if words[0] not in COMMANDS:
        near = did_you_mean(words[0], COMMANDS)
        print(
            f"error: there is no command '{words[0]}'{near}\n\n{usage()}", file=sys.stderr, end=""
        )
        return UserError.exit_code
    return exit_code(lambda: run_command(words[0], words[1:]))


def run_command(name: str, argv: Sequence[str]) -> int:
    """Import a sub-command and run it."""
    return importlib.import_module(f"selfdistill_cli.cli.{name.replace('-', '_')}").main(argv)


def without_local_rank(argv: Sequence[str]) -> list[str]:
    """Drop `--local_rank=N`, which some launchers of processes add to every command line."""
    kept: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in ("--local_rank", "--local-rank"):
            skip = True
        elif not word.startswith(("--local_rank=", "--local-rank=")):
            kept.append(word)
    return kept


def exit_code(function: Callable[[], int]) -> int:
    """Call a function; errors that a person can mend become a message and an exit code.

    Anything else is a mistake of ours and keeps its traceback.
    """
    try:
        return function()
    except SelfDistillError as error:
        print(explain(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader went away, as in `--dry-run | head`.
        _silence_stdout()
        return 0
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(f"the run failed: {unwritten(error.filename or 'standard output', error)}",
              file=sys.stderr)  # fmt: skip
        _silence_stdout()
        return 1


def _silence_stdout() -> None:
    """Python flushes stdout once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: SelfDistillError) -> str:
    """One message for a person, without a traceback."""
    if isinstance(error, Preempted):
        return str(error)
    kind = "error" if isinstance(error, UserError) else "the run failed"
    return f"{kind}: " + str(error).replace("\n", "\n  ")


def complete(words: Sequence[str]) -> int:
    """Shell completion: sub-commands here, everything after `train` by Hydra."""
    from selfdistill_cli.cli.train import run_hydra

    query = len(words) > 1 and words[1].startswith("query=")
    if query:
        line = os.environ.get("COMP_LINE", "").split(" ")
        if len(line) <= 2:
            print(" ".join(COMMANDS))
            return 0
        if line.pop(1) not in ("train", "validate"):
            return 0
        os.environ["COMP_LINE"] = " ".join(line)
    return run_hydra(words, lambda: None)
