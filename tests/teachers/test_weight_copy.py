"""A second set of weights on the student's module, over all weights, adapters and the head."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_policies import FAMILIES, small_model, small_policy, small_tokenizer

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.teachers.weight_copy import (
    AdapterProductCopy,
    HeadCopy,
    WeightCopy,
    sum_of_products,
)

BATCH = collate(
    [
        demonstration_sample([9, 10, 11], [12, 13, 14, 15]),
        demonstration_sample([20], [21, 22]),
    ]
)
RANK = 4


def adapted(family: str = "llama") -> CausalPolicy:
    """A small policy whose adapters already do something."""
    torch.manual_seed(1)
    config = LoraConfig(r=RANK, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(small_model(family), config)
    policy = CausalPolicy(model, TemplateChat(small_tokenizer()))
    train(policy)
    return policy.eval()


@torch.no_grad()
def train(policy: CausalPolicy, scale: float = 0.3) -> None:
    """Stand in for updates: move every trained tensor."""
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.add_(scale * torch.randn_like(parameter))


@torch.no_grad()
def logprobs(policy: CausalPolicy) -> torch.Tensor:
    return policy.score(BATCH, frozenset()).logprobs


def bytes_of(policy: CausalPolicy) -> dict[str, bytes]:
    state = policy.state_dict()
    return {n: t.contiguous().view(torch.uint8).numpy().tobytes() for n, t in state.items()}


def copies(policy: CausalPolicy) -> list[WeightCopy]:
    found: list[WeightCopy] = [WeightCopy(policy.backbone), HeadCopy(policy)]
    if hasattr(policy.backbone, "peft_config"):
        found.append(AdapterProductCopy(policy.backbone))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_copy_scores_as_the_student_did_when_it_was_made(family):
    policy = small_policy(family)
    before, slow = logprobs(policy), WeightCopy(policy.backbone)
    assert slow.distance() == 0.0
    train(policy)
    assert slow.distance() > 0
    with slow.in_place():
        assert (logprobs(policy) == before).all()
    assert not torch.allclose(logprobs(policy), before)


@pytest.mark.parametrize(
    ("make", "number"),
    [(small_policy, 0), (small_policy, 1), (adapted, 0), (adapted, 1), (adapted, 2)],
)
def test_student_is_untouched_by_the_copy_also_after_an_exception(make, number):
    policy = make()
    slow = copies(policy)[number]
    train(policy)
    optimizer = torch.optim.SGD([p for p in policy.parameters() if p.requires_grad], lr=0.1)
    before, addresses = bytes_of(policy), [p.data_ptr() for p in policy.parameters()]
    scored = logprobs(policy)
    with slow.in_place():
        logprobs(policy)
    with pytest.raises(RuntimeError, match="on purpose"), slow.in_place():
        raise RuntimeError("on purpose")
    assert bytes_of(policy) == before
    assert [p.data_ptr() for p in policy.parameters()] == addresses
    assert (logprobs(policy) == scored).all()
    assert policy.head_override is None
    policy.score(BATCH, frozenset()).logprobs.sum().backward()
    optimizer.step()
    assert bytes_of(policy) != before, "the optimizer lost the student"


@pytest.mark.parametrize("make", [small_policy, adapted])
def test_decay_zero_is_the_student_and_one_is_frozen(make):
    policy = make()
    for slow in copies(policy):
        start = {name: value.clone() for name, value in slow.slow.items()}
        train(policy)
        slow.follow(1.0)
        assert all((slow.slow[n] == value).all() for n, value in start.items())
        slow.follow(0.0)
        assert slow.distance() == 0.0


@pytest.mark.parametrize("make", [small_policy, adapted])
def test_state_goes_through_a_file(make, tmp_path):
    policy = make()
    for number, slow in enumerate(copies(policy)):
        slow.keep_good()
        train(policy)
        slow.follow(0.5)
        torch.save(slow.state_dict(), tmp_path / f"{number}.pt")
        other = copies(policy)[number]
        other.load_state_dict(torch.load(tmp_path / f"{number}.pt", weights_only=True))
        for kept in (slow, other):
            assert kept.restore_good()
            kept.follow(0.25)
        assert all((other.slow[n] == value).all() for n, value in slow.slow.items())
        with slow.in_place():
            expected = logprobs(policy)
        with other.in_place():
            assert (logprobs(policy) == expected).all()


def test_rollback_without_a_good_copy_does_nothing():
    policy = small_policy()
    slow = WeightCopy(policy.backbone)
    assert not slow.restore_good()
    assert slow.distance() == 0.0


def test_bfloat16_student_has_a_copy_that_moves():
    policy = small_policy()
    policy.to(torch.bfloat16)
    slow = WeightCopy(policy.backbone)
    assert {value.dtype for value in slow.slow.values()} == {torch.float32}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.02)
    start, narrow = slow.distance(), WeightCopy(policy.backbone, dtype=None)
    for _ in range(139):  # one half-life
        slow.follow(0.995)
    assert slow.distance() == pytest.approx(start / 2, rel=0.01)
    assert {value.dtype for value in narrow.slow.values()} == {torch.bfloat16}
    with slow.in_place():
        assert {p.dtype for p in policy.parameters()} == {torch.bfloat16}
        logprobs(policy)


def test_copy_of_the_factors_costs_as_much_as_the_adapters():
    policy = adapted()
    trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    everything = sum(p.numel() for p in policy.parameters())
    kept = sum(value.numel() for value in WeightCopy(policy.backbone).slow.values())
    assert kept == trained
    assert kept < everything / 2
    dense = sum(value.numel() for value in AdapterProductCopy(policy.backbone).slow.values())
    assert dense > kept


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_product_copy_is_the_exact_average_of_the_products(family):
    policy = adapted(family)
    slow = AdapterProductCopy(policy.backbone)
    modules = {n: m for n, m in policy.backbone.named_modules() if hasattr(m, "lora_A")}
    assert modules.keys() == slow.slow.keys()
    exact = {n: m.get_delta_weight("default").detach().double() for n, m in modules.items()}
    factors = WeightCopy(policy.backbone)
    for _ in range(5):
        train(policy)
        slow.follow(0.8)
        factors.follow(0.8)
        for name, module in modules.items():
            now = module.get_delta_weight("default").detach().double()
            exact[name] = 0.8 * exact[name] + 0.2 * now
    for name, value in exact.items():
        torch.testing.assert_close(slow.slow[name].double(), value, rtol=1e-4, atol=1e-5)
    with torch.no_grad(), factors.in_place():
        errors = [
            float((sum_of_products(m).double() - exact[n]).norm() / exact[n].norm())
            for n, m in modules.items()
        ]
    assert max(errors) > 0.05, "the average of the factors is an approximation"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_scoring_under_the_product_copy_is_the_merged_model(family):
    policy = adapted(family)
    slow = AdapterProductCopy(policy.backbone)
    with slow.in_place():
        first = logprobs(policy)
    torch.testing.assert_close(first, logprobs(policy), rtol=1e-4, atol=1e-4)
    train(policy)
    slow.follow(0.6)
    merged = copy.deepcopy(policy)
    with torch.no_grad():
        for name, module in merged.backbone.named_modules():
            if hasattr(module, "lora_A"):
                module.base_layer.weight.add_(slow.slow[name])
                module.lora_B["default"].weight.zero_()
    with slow.in_place():
        torch.testing.assert_close(logprobs(policy), logprobs(merged), rtol=1e-4, atol=1e-4)
    with slow.in_place():
        assert (logprobs(policy) - first).abs().max() > 1e-3


def test_head_copy_shares_the_trunk_and_lags_in_the_head_alone():
    policy = small_policy("qwen2")  # its unembedding is not tied to the embeddings
    slow = HeadCopy(policy)
    head = slow.slow["weight"].clone()
    train(policy)
    hidden = policy.score(BATCH, frozenset({"hidden"})).hidden
    with slow.in_place():
        weight, bias = policy.unembedding()
        assert (weight == head).all()
        assert bias is None
        seen = policy.score(BATCH, frozenset({"hidden"}))
    assert (seen.hidden == hidden).all(), "the trunk is the student's own"
    ids, active = BATCH.token_ids, BATCH.action_mask
    expected = torch.log_softmax(hidden @ head.T, -1).gather(-1, ids[..., None]).squeeze(-1)
    torch.testing.assert_close(seen.logprobs[active], expected[active])
    assert not torch.allclose(logprobs(policy), seen.logprobs)
    assert slow.slow.keys() == {"weight"}
