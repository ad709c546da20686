"""Which games each split has."""

from __future__ import annotations

from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.envs.textgame.settings import TextGameSettings

SPLITS = ("train", "validation", "test", "demonstrations")


def numbers(split: str, settings: TextGameSettings) -> list[tuple[str, int]]:
    """Return (split whose words and seeds are used, number of the game); raises ConfigError.

    demonstrations is the first quarter of train.
    """
    if split not in SPLITS:
        near = did_you_mean(split, SPLITS)
        raise ConfigError(f"env=textgame has no split '{split}'; known: {', '.join(SPLITS)}{near}")
    if split == "demonstrations":
        return [("train", number) for number in range(settings.train_tasks // 4)]
    count = settings.train_tasks if split == "train" else settings.held_out_tasks
    return [(split, number) for number in range(count)]
