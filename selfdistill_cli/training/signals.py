"""Step signals: a teacher that is not a policy says which next tokens are good.

The student's likeliest tokens in every state are the candidates. A critic or a user's function
scores them, and the scores become a distribution over the candidates; all other tokens keep the
probability that the student gives them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.core.needs import TopNeed
from selfdistill_cli.core.types import Group, Sample, Task, TopScores, ViewScores
from selfdistill_cli.losses.distribution import TopTeacher, top_ids, top_teacher
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.successors import successor_values
from selfdistill_cli.teachers.settings import HeuristicSettings, QValueSettings

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

Heuristic = Callable[[Task, str, Sequence[str]], Sequence[float]]


def with_signal(run: Run, groups: Sequence[Group], name: str) -> list[Group]:
    """Fill `Sample.views[name]` from the signal that the view's settings name."""
    view: Any = run.method.views[name]
    score = _scorer(run.policy, view, name)
    asked = [(group.task, sample) for group in groups for sample in group.samples]
    found = iter(
        run.world.shared(
            asked,
            lambda mine: [_scores(run.policy, view, task, sample, score) for task, sample in mine],
            costs=[float(len(sample.token_ids)) for _, sample in asked],
        )
    )
    return [
        replace(
            group,
            samples=tuple(replace(s, views={**s.views, name: next(found)}) for s in group.samples),
        )
        for group in groups
    ]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What may come next in each of a sample's N states."""

    task: Task
    """The problem."""
    sample: Sample
    """The sample whose states these are."""
    positions: np.ndarray
    """[N] positions of the tokens that were chosen."""
    ids: torch.Tensor
    """[N,K] token ids."""


Score = Callable[[Candidates], torch.Tensor]


def _scorer(policy: CausalPolicy, view: QValueSettings | HeuristicSettings, name: str) -> Score:
    if isinstance(view, QValueSettings):
        return lambda candidates: _q_values(policy, candidates)
    function = find_function(view.function, "teacher.function" if name == "teacher" else name)
    return lambda candidates: _heuristic(policy, candidates, function, view.function)


def find_function(path: str, key: str) -> Heuristic:
    """Import `module:function`. Raises ConfigError if there is none."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key}: got '{path}', which cannot be imported ({error}); expected module:function, "
            "with the module in the current folder or beside the folder given as --config-dir"
        ) from error
    return found


@torch.no_grad()
def _scores(
    policy: CausalPolicy, view: Any, task: Task, sample: Sample, score: Score
) -> ViewScores:
    assert sample.hidden is not None, "the judge phase keeps the student's states"
    weight, bias = policy.unembedding()
    positions = np.flatnonzero(sample.action_mask)
    hidden = torch.from_numpy(sample.hidden[positions]).to(weight)
    ids = top_ids(hidden, weight, bias, view.candidates)
    # The term compares at temperature 1, log-probabilities are at the sampling temperature.
    plain, sampling = (
        top_teacher(hidden, weight, bias, temperature=t, ids_NK=ids)
        for t in (1.0, policy.temperature or 1.0)
    )
    scores = score(Candidates(task=task, sample=sample, positions=positions, ids=plain.ids_NK))
    found = _tilted(plain, scores, view)
    need = TopNeed(support="student_topk", topk=view.candidates, temperature=1.0)
    return ViewScores(
        logprobs=_of_sampled(sample, positions, _tilted(sampling, scores, view)),
        tops={need: _spread(sample, positions, found)},
    )


def _tilted(own: TopTeacher, scores: torch.Tensor, view: Any) -> TopTeacher:
    """The student's distribution with the candidates' share given out by their scores."""
    logits = scores.to(own.logprobs_NK) / view.temperature
    if view.prior == "student":
        logits = logits + own.logprobs_NK
    mass = own.logprobs_NK.logsumexp(-1, keepdim=True)
    return replace(own, logprobs_NK=logits.log_softmax(-1) + mass)


def _q_values(policy: CausalPolicy, candidates: Candidates) -> torch.Tensor:
    """Q(s, a) = V(s a) by the critic; a stop token ends the episode, so it gets V(s)."""
    sample = candidates.sample
    values = successor_values(policy, sample.token_ids, candidates.positions, candidates.ids)
    assert sample.values is not None, "config.rules asks for a critic"
    now = torch.from_numpy(sample.values[candidates.positions]).to(values)
    stops = torch.tensor(sorted(policy.chat.stop_ids), device=candidates.ids.device)
    return torch.where(torch.isin(candidates.ids, stops), now[:, None], values)


def _heuristic(
    policy: CausalPolicy, candidates: Candidates, function: Heuristic, path: str
) -> torch.Tensor:
    """Scores of a user's function, called once per state with the answer so far."""
    sample, decode = candidates.sample, policy.chat.decode
    rows: list[list[float]] = []
    for position, ids in zip(candidates.positions.tolist(), candidates.ids.tolist(), strict=True):
        before = [int(i) for i in sample.token_ids[sample.num_prompt_tokens : position]]
        texts = [decode([index]) for index in ids]
        try:
            scores = [float(x) for x in function(candidates.task, decode(before), texts)]
        except Exception as error:  # whatever a user's function raises is the user's to mend
            raise RunError(
                f"teacher.function={path}: raised {type(error).__name__}: {error} (task "
                f"{candidates.task.id}, answer so far {decode(before)!r})"
            ) from error
        if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
            raise RunError(
                f"teacher.function={path}: returned {scores}; expected {len(texts)} finite "
                "numbers, one per candidate"
            )
        rows.append(scores)
    return torch.tensor(rows, device=candidates.ids.device)


def _of_sampled(sample: Sample, positions: np.ndarray, found: TopTeacher) -> np.ndarray:
    """Log-probability [T] of what was sampled; outside the candidates it is the student's own."""
    sampled = torch.from_numpy(sample.token_ids[positions]).to(found.ids_NK.device)
    is_it = found.ids_NK == sampled[:, None]
    assert sample.old_logprobs is not None
    own = torch.from_numpy(sample.old_logprobs[positions]).to(found.logprobs_NK)
    inside = (found.logprobs_NK * is_it).sum(-1)
    out = np.zeros(len(sample.token_ids), dtype=np.float32)
    out[positions] = torch.where(is_it.any(-1), inside, own).cpu().numpy()
    return out


def _spread(sample: Sample, positions: np.ndarray, found: TopTeacher) -> TopScores:
    def place(values: torch.Tensor, dtype: Any) -> Any:
        out = np.zeros((len(sample.token_ids), *values.shape[1:]), dtype=dtype)
        out[positions] = values.cpu().numpy()
        return out

    return TopScores(
        ids=place(found.ids_NK, np.int64),
        logprobs=place(found.logprobs_NK, np.float32),
        tail=place(found.tail_N, np.float32),
    )
