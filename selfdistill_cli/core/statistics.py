"""Numbers that compare results, with intervals. Scores are rows of tasks, columns of attempts.

Rows may differ in length where an argument is a sequence of rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rows = Sequence[Sequence[float]] | Array


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A number and where it lies."""

    point: float
    """The number for the results as they are."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""


def pass_at_k(num_attempts: Sequence[int], num_correct: Sequence[int], k: int) -> Array:
    """Unbiased pass@k of each problem: 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374, equation 1).

    Raises ValueError if a problem has fewer than k attempts.
    """
    out: list[float] = []
    for n, c in zip(num_attempts, num_correct, strict=True):
        if not 1 <= k <= n:
            raise ValueError(f"pass@{k} needs at least {k} attempts per problem; found {n}")
        # math.comb(n, k) is 0 for k > n, exact and free of overflow.
        out.append(1.0 - math.comb(n - c, k) / math.comb(n, k))
    return np.array(out, dtype=np.float64)


def interquartile_mean(values: Sequence[float] | Array) -> float:
    """Mean after int(n / 4) values are dropped at each end (arXiv 2108.13264)."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cut = int(0.25 * len(ordered))
    return float(ordered[cut : len(ordered) - cut].mean())


def resample_indices(
    rng: np.random.Generator, lengths: Sequence[int]
) -> list[npt.NDArray[np.int64]]:
    """Indices of one stratified replicate: each row is resampled within itself, in order."""
    return [rng.integers(0, length, size=length) for length in lengths]


def bootstrap_interval(
    scores: Rows, statistic: Literal["mean", "iqm"], *, reps: int, seed: int, level: float
) -> Interval:
    """Stratified bootstrap interval: attempts are resampled within each task (arXiv 2108.13264).

    mean: mean of the tasks' means; iqm: interquartile mean of all scores. The ends are quantiles
    of `reps` replicates drawn from PCG64(seed).
    """
    rows = [np.asarray(row, dtype=np.float64) for row in scores]
    measure = _mean_of_means if statistic == "mean" else _pooled_iqm
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = [len(row) for row in rows]
    replicates = [
        measure([row[i] for row, i in zip(rows, resample_indices(rng, lengths), strict=True)])
        for _ in range(reps)
    ]
    return _interval(measure(rows), np.array(replicates), level)


def paired_difference(
    before: Rows | Sequence[float],
    after: Rows | Sequence[float],
    *,
    seed: int,
    reps: int,
    level: float,
) -> Interval:
    """Mean over tasks of (after - before), with a bootstrap interval that resamples tasks.

    Both are evaluations of the same panel in the same order: [N] scores, or [N] rows of attempts
    (averaged first, their numbers may differ). Pairing removes the spread between tasks.
    Raises ValueError if the panels differ in length or are empty.
    """
    if len(before) != len(after):
        raise ValueError(
            f"paired results need the same tasks: before has {len(before)}, after {len(after)}"
        )
    differences_N = _task_means(after, "after") - _task_means(before, "before")
    rng = np.random.Generator(np.random.PCG64(seed))
    count = len(differences_N)
    replicates = [differences_N[rng.integers(0, count, size=count)].mean() for _ in range(reps)]
    return _interval(float(differences_N.mean()), np.array(replicates), level)


def crossed_interval(scores_SN: Array, *, reps: int, seed: int, level: float) -> Interval:
    """Mean of [S runs, N tasks] with a bootstrap interval that resamples whole runs and tasks.

    A run answers every task, so its scores rise and fall together; resampling them task by task
    would make the interval too narrow. Runs and tasks are drawn independently and crossed (A. B.
    Owen, The pigeonhole bootstrap, Annals of Applied Statistics 2007), which errs on the wide
    side. With S = 1 only tasks vary: the interval says nothing about other seeds.
    """
    return _crossed([scores_SN], [1.0], reps, seed, level)


def crossed_difference(
    before_RN: Array, after_SN: Array, *, reps: int, seed: int, level: float
) -> Interval:
    """Mean of after [S, N] minus mean of before [R, N]: other runs on the same N tasks, in order.

    As `crossed_interval`; one draw of tasks serves both sides (paired), runs are drawn within each
    side (stratified). Raises ValueError if the tasks differ in number.
    """
    if before_RN.shape[1] != after_SN.shape[1]:
        raise ValueError(
            f"paired results need the same tasks: before has {before_RN.shape[1]}, "
            f"after {after_SN.shape[1]}"
        )
    return _crossed([after_SN, before_RN], [1.0, -1.0], reps, seed, level)


def _crossed(
    sides: Sequence[Array], signs: Sequence[float], reps: int, seed: int, level: float
) -> Interval:
    """Signed sum of the sides' means; every replicate shares its draw of tasks between them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    task_weights = _draws(rng, sides[0].shape[1], reps)
    point, replicates = 0.0, np.zeros(reps)
    for scores_SN, sign in zip(sides, signs, strict=True):
        run_weights = _draws(rng, len(scores_SN), reps)
        point += sign * float(scores_SN.mean())
        replicates += sign * ((run_weights @ scores_SN) * task_weights).sum(axis=1)
    return _interval(point, replicates, level)


def _draws(rng: np.random.Generator, count: int, reps: int) -> Array:
    """[reps, count] shares of `count` draws with replacement; each row sums to 1."""
    return rng.multinomial(count, np.full(count, 1 / count), size=reps) / count


def success_interval(successes: Rows | Sequence[float], *, level: float) -> Interval:
    """Mean success over tasks with Wilson's score interval (E. B. Wilson, JASA 1927).

    `successes`: [N] numbers in [0, 1], or [N] rows of attempts, averaged first. Each task counts as
    one draw, so the interval is for tasks like these; for fractions it is conservative, because
    p (1 - p) bounds the variance of anything in [0, 1]. Never empty, also at 0 and 1.
    """
    means_N = _task_means(successes, "successes")
    n, p = len(means_N), float(means_N.mean())
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At p = 0 and p = 1 the ends are p itself; rounding must not push them past it.
    return Interval(point=p, low=min(p, centre - half), high=max(p, centre + half))


def probability_of_improvement(x: Rows, y: Rows) -> float:
    """Chance that an attempt of x beats one of y, ties count half; mean over tasks.

    Source: arXiv 2108.13264, section 4.3.
    """
    wins: list[float] = []
    for row_x, row_y in zip(x, y, strict=True):
        gap = np.subtract.outer(np.asarray(row_x, float), np.asarray(row_y, float))
        wins.append(float(((gap > 0) + 0.5 * (gap == 0)).mean()))
    return float(np.mean(wins))


def area_under_curve(
    x: Sequence[float] | Array, y: Sequence[float] | Array, x_max: float | None = None
) -> float:
    """Mean height of the curve by trapezoids: sample efficiency on the scale of y.

    `x` ascends. `x_max` cuts the curve there, with linear interpolation. One point returns its y.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x_max is not None and x_max < xs[-1]:
        at_cut = np.interp(x_max, xs, ys)
        inside = xs < x_max
        xs, ys = np.append(xs[inside], x_max), np.append(ys[inside], at_cut)
    if len(xs) == 1:
        return float(ys[0])
    area = (np.diff(xs) * (ys[1:] + ys[:-1]) / 2).sum()
    return float(area / (xs[-1] - xs[0]))


def entropy(logits: Sequence[float] | Array, temperature: float = 1.0) -> float:
    """Entropy of softmax(logits / temperature) in nats; entries of -inf contribute 0."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    finite = scaled[scaled > -np.inf]
    shifted = finite - finite.max()
    weights = np.exp(shifted)
    total = weights.sum()
    return float(np.log(total) - (weights * shifted).sum() / total)


def distinct_n(sequences: Sequence[Sequence[Hashable]], n: int) -> float:
    """Distinct n-grams / all n-grams, pooled over sequences; 0 if there are none.

    Source: arXiv 1510.03055.
    """
    grams = [
        tuple(sequence[i : i + n]) for sequence in sequences for i in range(len(sequence) - n + 1)
    ]
    return len(set(grams)) / len(grams) if grams else 0.0


def _mean_of_means(rows: Sequence[Array]) -> float:
    return float(np.mean([row.mean() for row in rows]))


def _pooled_iqm(rows: Sequence[Array]) -> float:
    return interquartile_mean(np.concatenate(rows))


def _interval(point: float, replicates: Array, level: float) -> Interval:
    tail = (1 - level) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Interval(point=point, low=float(low), high=float(high))


def _task_means(scores: Rows | Sequence[float], name: str) -> Array:
    """Mean of each task [N], from [N] scores or [N] rows of attempts."""
    means_N = np.array([np.mean(row) for row in scores], dtype=np.float64)
    if len(means_N) == 0:
        raise ValueError(f"`{name}` holds no tasks; expected at least one")
    return means_N
