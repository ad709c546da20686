"""The environment of text games."""

from __future__ import annotations

from typing import ClassVar

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.agents.world import Domain
from selfdistill_cli.envs.textgame.builtin import BuiltinGames
from selfdistill_cli.envs.textgame.settings import TextGameSettings
from selfdistill_cli.envs.textgame.splits import SPLITS

ATTEMPTS: frozenset[HintKind] = frozenset({"feedback", "own_wrong_answer", "sibling", "meta_skill"})
KNOWN: dict[str, frozenset[HintKind]] = {
    "builtin": frozenset({"answer", "evidence", "skill"}),
}


class TextGameEnv(AgentEnv):
    """Rooms, doors, things and a quest; the agent writes commands."""

    name = "textgame"
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: TextGameSettings) -> None:
        """Choose whose games; a package is imported only when its games are."""
        super().__init__(settings, _domain(settings))
        self.hints = ATTEMPTS | KNOWN[settings.source.partition(":")[0]]


def _domain(settings: TextGameSettings) -> Domain:
    return BuiltinGames(settings)
