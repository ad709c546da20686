"""Conformance suites: a part of your own passes the same checks as every part that ships.

Each `check_...(make)` calls the factory `make()` for new parts and raises AssertionError, with what
was expected, at the first broken promise of `core.protocols`.
"""

from selfdistill_cli.testing.acting import check_env, check_reward
from selfdistill_cli.testing.following import check_sync
from selfdistill_cli.testing.judging import check_advantage, check_credit
from selfdistill_cli.testing.learning import check_coefficient, check_term
from selfdistill_cli.testing.sampling import check_chat, check_rollout_engine, check_source

__all__ = [
    "check_advantage",
    "check_chat",
    "check_coefficient",
    "check_credit",
    "check_env",
    "check_reward",
    "check_rollout_engine",
    "check_source",
    "check_sync",
    "check_term",
]
