"""A frozen view behind an inference server: the log-probabilities that it gives given tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from selfdistill_cli.batching.samples import in_place_of
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.needs import TopNeed
from selfdistill_cli.core.types import FloatArray, Sample, TopScores, ViewScores
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.rollout.server_client import (
    InferenceServer,
    Refused,
    check_tokenizer,
    own_logprobs,
    prompt_logprobs,
    served_model,
)
from selfdistill_cli.teachers.settings import ServedTeacherSettings
from selfdistill_cli.training.world import World

if TYPE_CHECKING:
    from selfdistill_cli.training.views import Seen, ViewNeeds

SMALLEST_TAIL = 1e-6
"""Mass of all other tokens below this cannot be told from rounding: 1 minus a sum loses it."""


@dataclass(frozen=True, kw_only=True)
class ServedScores:
    """What a server says of one sample of T tokens."""

    logprobs: FloatArray
    """[T] log-probability of each sampled token, 0 at inactive positions."""
    tops: Mapping[TopNeed, TopScores]
    """The likeliest tokens, as far as they were asked for."""


class ServedScorer:
    """Asks a server; every rank sends what falls to it. Nothing of it is in this process."""

    def __init__(self, view: ServedTeacherSettings, policy: CausalPolicy, key: str, world: World):
        self.view = view
        self.key = key
        self.server = InferenceServer(
            url=view.url, setting=f"{key}.url", timeout_s=view.timeout_s, retries=view.retries
        )
        self.model = world.from_first(lambda: self._check(policy))

    def _check(self, policy: CausalPolicy) -> str:
        self.server.wait_until_ready(self.view.wait_s)
        name, _ = served_model(self.server, self.view.model, f"{self.key}.model")
        check_tokenizer(self.server, name, policy.chat.tokenizer)
        return name

    def read(self, samples: Sequence[Sample], tops: Iterable[TopNeed]) -> list[ServedScores]:
        """Score samples; raises ServerError, and ConfigError for more tokens than it gives."""
        asked = sorted(tops, key=lambda need: need.topk)
        most = asked[-1].topk if asked else 0
        rows = [sample.token_ids.tolist() for sample in samples]
        try:
            found = prompt_logprobs(
                self.server, self.model, rows, most, self.view.requests_at_once
            )
        except Refused as error:
            if error.status == 400 and most and "logprobs" in str(error):
                raise ConfigError(
                    f"topk={most}: {error}; start the server with --max-logprobs {most}, or use a "
                    "smaller topk"
                ) from error
            raise
        return [
            ServedScores(
                logprobs=_of_tokens(sample, row, entries),
                tops={need: _top(sample, entries, need.topk) for need in asked},
            )
            for sample, row, entries in zip(samples, rows, found, strict=True)
        ]


def asked(
    scorer: ServedScorer,
    needs: ViewNeeds,
    samples: Sequence[Sample],
    mine: Sequence[tuple[int, Seen]],
) -> list[ViewScores]:
    """What a server says of the prompted samples, at the samples' own positions."""
    scored = scorer.read([seen.sample for _, seen in mine], needs.tops)
    found: list[ViewScores] = []
    for (place, seen), scores in zip(mine, scored, strict=True):
        own, viewed = samples[place], seen.sample
        tops = {
            need: TopScores(
                ids=in_place_of(own, viewed, top.ids),
                logprobs=in_place_of(own, viewed, top.logprobs),
                tail=in_place_of(own, viewed, top.tail),
            )
            for need, top in scores.tops.items()
        }
        found.append(
            ViewScores(
                logprobs=in_place_of(own, viewed, scores.logprobs),
                tops=tops,
                informed=seen.informed,
                privileged=seen.privileged,
            )
        )
    return found


def check_needs(needs: ViewNeeds, name: str) -> None:
    """Raise ConfigError for what no server gives; config.rules finds it in shipped parts."""
    fits = all(top.support == "teacher_topk" and top.temperature == 1 for top in needs.tops)
    if needs.keeps_hidden or needs.divergences or needs.layers or not fits:
        raise ConfigError(
            f"view {name}: a part asks it for hidden states or whole distributions, and its server "
            "gives log-probabilities of the sampled token and of its likeliest ones, at "
            "temperature 1; use a teacher in this process (teacher=frozen teacher.path=FOLDER)"
        )


def _of_tokens(
    sample: Sample, row: Sequence[int], entries: Sequence[Mapping[str, Any] | None]
) -> FloatArray:
    everything = np.array([0.0, *own_logprobs(row, entries)], dtype=np.float32)
    return np.where(sample.action_mask, everything, np.float32(0))


def _top(sample: Sample, entries: Sequence[Mapping[str, Any] | None], k: int) -> TopScores:
    """The K likeliest tokens of every sampled position, and the mass of all others."""
    length = len(sample.token_ids)
    ids = np.zeros((length, k), dtype=np.int64)
    logprobs, tail = np.zeros((length, k), dtype=np.float32), np.zeros(length, dtype=np.float32)
    for position in np.flatnonzero(sample.action_mask):
        entry = entries[position] or {}
        best = sorted(
            ((-float(one["logprob"]), int(token)) for token, one in entry.items()),
        )[:k]
        chosen = sorted((token, -negative) for negative, token in best)
        ids[position] = [token for token, _ in chosen]
        logprobs[position] = [logprob for _, logprob in chosen]
        rest = 1.0 - float(np.exp([logprob for _, logprob in chosen]).sum())
        tail[position] = np.log(max(rest, SMALLEST_TAIL))
    return TopScores(ids=ids, logprobs=logprobs, tail=tail)
