"""Runs of one job, one after another: `python job.py JOB.json`, once per rank."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.launching.ranks import Silent
from selfdistill_cli.training.start import run_training
from selfdistill_cli.training.world import World

CONF = str(Path(__file__).parent / "conf")
WAITS_S = 120.0


def train(words: list[str], world: World) -> None:
    """One run, composed and checked as the command does it."""
    found = compose(words, CONF)
    rules.check(found.settings)
    run_training(found.settings, found.container, Silent(), world)


def main(job: Path) -> None:
    """Join the other ranks, if there are any, and make the runs."""
    world = World()
    if int(os.environ["WORLD_SIZE"]) > 1:
        from selfdistill_cli.training.process_world import join

        world = join("cpu", WAITS_S)
    for words in json.loads(job.read_text()):
        train(words, world)
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
