"""The environments of the package verifiers: single turn, several turns, tools."""

from __future__ import annotations

import contextlib
import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.hints import Hint, HintKind, text_hint
from selfdistill_cli.core.packages import own_random, seeded
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Score, Task, Trajectory
from selfdistill_cli.envs.attempts import Attempts
from selfdistill_cli.envs.packages import VERIFIERS
from selfdistill_cli.envs.splitting import SPLITS, check_split
from selfdistill_cli.envs.verifiers.conversation import Conversation
from selfdistill_cli.envs.verifiers.data import read_tasks, tools_of
from selfdistill_cli.envs.verifiers.messages import told, with_tools
from selfdistill_cli.envs.verifiers.settings import VerifiersSettings


class VerifiersEpisode:
    """One rollout of the environment, in which the trainer's policy replies."""

    def __init__(self, package: Any, env: Any, task: Task, seed: int, solved_at: float) -> None:
        """Begin; raises ValueError where the environment asks something else than its row says."""
        self._solved_at, self._random = solved_at, seeded(seed)
        row: Mapping[str, Any] = task.meta["row"]
        self._tools = tools_of(row, env)
        self._responses: list[str] = []
        with own_random(self._random):
            self._talk = Conversation(package, env, row)
        asked = self._talk.prompt
        if asked is None or with_tools([told(m) for m in asked], self._tools) != task.messages:
            raise ValueError("the environment does not begin with the prompt of its row")

    def step(self, action: str) -> StepResult:
        """Give a reply, and return what the environment says to it, or its score at the end."""
        self._responses.append(action)
        before = self._talk.prompt
        assert before is not None, "an episode is used once"
        with own_random(self._random):
            self._talk.reply(action, bool(self._tools))
            if self._talk.prompt is None:
                return StepResult(done=True, outcome=self._outcome(self._talk.score()))
        if list(self._talk.prompt[: len(before)]) != list(before):
            raise ValueError("the environment rewrites what was said; only its end may grow")
        new = tuple(told(message) for message in self._talk.prompt[len(before) + 1 :])
        return StepResult(observation=new, done=False, outcome=self._outcome({}))

    def _outcome(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rubric's numbers; an episode that is cut off was not scored and has 0."""
        reward = float(state.get("reward") or 0.0)
        metrics = {name: float(value) for name, value in (state.get("metrics") or {}).items()}
        solved = bool(state) and reward >= self._solved_at
        responses = list(self._responses)
        return {**metrics, "reward": reward, "success": float(solved), "responses": responses}


class VerifiersEnv:
    """Tasks, turns and rewards of the environment that `env.name` names."""

    name = "verifiers"
    hints: frozenset[HintKind] = frozenset({"answer", "sibling", "own_wrong_answer"})
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: VerifiersSettings) -> None:
        """Keep the settings; imports nothing yet."""
        self._settings = settings
        self._loaded: Any = None
        self._tasks: dict[str, tuple[Task, ...]] | None = None

    def _env(self) -> Any:
        """Return the environment, loaded once; raises ConfigError."""
        if self._loaded is None:
            s = self._settings
            key = f"env.name={s.name}"
            package = VERIFIERS.load(key)
            if not hasattr(package, "MultiTurnEnv"):
                raise VERIFIERS.missing(key, f"version {package.__version__} has no MultiTurnEnv")
            with own_signals():
                try:
                    found = package.load_environment(s.name, **s.arguments)
                except Exception as error:  # a module of a user or of the hub may raise anything
                    raise ConfigError(
                        f"{key}: {error!s:.300}; expected an environment that is installed, or a "
                        "module in the current folder with a function load_environment"
                    ) from None
            _check(found, package, key)
            self._loaded = found
        return self._loaded

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split: train, validation or test. Raises ConfigError, DataError."""
        check_split("env=verifiers", split, SPLITS)
        found = self._known()[split]
        if not found:
            raise DataError(
                f"env.name={self._settings.name}: no task falls into split '{split}'; use more "
                "rows (env.num_tasks), or change env.validation_fraction, env.test_fraction"
            )
        return found

    def fingerprint(self) -> str:
        """Return the SHA-256 of the tasks: their names are hashes of their rows."""
        names = [(split, task.id) for split in SPLITS for task in self._known()[split]]
        return hashlib.sha256(repr(names).encode()).hexdigest()

    def _known(self) -> Mapping[str, tuple[Task, ...]]:
        if self._tasks is None:
            self._tasks = read_tasks(self._env(), self._settings)
        return self._tasks

    def episode(self, task: Task, seed: int) -> VerifiersEpisode:
        """Return a new episode; raises what the environment raises at its start."""
        package = VERIFIERS.load(f"env.name={self._settings.name}")
        return VerifiersEpisode(package, self._env(), task, seed, self._settings.success_reward)

    def hint(
        self,
        kind: HintKind,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> Hint | None:
        """Return the row's answer, or what another solved or this failed attempt replied."""
        key = seed_for(seed, kind, task.id)
        attempts = Attempts(siblings, scores, index, key, graded_by="responses")
        text = {
            "answer": lambda: task.answer,
            "sibling": lambda: _said(attempts.solved()),
            "own_wrong_answer": lambda: _said(attempts.own_failed()),
        }.get(kind, lambda: None)()
        return text_hint(kind, text)

    def close(self) -> None:
        """Nothing to close: the package ends its resources when the process does."""


def _said(outcome: Mapping[str, Any] | None) -> str | None:
    return None if outcome is None else "\n".join(outcome["responses"])


def _check(found: Any, package: Any, key: str) -> None:
    """Raise ConfigError for an environment that cannot be played turn by turn."""
    if not isinstance(found, package.MultiTurnEnv):
        raise ConfigError(
            f"{key}: is a {type(found).__name__}, which plays its episodes by itself; expected a "
            "SingleTurnEnv, ToolEnv or another MultiTurnEnv"
        )
    if found.requires_group_rollouts:
        raise ConfigError(
            f"{key}: its rubric compares the attempts of a group; expected reward functions of "
            "one attempt"
        )


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Keep the run's handlers: an environment of verifiers sets its own when it is made."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
