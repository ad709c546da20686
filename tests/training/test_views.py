"""Views: the sampled tokens under other weights and prompts, against plain forward passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from assembled import assembled, batches_of, environment, perturb
from small_policies import FAMILIES, small_policy

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.core.errors import RunError
from selfdistill_cli.core.needs import DivergenceNeed
from selfdistill_cli.core.types import Group, Score, ViewBatch
from selfdistill_cli.losses.logprobs import token_statistics
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.training.judge import judge

GROUP = "method.group_size=4"
DISTILL = "method.terms.distill."
FULL = {
    name: DivergenceNeed(
        view="teacher", direction=name, alpha=0.3, support="full", topk=0, temperature=1.0
    )
    for name in ("forward", "reverse", "jsd")
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs of this module lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def env(folder):
    """The code environment, started once."""
    with environment(folder) as env:
        yield env


def log_p(policy, ids) -> torch.Tensor:
    """Log-probabilities [T,V] before each token of a plain forward pass, without its first."""
    with torch.no_grad():
        return torch.log_softmax(policy.backbone(torch.tensor([ids])).logits[0, :-1].double(), -1)


def reverse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.exp() * (a - b)).sum(-1)


def test_hinted_view_swaps_the_prompt_and_copies_every_later_token(folder, env):
    with assembled(folder, env, "method=gear_paper", GROUP, name="hinted") as run:
        groups = run.method.source.groups(run.workshop, 1)
        judged = judge(run, groups, 1)
        for group in judged.groups:
            prompt = run.workshop.hinted_prompt(group.task, ["answer"], (), (), None, salt=1)
            assert group.task.answer.strip() in prompt.privileged
            for sample in group.samples:
                view = sample.views["teacher"]
                actions = sample.token_ids[sample.num_prompt_tokens :]
                ids = [*prompt.ids, *actions.tolist()]
                expected = log_p(run.policy, ids)[len(prompt.ids) - 1 :]
                expected = expected.gather(-1, torch.from_numpy(actions)[:, None]).squeeze(-1)
                found = view.logprobs[sample.num_prompt_tokens :]
                np.testing.assert_allclose(found, expected, atol=2e-4)
                assert (view.logprobs[: sample.num_prompt_tokens] == 0).all()
                assert view.informed
                assert view.privileged == prompt.privileged


def test_full_divergence_when_judging_is_that_of_plain_forward_passes(folder, env):
    words = ["method=gear_paper", "method.credit.divergence=full", GROUP]
    with assembled(folder, env, *words, name="full") as run:
        groups = run.method.source.groups(run.workshop, 1)
        group = judge(run, groups, 1).groups[0]
        prompt = run.workshop.hinted_prompt(group.task, ["answer"], (), (), None, salt=1).ids
        for sample in group.samples:
            first = sample.num_prompt_tokens
            own = log_p(run.policy, sample.token_ids.tolist())[first - 1 :]
            actions = sample.token_ids[first:].tolist()
            teacher = log_p(run.policy, [*prompt, *actions])[len(prompt) - 1 :]
            (need,) = sample.views["teacher"].divergences
            found = sample.views["teacher"].divergences[need][first:]
            np.testing.assert_allclose(found, reverse(own, teacher), atol=2e-4)
            assert (found >= -1e-6).all()


@pytest.mark.parametrize("support", ["teacher_topk", "student_topk"])
def test_kept_entries_are_the_likeliest_of_that_side(folder, env, support):
    words = ["method=opsd", GROUP, DISTILL + f"support={support}", DISTILL + "topk=5",
             DISTILL + "temperature=1.0"]  # fmt: skip
    with assembled(folder, env, *words, name=support) as run:
        groups = run.method.source.groups(run.workshop, 1)
        group = judge(run, groups, 1).groups[0]
        prompt = run.workshop.hinted_prompt(group.task, ["answer"], (), (), None, salt=1).ids
        for sample in group.samples:
            first = sample.num_prompt_tokens
            own = log_p(run.policy, sample.token_ids.tolist())[first - 1 :]
            actions = sample.token_ids[first:].tolist()
            teacher = log_p(run.policy, [*prompt, *actions])[len(prompt) - 1 :]
            (top,) = sample.views["teacher"].tops.values()
            side = teacher if support == "teacher_topk" else own
            likeliest = side.topk(5, -1).values[:, -1:]
            ids = torch.from_numpy(top.ids[first:])
            assert (side.gather(-1, ids) >= likeliest - 1e-4).all()
            kept = teacher.gather(-1, ids)
            np.testing.assert_allclose(top.logprobs[first:], kept, atol=1e-3)
            mass = np.exp(top.logprobs[first:]).sum(-1) + np.exp(top.tail[first:])
            np.testing.assert_allclose(mass, 1.0, atol=1e-4)


def test_less_support_never_shows_more_divergence(folder, env):
    found = {}
    for support in ("full", "teacher_topk", "student_topk"):
        words = ["method=opsd", GROUP, DISTILL + "direction=reverse", DISTILL + "topk=4",
                 DISTILL + f"support={support}"]  # fmt: skip
        with assembled(folder, env, *words, name=f"less_{support}") as run:
            groups = run.method.source.groups(run.workshop, 1)
            (batch,) = batches_of(run, judge(run, groups, 1))
            output = run.engine.forward(batch, run.method.forward_needs)
            (need,) = output.divergences
            found[support] = output.divergences[need].detach()
    for support in ("teacher_topk", "student_topk"):
        assert (found[support] >= -1e-5).all()
        assert (found[support] <= found["full"] + 1e-4).all()
    assert found["full"].max() > 0.1


def test_a_rejected_trajectory_is_never_shown(folder, env):
    with assembled(folder, env, "method=sdpo", "method.group_size=8", name="shown") as run:
        groups = run.method.source.groups(run.workshop, 1)
        counted = 0
        for group in groups:
            solved = [i for i, score in enumerate(group.scores) if score.success >= 1.0]
            if not solved or len(solved) == 8:
                continue
            lost = Score(total=None, success=1.0, parts={})
            scores = tuple(lost if i in solved else s for i, s in enumerate(group.scores))
            kept = tuple(s for s in group.samples if s.sibling not in solved)
            judged = judge(run, [replace(group, scores=scores, samples=kept)], 1)
            texts = [s.views["teacher"].privileged for s in all_samples(judged.groups)]
            assert all("[sibling]" not in text for text in texts)
            assert all("[feedback]" in text for text in texts)
            counted += 1
    assert counted > 0


def test_demonstrations_are_scored_for_what_the_rollout_did_not_give(folder, env):
    with assembled(folder, env, "method=gkd", "method.source.on_policy=0.0", name="gkd") as run:
        groups = run.method.source.groups(run.workshop, 1)
        assert all(not group.trajectories for group in groups)
        judged = judge(run, groups, 1)
        assert all("teacher" in s.views for s in all_samples(judged.groups))
        assert all(s.views["teacher"].hidden is not None for s in all_samples(judged.groups))


def test_both_prompts_must_open_an_answer(folder, env):
    with assembled(folder, env, "method=rlsd", GROUP, name="boundary") as run:
        groups = run.method.source.groups(run.workshop, 1)
        group = groups[0]
        shifted = [
            replace(s, num_prompt_tokens=s.num_prompt_tokens - 1) for s in group.samples
        ]
        with pytest.raises(RunError, match=r"view teacher.*expected both to end with"):
            judge(run, [replace(group, samples=tuple(shifted))], 1)


def test_recomputed_log_probabilities_are_those_of_the_rollout(folder, env):
    words = ["method=gear_ppo", GROUP, "method.old_logprobs=recomputed"]
    with assembled(folder, env, *words, name="recomputed") as run:
        groups = run.method.source.groups(run.workshop, 1)
        same = all_samples(judge(run, groups, 1).groups)
        for sample in same:
            np.testing.assert_allclose(sample.old_logprobs, sample.sampled_logprobs, atol=1e-4)
        perturb(run, 0.05)
        moved = all_samples(judge(run, groups, 1).groups)
        assert any(np.abs(s.old_logprobs - s.sampled_logprobs).max() > 1e-2 for s in moved)
        pairs = zip(same, moved, strict=True)
        assert any(np.abs(a.hidden - b.hidden).max() > 1e-2 for a, b in pairs)


def demonstrations():
    return [
        demonstration_sample([9, 10, 11], [12, 13, 14, 15]),
        demonstration_sample([20, 21], [22, 23]),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_do_not_depend_on_the_side_of_the_padding(family):
    policy = small_policy(family)
    right = collate(demonstrations())
    expected = policy.score(right, frozenset({"entropy"}))
    length = right.token_ids.shape[1]
    shifts = [length - int(n) for n in right.attention_mask.sum(-1)]

    def rolled(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row.roll(by) for row, by in zip(x, shifts, strict=True)])

    assert max(shifts) > 0
    ids, attention, active = map(
        rolled, (right.token_ids, right.attention_mask, right.action_mask)
    )
    hidden = policy.hidden_states(ids, attention)
    logprobs, entropy = token_statistics(
        hidden, *policy.unembedding(), ids, active, need_entropy=True
    )
    torch.testing.assert_close(logprobs, rolled(expected.logprobs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, rolled(expected.entropy), rtol=1e-4, atol=1e-5)


def with_teacher(batch, unembedding, hidden):
    view = ViewBatch(
        logprobs=torch.zeros_like(batch.old_logprobs), hidden=hidden, unembedding=unembedding
    )
    return replace(batch, views={"teacher": view})


def padded(unembedding):
    """Rows of the vocabulary that no tokenizer knows: their logits are -inf."""
    weight, bias = unembedding
    bias = torch.zeros(len(weight)) if bias is None else bias
    more = torch.randn(7, weight.shape[1])
    return torch.cat([weight, more]), torch.cat([bias, torch.full((7,), -torch.inf)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("direction", sorted(FULL))
def test_divergence_is_not_negative_and_ignores_padding_of_the_vocabulary(direction, dtype):
    student, teacher = small_policy("qwen2", seed=1).to(dtype), small_policy("qwen2").to(dtype)
    batch, need = collate(demonstrations()), FULL[direction]
    seen = teacher.score(batch, frozenset({"hidden"})).hidden.detach()
    head = tuple(None if x is None else x.detach() for x in teacher.unembedding())
    results = []
    for pad in (lambda head: head, lambda head: tuple(x.to(dtype) for x in padded(head))):
        student.zero_grad()
        student.head_override = pad(student.unembedding())
        output = student.score(with_teacher(batch, pad(head), seen), frozenset({need, "entropy"}))
        student.head_override = None
        output.divergences[need].sum().backward()
        gradient = student.backbone.model.embed_tokens.weight.grad.clone()
        results.append((output.divergences[need].detach(), output.entropy.detach(), gradient))
    assert (results[0][0] >= -1e-6).all()
    assert results[0][0][batch.action_mask].min() > 1e-3
    for plain, wide in zip(*results, strict=True):
        assert torch.isfinite(wide).all()
        torch.testing.assert_close(wide, plain, rtol=1e-4, atol=1e-6)


def _all_failed(group: Group) -> Group:
    return replace(group, scores=tuple(replace(s, total=0.0, success=0.0) for s in group.scores))


def test_a_view_is_scored_only_where_it_can_change_an_advantage(folder, env):
    found = {}
    for scored in ("failed", "all"):
        words = ["method=sspo", f"method.credit.scored={scored}", "method.group_size=8"]
        with assembled(folder, env, *words, name=f"scored_{scored}") as run:
            played = run.method.source.groups(run.workshop, 1)
            groups = [_all_failed(played[0]), *played[1:]]
            perturb(run)  # else the teacher has the weights that sampled
            found[scored] = judge(run, groups, 1).groups
            assert run.method.term_views == []
    pairs = zip(all_samples(found["failed"]), all_samples(found["all"]), strict=True)
    solved = [s.success >= 1.0 for group in found["all"] for s in group.scores]
    assert 0 < sum(solved) < len(solved)
    flat = [is_flat(group) for group in found["all"] for _ in group.scores]
    assert any(flat)
    assert not all(flat)
    for (few, every), good, equal in zip(pairs, solved, flat, strict=True):
        assert ("teacher" in few.views) == (not good and not equal)
        assert "teacher" in every.views
        np.testing.assert_allclose(few.advantages, every.advantages, atol=1e-5)
    changed = [x for x in all_samples(found["failed"]) if len(set(x.advantages.tolist())) > 2]
    assert changed, "some failed trajectory carries different weights on its tokens"


def test_a_term_that_reads_the_view_needs_it_everywhere(folder, env):
    with assembled(folder, env, "method=sspo", name="reads") as run:
        assert not run.method.reads_view("teacher", 1.0, flat=False)
        assert run.method.reads_view("teacher", 0.5, flat=False)
        assert not run.method.reads_view("teacher", 0.5, flat=True)
    words = ["method=sspo", "method/advantage=gae", "method/terms=actor_critic"]
    with assembled(folder, env, *words, name="reads_gae") as run:
        assert run.method.reads_view("teacher", 0.5, flat=True), "its advantages need no siblings"
    with assembled(folder, env, "method=step_kd", name="reads_kd") as run:
        assert run.method.reads_view("teacher", 1.0, flat=True)
