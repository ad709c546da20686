"""`selfdistill sync RUN`: one gap-free copy of a run elsewhere, from metrics.jsonl."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfdistill_cli.cli.arguments import names_and_keys
from selfdistill_cli.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from selfdistill_cli.tracking.settings import CopySettings

HELP = """\
usage: selfdistill sync RUN [tracker=wandb] [mode=offline | mode=online] [id=ID] [project=P]
                        [entity=E] [group=G]
       selfdistill sync RUN tracker=tensorboard | tracker=trackio

Builds a copy of a run from RUN/metrics.jsonl, which is the truth about it: every step once,
whatever was killed, continued or rewound, and whatever the copy missed while the run was going.

  mode=offline   (default) W&B files in RUN/wandb_rebuilt, to be uploaded with `wandb sync`
  mode=online    sends it at once; needs a login. Again later, it sends what is new
  id=ID          id of the new W&B run. Default: the run's own id if it was recorded offline, and
                 the own id with the ending -rebuilt if W&B's server knows the own one already;
                 -2, -3 and so on if that run got numbers that the run no longer has
  tracker=tensorboard, tracker=trackio
                 writes the copy anew where the tracker itself keeps it

examples:
  selfdistill sync gear-code-s0-1a2b3c
  selfdistill sync runs/long mode=online group=final
  selfdistill sync runs/long tracker=tensorboard
"""

TRACKERS = ("wandb", "tensorboard", "trackio")
OF_WANDB = ("mode", "id", "project", "entity", "group")


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill sync`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    name, typed = parse(argv)

    import dataclasses

    from selfdistill_cli.config.resolved import load_resolved
    from selfdistill_cli.tracking.rebuild import FOLDER, rebuild
    from selfdistill_cli.training.run_directory import RunDirectory, find_run

    tracker = typed.get("tracker", "wandb")
    path = find_run(name, "runs")
    directory = RunDirectory(path)
    copy: Any = settings_for(tracker, load_resolved(path / "config.yaml").tracker)
    copy.package.require("tracker")
    identity = directory.identity()
    run_id = str(identity.get("wandb_id"))
    if tracker == "wandb":
        mode = typed.get("mode", "offline")
        wanted = f"{run_id}-rebuilt" if copy.mode == "online" else run_id
        run_id = choose_id(path, wanted, typed.get("id"), online=mode == "online")
        changes = {key: typed[key] for key in ("project", "entity", "group") if key in typed}
        copy = dataclasses.replace(copy, mode=mode, **changes)
    else:
        directory.hold()  # the run itself, if it is going, writes the same files
    try:
        count = rebuild(path, copy, identity, run_id, directory.described(), print)
    finally:
        directory.close()
    what = f"the W&B run {run_id}" if tracker == "wandb" else f"the copy for {tracker}"
    print(f"{count} lines of {path / 'metrics.jsonl'} in {what}")
    if tracker == "wandb" and copy.mode == "offline":
        print(f"upload: wandb sync {path / FOLDER}/wandb/offline-run-*")
    return 0


def settings_for(name: str, tracker: Any) -> CopySettings:
    """The run's own settings of a kind of tracker, or those that the project ships."""
    from selfdistill_cli.config.compose import compose
    from selfdistill_cli.tracking.settings import each_tracker

    shipped: Any = compose([f"tracker={name}"]).settings.tracker
    own = (found for found in each_tracker(tracker).values() if type(found) is type(shipped))
    return next(own, shipped)  # pyright: ignore


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
    runs, typed, _ = names_and_keys(argv, "sync", ("tracker", *OF_WANDB))
    tracker = typed.get("tracker", "wandb")
    if tracker not in TRACKERS:
        near = did_you_mean(tracker, TRACKERS)
        raise UserError(f"tracker: got '{tracker}', expected {' or '.join(TRACKERS)}{near}")
    for key in OF_WANDB:
        if key in typed and tracker != "wandb":
            raise UserError(f"{key}: is for tracker=wandb; {tracker} has no such argument")
    if typed.get("mode", "offline") not in ("offline", "online"):
        raise UserError(f"mode: got '{typed['mode']}', expected offline or online")
    if "id" in typed and not re.fullmatch(r"[\w.-]{1,64}", typed["id"]):
        raise UserError(f"id: got '{typed['id']}', expected up to 64 letters, digits or any of _.-")
    if len(runs) != 1:
        raise UserError(f"expected one RUN, got {', '.join(runs) or 'none'}")
    return runs[0], typed
