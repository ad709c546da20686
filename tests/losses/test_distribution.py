"""Divergences over the vocabulary: equal to the naive computation, and what divergences must be."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from selfdistill_cli.losses.distribution import (
    FullTeacher,
    TopTeacher,
    divergence,
    top_ids,
    top_teacher,
)

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
VOCABULARY = 11
KINDS: list[Any] = [("forward", None), ("reverse", None), ("jsd", 0.5), ("jsd", 0.1)]
kinds = st.sampled_from(KINDS)


def _model(seed: int, rows: int, hidden: int, dtype: torch.dtype = torch.float64) -> Any:
    """Hidden states, unembedding and bias."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, hidden), (VOCABULARY, hidden), (VOCABULARY,)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def _student(seed: int, rows: int) -> Any:
    return [x.requires_grad_() for x in _model(seed, rows, 5)]


def _full(model: Any) -> FullTeacher:
    return FullTeacher(hidden_NH=model[0], unembedding_VH=model[1], bias_V=model[2])


def _teachers(seed: int, rows: int, temperature: float = 1.0) -> list[FullTeacher | TopTeacher]:
    """A teacher of another hidden size in full, its own top 3, and three other entries of it."""
    model = _model(seed + 1, rows, 7)
    ids = torch.rand(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    return [
        _full(model),
        top_teacher(*model, temperature=temperature, k=3),
        top_teacher(*model, temperature=temperature, ids_NK=ids[:, :3]),
    ]


def _naive(student: Any, teacher: Any, kind: str, alpha: Any, temperature: float) -> torch.Tensor:
    """By way of all probabilities, with autograd."""
    log_s = torch.log_softmax((student[0] @ student[1].T + student[2]) / temperature, -1)
    if isinstance(teacher, FullTeacher):
        logits = teacher.hidden_NH @ teacher.unembedding_VH.T + teacher.bias_V
        log_t = torch.log_softmax(logits / temperature, -1)
    else:
        inside = torch.zeros_like(log_s).scatter(-1, teacher.ids_NK, 1.0).bool()
        rest = (log_s.exp() * ~inside).sum(-1, keepdim=True).log()
        log_s = torch.cat([log_s.gather(-1, teacher.ids_NK), rest], -1)
        log_t = torch.cat([teacher.logprobs_NK, teacher.tail_N[:, None]], -1)

    def kl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.exp() * (a - b)).sum(-1)

    if kind != "jsd":
        return kl(log_t, log_s) if kind == "forward" else kl(log_s, log_t)
    log_m = ((1 - alpha) * log_s.exp() + alpha * log_t.exp()).log()
    return (1 - alpha) * kl(log_s, log_m) + alpha * kl(log_t, log_m)


def _gradients(values: torch.Tensor, inputs: Any) -> Any:
    probe = torch.linspace(0.5, 1.5, len(values), dtype=values.dtype)
    return torch.autograd.grad((values * probe).sum(), inputs)


@few
@given(seeds, st.integers(1, 6), kinds, st.sampled_from([0.5, 1.0, 1.7]))
def test_divergence_equals_the_naive_computation(
    seed: int, rows: int, kind: Any, temperature: float
) -> None:
    student = _student(seed, rows)
    for teacher in _teachers(seed, rows, temperature):
        options = {"kind": kind[0], "alpha": kind[1], "temperature": temperature}
        expected = _naive(student, teacher, *options.values())
        actual = divergence(*student, teacher, **options, chunk_size=2)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(_gradients(actual, student), _gradients(expected, student))


@few
@given(seeds, st.integers(1, 8), kinds)
def test_divergence_does_not_depend_on_the_chunk_size(seed: int, size: int, kind: Any) -> None:
    student = _student(seed, 6)
    for teacher in _teachers(seed, 6):
        options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.3}
        whole = divergence(*student, teacher, **options)
        parts = divergence(*student, teacher, **options, chunk_size=size)
        torch.testing.assert_close(parts, whole)
        torch.testing.assert_close(_gradients(parts, student), _gradients(whole, student))


@few
@given(seeds, st.integers(1, 8), st.integers(1, VOCABULARY))
def test_top_entries_do_not_depend_on_the_chunk_size(seed: int, size: int, k: int) -> None:
    model = _model(seed, 6, 5)
    whole = top_teacher(*model, temperature=0.7, k=k)
    parts = top_teacher(*model, temperature=0.7, k=k, chunk_size=size)
    given_ids = top_ids(*model, k, chunk_size=size)
    for other in (parts, top_teacher(*model, temperature=0.7, ids_NK=given_ids.flip(-1))):
        assert other.ids_NK.equal(whole.ids_NK)
        torch.testing.assert_close(other.logprobs_NK, whole.logprobs_NK)
        torch.testing.assert_close(other.tail_N, whole.tail_N)
    assert given_ids.equal((model[0] @ model[1].T + model[2]).topk(k).indices.sort(-1).values)


@few
@given(seeds, kinds)
def test_divergence_is_positive_and_zero_for_equal_distributions(seed: int, kind: Any) -> None:
    student = _student(seed, 6)
    options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.0}
    for teacher in _teachers(seed, 6):
        assert (divergence(*student, teacher, **options) > 0).all()
    itself = [x.detach() for x in student]
    for teacher in (_full(itself), top_teacher(*itself, temperature=1.0, k=3)):
        same = divergence(*student, teacher, **options)
        torch.testing.assert_close(same, torch.zeros_like(same))
        (gradient, *_) = _gradients(same, student)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


@few
@given(seeds, kinds)
def test_merging_entries_never_raises_a_divergence(seed: int, kind: Any) -> None:
    """Data processing: the top entries and a tail know less than the whole vocabulary."""
    student, model = _model(seed, 6, 5), _model(seed + 1, 6, 5)
    options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.0}
    values = [
        divergence(*student, top_teacher(*model, temperature=1.0, ids_NK=ids), **options)
        for k in range(1, VOCABULARY + 1)
        for ids in [torch.arange(k).expand(6, k)]
    ]
    assert (torch.stack(values).diff(dim=0) >= -1e-12).all()
    whole = divergence(*student, _full(model), **options)
    torch.testing.assert_close(values[-1], whole)


@few
@given(seeds, kinds, st.integers(1, 20))
def test_vocabulary_padding_of_minus_infinity_changes_nothing(seed: int, kind: Any, k: int) -> None:
    student, model = _student(seed, 4), _model(seed + 1, 4, 7)
    options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.3}

    def padded(model: Any) -> Any:
        weight = torch.nn.functional.pad(model[1], (0, 0, 0, 3), value=0.5)
        return model[0], weight, torch.nn.functional.pad(model[2], (0, 3), value=-math.inf)

    top = [top_teacher(*x, temperature=1.3, k=min(k, VOCABULARY)) for x in (model, padded(model))]
    for plain, wide in ((_full(model), _full(padded(model))), top):
        short = divergence(*student, plain, **options)
        long = divergence(*padded(student), wide, **options)
        torch.testing.assert_close(long, short)
        torch.testing.assert_close(_gradients(long, student), _gradients(short, student))


@pytest.mark.parametrize("kind", KINDS)
def test_more_entries_than_the_vocabulary_leave_an_empty_tail(kind: Any) -> None:
    student, model = _student(0, 4), _model(1, 4, 7)
    top = top_teacher(*model, temperature=1.0, k=99)
    assert top.ids_NK.equal(torch.arange(VOCABULARY).expand(4, -1))
    assert (top.tail_N == -math.inf).all()
    options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.0}
    actual, expected = (divergence(*student, x, **options) for x in (top, _full(model)))
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(_gradients(actual, student), _gradients(expected, student))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_only_the_students_own_tensors_get_a_gradient(kind: Any, index: int) -> None:
    """Frozen parts pass the gradient on; the teacher's tensors are constants."""
    student, model = _model(0, 4, 5), _student(1, 4)
    student[index].requires_grad_()
    options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.0}
    actual = divergence(*student, _full(model), **options)
    expected = _naive(student, _full([x.detach() for x in model]), *options.values())
    torch.testing.assert_close(
        _gradients(actual, [student[index]]), _gradients(expected, [student[index]])
    )
    actual = divergence(*student, _full(model), **options)
    assert torch.autograd.grad(actual.sum(), model, allow_unused=True) == (None, None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_values_connected_to_the_graph(kind: Any) -> None:
    student = _student(0, 0)
    for teacher in _teachers(0, 0):
        values = divergence(*student, teacher, kind=kind[0], alpha=kind[1], temperature=1.0)
        assert values.shape == (0,)
        assert not any(x.any() for x in _gradients(values, student))
    assert top_ids(*student, 3).shape == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_one_gradient_step_lowers_the_divergence(kind: Any) -> None:
    student = _student(0, 6)
    for teacher in _teachers(0, 6):
        options = {"kind": kind[0], "alpha": kind[1], "temperature": 1.0}
        before = divergence(*student, teacher, **options).sum()
        gradients = torch.autograd.grad(before, student)
        down, up = (
            [x - rate * g for x, g in zip(student, gradients, strict=True)]
            for rate in (1e-3, -1e-3)
        )
        lower, higher = (divergence(*x, teacher, **options).sum() for x in (down, up))
        assert lower < before < higher


@pytest.mark.parametrize("endpoint", [0.0, 1.0])
def test_end_points_of_alpha_are_the_one_sided_divergences(endpoint: float) -> None:
    student, teacher = _model(0, 4, 5), _full(_model(1, 4, 5))
    jsd = divergence(*student, teacher, kind="jsd", alpha=endpoint, temperature=1.0)
    kind: Any = "reverse" if endpoint else "forward"
    assert jsd.equal(divergence(*student, teacher, kind=kind, alpha=None, temperature=1.0))


def test_half_precision_inputs_give_float32_values() -> None:
    student, model = _model(0, 6, 5, torch.bfloat16), _model(1, 6, 5, torch.bfloat16)
    student[0].requires_grad_()
    options: Any = {"kind": "reverse", "alpha": None, "temperature": 1.0}
    exact = divergence(
        *(x.double() for x in student), _full([x.double() for x in model]), **options
    )
    for teacher in (_full(model), top_teacher(*model, temperature=1.0, k=VOCABULARY)):
        values = divergence(*student, teacher, **options)
        assert values.dtype == torch.float32
        torch.testing.assert_close(values.double(), exact, atol=0.05, rtol=0.02)
        assert _gradients(values, [student[0]])[0].dtype == torch.bfloat16


def test_gradient_of_a_bfloat16_unembedding_is_added_in_float32() -> None:
    """2048 equal contributions of one token each: a bfloat16 sum stops growing at 256."""
    hidden = torch.ones(2048, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    first = torch.tensor([[100.0], [0.0]], dtype=torch.bfloat16)
    values = divergence(
        hidden, weight, None, FullTeacher(hidden_NH=hidden, unembedding_VH=first, bias_V=None),
        kind="forward", alpha=None, temperature=1.0, chunk_size=1,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(values.sum(), weight)
    assert gradient.tolist() == [[-1024.0], [1024.0]]


class _LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


@pytest.mark.parametrize("kind", KINDS)
def test_logits_exist_for_one_chunk_at_a_time(kind: Any) -> None:
    student, model = _student(0, 200), _model(1, 200, 5)
    with _LargestTensor() as largest:
        for teacher in (_full(model), top_teacher(*model, temperature=1.0, k=3, chunk_size=10)):
            values = divergence(
                *student, teacher, kind=kind[0], alpha=kind[1], temperature=1.0, chunk_size=10
            )
            _gradients(values, student)
    assert largest.numel == student[0].numel() < 200 * VOCABULARY
