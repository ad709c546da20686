"""A part without memory says so once, here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfdistill_cli.core.needs import Needs


class Stateless:
    """Keeps nothing between steps: nothing to save, nothing to restore."""

    needs: Needs = frozenset()

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""
