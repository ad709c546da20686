"""`selfdistill check reward`: does the reward put right answers above wrong ones?"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from selfdistill_cli.core.errors import ConfigError, SandboxError
from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import Env
from selfdistill_cli.core.types import Finish, Generation, Score, Stop, Task, Trajectory, Turn
from selfdistill_cli.rewards.ranking import concordant_pairs
from selfdistill_cli.rewards.source import parsed
from selfdistill_cli.training.settings import TrainSettings
from selfdistill_cli.training.start import build_reward, prepare_process

CHARACTERS_PER_TOKEN = 4
TOTAL = "total"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one component, or the total, says of all attempts."""

    name: str
    """Name of the component."""
    values: Sequence[float]
    """Its values, where it has one."""
    missing: int
    """Attempts without a value."""
    concordance: float | None
    """Share of pairs, solved and not, that it puts in the right order; None without pairs."""
    flat_groups: float
    """Share of tasks all of whose attempts have the same value."""


@dataclass(frozen=True, kw_only=True)
class RewardReport:
    """What the check found."""

    findings: Sequence[Finding]
    """The total first, then each component."""
    errors: dict[str, float]
    """Failures by component and kind."""
    num_tasks: int
    """Tasks that were tried."""
    num_solved: int
    """Attempts that the environment calls solved."""
    num_pairs: int
    """Pairs of attempts at one task with different success."""

    @property
    def ranks(self) -> float | None:
        """Concordance of the total, None if there was nothing to compare."""
        return self.findings[0].concordance


@dataclass(kw_only=True)
class _Attempt:
    """One made answer, being graded."""

    task: Task
    text: str
    sibling: int
    episode: Any
    turns: list[Turn] = field(default_factory=list)
    stop: Stop | None = None
    outcome: Any = field(default_factory=dict)


def check_reward(settings: TrainSettings) -> RewardReport:
    """Grade the panel's reference answers and wrong ones made of them; no policy is loaded.

    Raises ConfigError if no task of the panel has a reference answer, RewardError if the reward
    fails and its settings say stop.
    """
    prepare_process(settings.run.num_threads)
    env: Env = build_part("env", settings.env, Env)
    try:
        tasks = list(env.tasks(settings.eval.panel))[: settings.eval.num_tasks]
        known = [task for task in tasks if task.answer]
        if not known:
            raise ConfigError(
                f"eval.panel={settings.eval.panel}: none of its {len(tasks)} tasks has a reference "
                "answer to grade; choose a split that has them"
            )
        attempts = [
            _Attempt(task=task, text=text, sibling=i, episode=env.episode(task, i))
            for number, task in enumerate(known)
            for i, text in enumerate(answers(known, number))
        ]
        _grade(env, attempts, getattr(settings.rollout, "max_turns", 1))
    finally:
        env.close()
    trajectories = [_trajectory(attempt) for attempt in attempts]
    reward = build_reward(settings, None)
    scores = reward.score_many(trajectories, step=0, learning=True)
    return _report(trajectories, scores, reward.metrics())


def answers(tasks: Sequence[Task], number: int) -> list[str]:
    """The task's reference answer first, then wrong ones: each a text of its own."""
    right = str(tasks[number].answer)
    other = str(tasks[(number + 1) % len(tasks)].answer)
    made = [right, other, *_changed(right), right[: len(right) // 2], ""]
    return list(dict.fromkeys(made))


def _changed(program: str) -> list[str]:
    """The program with another number, another operator, and with nothing in its functions."""
    changes: tuple[Callable[[ast.AST], bool], ...] = (_other_number, _other_operator, _hollow)
    return [text for change in changes if (text := _with_change(program, change)) is not None]


def _with_change(program: str, change: Callable[[ast.AST], bool]) -> str | None:
    tree = parsed(program)
    if tree is None or not any(change(node) for node in ast.walk(tree)):
        return None
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _other_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return True
    return False


def _other_operator(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        node.ops[0] = ast.LtE() if isinstance(node.ops[0], ast.Gt | ast.NotEq) else ast.NotEq()
        return True
    if isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return True
    return False


def _hollow(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        node.body = [ast.Return(value=ast.Constant(value=None))]
        return True
    return False


def _grade(env: Env, attempts: Sequence[_Attempt], max_turns: int) -> None:
    """Give each attempt's text to the environment, again in every turn until it is done."""
    for _ in range(max_turns):
        open_ones = [attempt for attempt in attempts if attempt.stop is None]
        if not open_ones:
            return
        for attempt, result in zip(open_ones, _step(env, open_ones), strict=True):
            attempt.turns.append(_turn(attempt.text))
            if isinstance(result, Exception):
                attempt.stop, attempt.outcome = Stop.ENV_ERROR, {"error": repr(result)}
            elif result.done:
                attempt.stop, attempt.outcome = Stop.DONE, result.outcome or {}


def _step(env: Env, attempts: Sequence[_Attempt]) -> list[Any]:
    """Results, or exceptions, of one turn: all at once where the environment has `step_many`."""
    many = getattr(env, "step_many", None)
    if many is not None:
        return list(many([a.episode for a in attempts], [a.text for a in attempts]))
    return [_step_one(attempt) for attempt in attempts]


def _step_one(attempt: _Attempt) -> Any:
    try:
        return attempt.episode.step(attempt.text)
    except SandboxError:
        raise
    except Exception as error:  # an environment's fault costs its own attempt
        return error


def _turn(text: str) -> Turn:
    """A turn of about as many tokens as the text would have."""
    ids = range(len(text) // CHARACTERS_PER_TOKEN + 1)
    logprobs = np.zeros(len(ids), np.float32)
    made = Generation(action_ids=ids, logprobs=logprobs, finish=Finish.STOP)
    return Turn(prompt_ids=(), generation=made, text=text)


def _trajectory(attempt: _Attempt) -> Trajectory:
    return Trajectory(
        task=attempt.task,
        sibling=attempt.sibling,
        turns=tuple(attempt.turns),
        stop=attempt.stop or Stop.MAX_TURNS,
        outcome=attempt.outcome,
        policy_version=0,
    )


def _report(
    trajectories: Sequence[Trajectory], scores: Sequence[Score], errors: dict[str, float]
) -> RewardReport:
    groups: dict[str, list[Score]] = {}
    for trajectory, score in zip(trajectories, scores, strict=True):
        groups.setdefault(trajectory.task.id, []).append(score)
    names = sorted({name for score in scores for name in score.parts})
    absent = sorted({name for score in scores for name in score.missing} - set(names))
    rows = list(groups.values())
    findings = [_finding(TOTAL, rows, lambda score: score.total)]
    for name in [*names, *absent]:
        findings.append(_finding(name, rows, lambda score, n=name: score.parts.get(n)))
    successes = [[score.success for score in row] for row in rows]
    return RewardReport(
        findings=findings,
        errors={k: v for k, v in errors.items() if v},
        num_tasks=len(rows),
        num_solved=sum(score.success == 1 for score in scores),
        num_pairs=sum(concordant_pairs(row, [0.0] * len(row))[1] for row in successes),
    )


def _finding(
    name: str, groups: Sequence[Sequence[Score]], read: Callable[[Score], float | None]
) -> Finding:
    rows = [[read(score) for score in group] for group in groups]
    values = [value for row in rows for value in row if value is not None]
    found = [
        concordant_pairs([score.success for score in group], row)
        for group, row in zip(groups, rows, strict=True)
    ]
    pairs = sum(count for _, count in found)
    return Finding(
        name=name,
        values=values,
        missing=sum(value is None for row in rows for value in row),
        concordance=sum(right for right, _ in found) / pairs if pairs else None,
        flat_groups=statistics.mean(len(set(row)) <= 1 for row in rows),
    )
