"""Memory of one rank by part and by phase, for one value of `zero`."""

from __future__ import annotations

from dataclasses import dataclass

from selfdistill_cli.training.planning.activations import (
    VocabularyWork,
    activation_bytes,
    backward_bytes,
    cache_bytes,
    forward_bytes,
    sampling_bytes,
)
from selfdistill_cli.training.planning.division import BUCKET, Division
from selfdistill_cli.training.planning.requirements import Requirements, moment_bytes
from selfdistill_cli.training.planning.shape import Shape

WIDE = 4
FRAGMENTATION = 0.05
"""Share of the peak that an allocator cannot use."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one rank."""

    static: dict[str, float]
    """Parts that are there in every phase."""
    phases: dict[str, dict[str, float]]
    """Parts that come and go, by phase: act, judge, learn, update."""
    cpu: dict[str, float]
    """Parts in the memory of the CPU."""

    def of_phase(self, phase: str) -> float:
        """Bytes of a phase, static parts included."""
        return sum(self.static.values()) + sum(self.phases[phase].values())

    @property
    def fullest(self) -> str:
        """The phase that needs most."""
        return max(self.phases, key=self.of_phase)

    @property
    def allowance(self) -> float:
        """What fragmentation costs."""
        return FRAGMENTATION * self.of_phase(self.fullest)

    @property
    def peak(self) -> float:
        """What the rank needs."""
        return self.of_phase(self.fullest) + self.allowance


def rank_memory(shape: Shape, needs: Requirements, division: Division, on_gpu: bool) -> Memory:
    """Memory of one rank; `on_gpu` false is one process that trains on a CPU."""
    static, cpu = _static(shape, needs, division)
    replica = shape.weights_bytes if division.weights > 1 else 0.0
    return Memory(
        static={name: value for name, value in static.items() if value},
        phases={
            "act": _acting(shape, needs, replica, on_gpu),
            "judge": _judging(shape, needs, division, replica),
            "learn": _learning(shape, needs, division),
            "update": _updating(shape, needs, division, on_gpu),
        },
        cpu={name: value for name, value in cpu.items() if value},
    )


def _static(
    shape: Shape, needs: Requirements, division: Division
) -> tuple[dict[str, float], dict[str, float]]:
    """What lasts, on the device and in the memory of the CPU."""
    weights = {"weights": shape.weights_bytes / division.weights}
    moments = moment_bytes(needs, shape, division.has_master) / division.optimizer
    master = shape.trained * WIDE / division.optimizer if division.has_master else 0.0
    state = {"optimizer": moments, "master weights": master}
    static = {
        "weights": 0.0,
        "optimizer": 0.0,
        "master weights": 0.0,
        "slow copy": needs.slow_bytes / division.slow_copy,
        "frozen teachers": needs.frozen_bytes + needs.copied_bytes / division.slow_copy,
        "value head": value_head_bytes(shape, needs),
        "views' unembeddings": needs.full_views * _head(shape),
        "buffers": division.buckets * BUCKET * shape.element_size,
    }
    cpu: dict[str, float] = {}
    (cpu if division.weights_on_cpu else static).update(weights)
    (cpu if division.optimizer_on_cpu else static).update(state)
    return static, cpu


def value_head_bytes(shape: Shape, needs: Requirements) -> float:
    """Weights, gradient and moments of the critic's head, in float32."""
    return (shape.hidden + 1) * WIDE * (2 + needs.moments) if needs.has_critic else 0.0


def _head(shape: Shape) -> float:
    return float(shape.vocabulary * shape.hidden * shape.element_size)


def _acting(
    shape: Shape, needs: Requirements, replica: float, on_gpu: bool
) -> dict[str, float]:
    """Distinct prompts are read in one pass, then their cache is repeated for every sequence.

    Small Llamas on a CPU are decoded from joined weights, beside the first cache.
    """
    cache = cache_bytes(shape, needs.cached_rows, needs.length)
    first = cache_bytes(shape, needs.distinct_prompts, needs.length)
    prompts = needs.distinct_prompts * max(1, needs.length - needs.new_tokens)
    reading = first + forward_bytes(shape, prompts) - cache
    joined = shape.num_layers * shape.largest_layer_bytes + first
    return {
        "whole weights": replica,
        "key-value cache": cache,
        "decoder's copies": joined if shape.has_fast_decoder and not on_gpu else 0.0,
        "prompts or sampling": max(reading, sampling_bytes(shape, needs.cached_rows)),
    }


def _judging(
    shape: Shape, needs: Requirements, division: Division, replica: float
) -> dict[str, float]:
    """Without gradients one block's work and the vocabulary's; a slow copy in the model's dtype.

    A divided one is exchanged for the weights part by part, and a layer of it is whole at a time.
    """
    is_divided = division.slow_copy > 1
    cast = live = 0.0
    if needs.slow_bytes and (is_divided or shape.trained_bytes < shape.trained * WIDE):
        cast = shape.trained_bytes / division.slow_copy
    if needs.slow_bytes and is_divided:
        live = _live(shape)
    tokens = needs.scored_rows * needs.length
    frozen_head = VocabularyWork(tokens=tokens, divergences=0)
    return {
        "whole weights": replica,
        "slow copy in place": cast,
        "gathered weights": live,
        "scoring": forward_bytes(shape, tokens) + frozen_head.passes(shape, gradients=False),
    }


def _live(shape: Shape) -> float:
    """Two blocks, and both ends of the model, are whole at a time."""
    return 2 * shape.largest_layer_bytes + 2 * _head(shape)


def _learning(shape: Shape, needs: Requirements, division: Division) -> dict[str, float]:
    tokens = needs.micro_rows * needs.length
    vocabulary = VocabularyWork(tokens=tokens, divergences=needs.divergences).passes(shape)
    backward = backward_bytes(shape, needs.micro_rows, needs.length, needs.checkpointing)
    live = _live(shape) if division.weights > 1 else 0.0
    return {
        "gradients": shape.trained_bytes / division.gradients,
        "activations": activation_bytes(
            shape, needs.micro_rows, needs.length, needs.checkpointing
        ),
        "logits or a block": max(vocabulary, backward),
        "gathered weights": live,
    }


def _updating(
    shape: Shape, needs: Requirements, division: Division, on_gpu: bool
) -> dict[str, float]:
    """The optimizer's temporaries: of all tensors at once on a GPU, of one at a time on a CPU."""
    if division.has_master:
        work = shape.trained * WIDE / division.optimizer
        work = 0.0 if division.optimizer_on_cpu else work
    elif needs.optimizer == "sgd":
        work = 0.0
    else:
        work = shape.trained_bytes
        if not on_gpu:
            work = 2.0 * shape.largest_trained * shape.trained_bytes / shape.trained
    return {"gradients": shape.trained_bytes / division.gradients, "optimizer's work": work}
