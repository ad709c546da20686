"""Token statistics: equal to the naive computation, at any chunk size, padding and dtype."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from selfdistill_cli.losses.logprobs import align_to_tokens, token_statistics

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
HIDDEN, VOCABULARY = 5, 11


def _problem(seed: int, rows: int, length: int, dtype: torch.dtype = torch.float64) -> Any:
    """Hidden states, unembedding, bias, ids and an active mask."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, length, HIDDEN, generator=generator, dtype=dtype)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=dtype)
    bias = torch.randn(VOCABULARY, generator=generator, dtype=dtype)
    ids = torch.randint(0, VOCABULARY, (rows, length), generator=generator)
    active = torch.rand(rows, length, generator=generator) < 0.5
    active[:, 0] = False
    return hidden, weight, bias, ids, active


def _naive(hidden: Any, weight: Any, bias: Any, ids: Any, active: Any, temperature: float) -> Any:
    """Log-probabilities and entropies by way of all logits [B,T,V]."""
    log_p = torch.log_softmax((hidden @ weight.T + bias) / temperature, -1)[:, :-1]
    chosen = log_p.gather(-1, ids[:, 1:, None]).squeeze(-1)
    spread = -(log_p.exp() * log_p).sum(-1)
    first = torch.zeros(len(ids), 1, dtype=chosen.dtype)
    zero = torch.zeros_like(ids, dtype=chosen.dtype)
    both = [torch.cat([first, x], 1) for x in (chosen, spread)]
    return [torch.where(active, x, zero) for x in both]


def _gradients(outputs: Any, inputs: Any) -> Any:
    probe = torch.linspace(0.5, 1.5, outputs[0].numel(), dtype=outputs[0].dtype)
    loss = sum((x.flatten() * probe * (i + 1)).sum() for i, x in enumerate(outputs))
    return torch.autograd.grad(loss, inputs)


@few
@given(seeds, st.integers(1, 4), st.integers(1, 7), st.sampled_from([0.5, 1.0, 1.7]))
def test_token_statistics_equal_the_naive_computation(
    seed: int, rows: int, length: int, temperature: float
) -> None:
    hidden, weight, bias, ids, active = _problem(seed, rows, length)
    inputs = [x.requires_grad_() for x in (hidden, weight, bias)]
    expected = _naive(*inputs, ids, active, temperature)
    actual = token_statistics(*inputs, ids, active, temperature=temperature, need_entropy=True)
    torch.testing.assert_close(list(actual), expected)
    torch.testing.assert_close(_gradients(actual, inputs), _gradients(expected, inputs))


@few
@given(seeds, st.integers(1, 9))
def test_token_statistics_do_not_depend_on_the_chunk_size(seed: int, chunk_size: int) -> None:
    hidden, weight, bias, ids, active = _problem(seed, 3, 6)
    inputs = [x.requires_grad_() for x in (hidden, weight, bias)]
    whole = token_statistics(*inputs, ids, active, need_entropy=True)
    parts = token_statistics(*inputs, ids, active, need_entropy=True, chunk_size=chunk_size)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(_gradients(parts, inputs), _gradients(whole, inputs))


@few
@given(seeds, st.integers(0, 3), st.integers(0, 3))
def test_padding_on_either_side_changes_nothing(seed: int, left: int, right: int) -> None:
    hidden, weight, bias, ids, active = _problem(seed, 2, 5)
    plain, _ = token_statistics(hidden, weight, bias, ids, active)
    nan = math.nan
    padded_hidden = torch.nn.functional.pad(hidden, (0, 0, left, right), value=nan)
    padded_hidden.requires_grad_()
    padded_ids = torch.nn.functional.pad(ids, (left, right))
    padded_active = torch.nn.functional.pad(active, (left, right))
    padded, entropy = token_statistics(
        padded_hidden, weight, bias, padded_ids, padded_active, need_entropy=True
    )
    torch.testing.assert_close(padded[:, left : left + 5], plain, rtol=0, atol=0)
    assert not padded[~padded_active].any()
    (gradient,) = _gradients([padded, entropy], [padded_hidden])
    assert gradient.isfinite().all()


@pytest.mark.parametrize("chunk_size", [1, 100])
def test_vocabulary_padding_of_minus_infinity(chunk_size: int) -> None:
    hidden, weight, bias, ids, active = _problem(0, 3, 6)
    ids, active = ids % (VOCABULARY - 3), active.index_fill(1, torch.tensor([1]), True)
    inputs = [x.requires_grad_() for x in (hidden, weight)]
    short = token_statistics(*inputs[:1], weight[:-3], bias[:-3], ids, active, need_entropy=True)
    closed = bias.index_fill(0, torch.arange(VOCABULARY - 3, VOCABULARY), -math.inf)
    padded = token_statistics(
        *inputs, closed, ids, active, need_entropy=True, chunk_size=chunk_size
    )
    torch.testing.assert_close(padded, short)
    torch.testing.assert_close(_gradients(padded, inputs), _gradients(short, inputs))


def test_no_active_token_gives_zeros_connected_to_the_graph() -> None:
    hidden, weight, bias, ids, active = _problem(0, 2, 4)
    inputs = [x.requires_grad_() for x in (hidden, weight, bias)]
    outputs = token_statistics(*inputs, ids, active & False, need_entropy=True)
    assert not any(x.any() for x in outputs)
    assert not any(g.any() for g in _gradients(outputs, inputs))


def test_half_precision_inputs_give_float32_statistics() -> None:
    hidden, weight, bias, ids, active = _problem(3, 4, 6, torch.bfloat16)
    logprobs, entropy = token_statistics(hidden, weight, bias, ids, active, need_entropy=True)
    assert entropy is not None
    assert logprobs.dtype == entropy.dtype == torch.float32
    exact, _ = token_statistics(*(x.double() for x in (hidden, weight, bias)), ids, active)
    torch.testing.assert_close(logprobs.double(), exact, atol=0.05, rtol=0.02)


class _LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


def test_logits_exist_for_one_chunk_at_a_time() -> None:
    hidden, weight, bias, ids, _ = _problem(0, 4, 50)
    active = torch.ones(4, 50, dtype=torch.bool)
    inputs = [x.requires_grad_() for x in (hidden, weight, bias)]
    with _LargestTensor() as largest:
        outputs = token_statistics(*inputs, ids, active, need_entropy=True, chunk_size=10)
        _gradients(outputs, inputs)
    assert largest.numel == hidden.numel() < 4 * 49 * VOCABULARY


def test_gradient_of_a_bfloat16_unembedding_is_added_in_float32() -> None:
    """2048 equal contributions of one token each: a bfloat16 sum stops growing at 256."""
    hidden = torch.ones(1, 2049, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    ids, active = torch.zeros(1, 2049, dtype=torch.long), torch.ones(1, 2049, dtype=torch.bool)
    logprobs, _ = token_statistics(hidden, weight, None, ids, active, chunk_size=1)
    (gradient,) = torch.autograd.grad(logprobs.sum(), weight)
    assert gradient.tolist() == [[1024.0], [-1024.0]]


def test_a_frozen_unembedding_passes_the_gradient_on() -> None:
    hidden, weight, bias, ids, active = _problem(5, 2, 6)
    hidden.requires_grad_()
    actual = token_statistics(hidden, weight, bias, ids, active, need_entropy=True, chunk_size=2)
    expected = _naive(hidden, weight, bias, ids, active, 1.0)
    torch.testing.assert_close(_gradients(actual, [hidden]), _gradients(expected, [hidden]))
    for i in (0, 1):  # one output alone
        again = token_statistics(hidden, weight, bias, ids, active, need_entropy=True)
        naive = _naive(hidden, weight, bias, ids, active, 1.0)
        torch.testing.assert_close(
            _gradients([again[i]], [hidden]), _gradients([naive[i]], [hidden])
        )


def test_the_first_token_of_a_row_has_no_prediction() -> None:
    hidden, weight, bias, ids, active = _problem(2, 2, 4)
    without, _ = token_statistics(hidden, weight, bias, ids, active)
    with_first, _ = token_statistics(
        hidden, weight, bias, ids, active.index_fill(1, torch.tensor([0]), True)
    )
    assert with_first.equal(without)


def test_alignment_moves_outputs_to_the_tokens_that_they_predict() -> None:
    outputs = torch.arange(1, 7).view(2, 3)
    assert align_to_tokens(outputs).tolist() == [[0, 1, 2], [0, 4, 5]]
    assert align_to_tokens(outputs[..., None].bool()).shape == (2, 3, 1)
