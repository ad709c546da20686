"""The environment of text games."""

from __future__ import annotations

from typing import ClassVar

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.agents.world import Domain
from selfdistill_cli.envs.gymnasium.splits import SPLITS
from selfdistill_cli.envs.textgame.builtin import BuiltinGames
from selfdistill_cli.envs.textgame.settings import TextGameSettings

ATTEMPTS: frozenset[HintKind] = frozenset({"feedback", "own_wrong_answer", "sibling", "meta_skill"})
OF_SOURCE: dict[str, frozenset[HintKind]] = {
    "builtin": frozenset({"answer", "evidence", "skill"}),
    "textworld": frozenset({"answer"}),
    "textarena": frozenset(),
    "gem": frozenset(),
}


class TextGameEnv(AgentEnv):
    """Rooms, doors, things and a quest; the agent writes commands."""

    name = "textgame"
    hints = ATTEMPTS | OF_SOURCE["builtin"] | {"pruned"}
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: TextGameSettings) -> None:
        """Choose whose games; a package is imported only when its games are asked for."""
        super().__init__(settings, _domain(settings))
        pruned: set[HintKind] = set() if settings.prompt_skills is None else {"pruned"}
        self.hints = ATTEMPTS | OF_SOURCE[settings.source.partition(":")[0]] | pruned


def _domain(settings: TextGameSettings) -> Domain:
    """Return the games of the source that the settings name."""
    if settings.source == "builtin":
        return BuiltinGames(settings)
    if settings.source == "textworld":
        from selfdistill_cli.envs.textgame.sources.textworld import TextWorldGames

        return TextWorldGames(settings)
    if settings.source.startswith("textarena:"):
        from selfdistill_cli.envs.textgame.sources.textarena import TextArenaGames

        return TextArenaGames(settings)
    from selfdistill_cli.envs.textgame.sources.gem import GemGames

    return GemGames(settings)
