"""Splits of games that are made from seeds."""

from __future__ import annotations

from typing import Protocol

from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.splitting import check_split

SPLITS = ("train", "validation", "test", "demonstrations")
FIRST_SEED = {"train": 0, "validation": 1_000_000, "test": 2_000_000}


class Sizes(Protocol):
    """The settings that are read."""

    @property
    def train_tasks(self) -> int: ...
    @property
    def held_out_tasks(self) -> int: ...


def numbers(split: str, sizes: Sizes) -> list[tuple[str, int]]:
    """Return (base split, number) of every task; raises ConfigError.

    demonstrations is the first quarter of train.
    """
    check_split("env", split, SPLITS)
    if split == "demonstrations":
        return [("train", number) for number in range(sizes.train_tasks // 4)]
    count = sizes.train_tasks if split == "train" else sizes.held_out_tasks
    return [(split, number) for number in range(count)]


def tasks_by_seed(name: str, request: str, split: str, sizes: Sizes) -> list[Task]:
    """Return one task a seed; no two base splits share a seed. Raises ConfigError."""
    seeds = [FIRST_SEED[base] + number for base, number in numbers(split, sizes)]
    asked = Message(role="user", content=request)
    return [Task(id=f"{name} {seed}", messages=(asked,), meta={"seed": seed}) for seed in seeds]
