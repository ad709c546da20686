"""`selfdistill sync RUN`: one gap-free W&B run from metrics.jsonl."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.cli.arguments import names_and_keys
from selfdistill_cli.core.errors import UserError

HELP = """\
usage: selfdistill sync RUN [mode=offline | mode=online] [id=ID] [project=P] [entity=E] [group=G]

Builds one W&B run from RUN/metrics.jsonl, which is the truth about a run: every step once,
whatever was killed, continued or rewound. W&B itself cannot take a logged step back.

  mode=offline   (default) files in RUN/wandb_rebuilt, to be uploaded with `wandb sync`
  mode=online    sends it at once; needs a login. Again later, it sends what is new
  id=ID          id of the new W&B run. Default: the run's own id if it was recorded offline, and
                 the own id with the ending -rebuilt if W&B's server knows the own one already;
                 -2, -3 and so on if that run got numbers that the run no longer has

examples:
  selfdistill sync gear-code-s0-1a2b3c
  selfdistill sync runs/long mode=online group=final
"""

KEYS = ("mode", "id", "project", "entity", "group")


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill sync`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    run, typed = parse(argv)

    import dataclasses

    from selfdistill_cli.config.compose import compose
    from selfdistill_cli.config.resolved import load_resolved
    from selfdistill_cli.tracking.rebuild import FOLDER, rebuild
    from selfdistill_cli.tracking.settings import WandbSettings
    from selfdistill_cli.training.run_directory import RunDirectory, find_run

    path = find_run(run, "runs")
    directory = RunDirectory(path)
    tracker = load_resolved(path / "config.yaml").tracker
    if not isinstance(tracker, WandbSettings):
        tracker = compose(["tracker=wandb"]).settings.tracker
        assert isinstance(tracker, WandbSettings)
    changes = {key: typed[key] for key in ("project", "entity", "group") if key in typed}
    identity = directory.identity()
    mode = typed.get("mode", "offline")
    own = str(identity.get("wandb_id"))
    wanted = f"{own}-rebuilt" if tracker.mode == "online" else own
    run_id = choose_id(path, wanted, typed.get("id"), online=mode == "online")
    count = rebuild(
        path, dataclasses.replace(tracker, **changes), mode, identity, run_id,  # pyright: ignore
        directory.config(), print,
    )  # fmt: skip
    print(f"{count} lines of {path / 'metrics.jsonl'} in the W&B run {run_id}")
    if mode == "offline":
        print(f"upload: wandb sync {path / FOLDER}/wandb/offline-run-*")
    return 0


def choose_id(run: Path, wanted: str, given: str | None, online: bool) -> str:
    """The id to send to: what is given, or the first that can hold every step once.

    Raises UserError if the given one cannot.
    """
    from selfdistill_cli.tracking.rebuild import fits

    if not online:
        return given or wanted
    if given is not None:
        if not fits(run, given):
            raise UserError(
                f"id: got '{given}', a W&B run that holds numbers from before {run.name} went back "
                "to a checkpoint, and W&B takes nothing back; choose another id"
            )
        return given
    numbered = (f"{wanted}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if fits(run, name))


def parse(argv: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return RUN and what was typed; raises UserError."""
    runs, typed, _ = names_and_keys(argv, "sync", KEYS)
    if typed.get("mode", "offline") not in ("offline", "online"):
        raise UserError(f"mode: got '{typed['mode']}', expected offline or online")
    if "id" in typed and not re.fullmatch(r"[\w.-]{1,64}", typed["id"]):
        raise UserError(f"id: got '{typed['id']}', expected up to 64 letters, digits or any of _.-")
    if len(runs) != 1:
        raise UserError(f"expected one RUN, got {', '.join(runs) or 'none'}")
    return runs[0], typed
