"""Components that read an outcome and the length of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.components import dense_code_reward, overlong_penalty
from selfdistill_cli.rewards.outcomes import MASKED, each, num_tokens, program_of, success_of
from selfdistill_cli.rewards.settings import (
    CodeDenseComponent,
    OverlongComponent,
    SyntaxComponent,
    TestsComponent,
)
from selfdistill_cli.rewards.source import parsed


class Tests:
    """The share of tests passed; masked where no test was run."""

    __test__ = False

    def __init__(self, settings: TestsComponent) -> None:
        """Keep the settings."""
        self._settings = settings

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One value in [0, 1] per trajectory."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        outcome = trajectory.outcome
        if not outcome.get("total"):
            return MASKED
        if self._settings.mode == "all_or_nothing":
            return success_of(outcome)
        return outcome["passed"] / outcome["total"]


class CodeDense:
    """Compile bonus, tests and a capped cost of length; masked where no test was run."""

    def __init__(self, settings: CodeDenseComponent) -> None:
        """Derive the price of a token: it must not reach the cap before the budget."""
        self._settings = s = settings
        limits = [s.length_coef]
        if s.length_budget is not None:
            limits.append(s.length_cap / s.length_budget)
        self._price = min(limits)

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One value per trajectory, from -length_cap to compile_bonus + per_test * max_tests."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        s, outcome = self._settings, trajectory.outcome
        if not outcome.get("total"):
            return MASKED
        passed = outcome["passed"]
        if s.count == "share":
            passed = s.max_tests * passed / outcome["total"]
        return dense_code_reward(
            compiled=bool(outcome["compiled"]),
            passed=passed,
            length=num_tokens(trajectory),
            compile_bonus=s.compile_bonus,
            per_test=s.per_test,
            max_tests=s.max_tests,
            length_coef=self._price,
            length_cap=s.length_cap,
        )


class Syntax:
    """What the sandbox says of compiling; without one, whether the text parses as Python."""

    def __init__(self, settings: SyntaxComponent) -> None:
        """Nothing to keep."""

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """1 or 0 per trajectory."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        compiled = trajectory.outcome.get("compiled")
        if compiled is not None:
            return float(bool(compiled))
        return MASKED if not trajectory.turns else float(parsed(program_of(trajectory)) is not None)


class Overlong:
    """The soft overlong penalty over all sampled tokens of a trajectory."""

    def __init__(self, settings: OverlongComponent) -> None:
        """Turn the share into tokens."""
        self._longest = settings.max_tokens
        self._cache = int(settings.max_tokens * settings.cache_fraction)

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One penalty in [-1, 0] per trajectory."""
        return each(
            lambda t: overlong_penalty(num_tokens(t), self._longest, self._cache), trajectories
        )
