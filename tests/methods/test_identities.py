"""Identities that hold for every recipe, on real episodes of the embedded policy.

    make test ARGS=tests/methods/test_identities.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from assembled import (
    assembled,
    batches_of,
    gradients,
    loss_of,
    perturb,
)
from running import final_files

from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import train

GROUP = "method.group_size=4"
CREDITS = {
    "value_gap": ["method=gear"],
    "divergence_segments": ["method=gear_paper"],
    "divergence_segments_full": ["method=gear_paper", "method.credit.divergence=full"],
    "step_log_ratio": ["method=sspo"],
    "step_log_ratio_mean": ["method=sspo", "method.credit.step_logratio=mean"],
    "token_log_ratio": ["method=rlsd"],
    "two_view": ["method=bcsd"],
}
DISTILL = "method.terms.distill."
TERMS = {
    "grpo": ["method=grpo", "method.terms.reference_kl.coefficient=0.5",
             "method.terms.entropy.coefficient=0.1"],
    "dr_grpo": ["method=dr_grpo", "method.terms.reference_kl.coefficient=0.5",
                "method.terms.reference_kl.estimator=k2"],
    "dapo": ["method=dapo"],
    "gspo": ["method=gspo"],
    "gspo_token": ["method=gear_paper", "method.terms.policy_gradient.loss_type=gspo_token"],
    "cispo": ["method=cispo"],
    "a2c": ["method=a2c"],
    "rloo": ["method=rloo"],
    "sdar": ["method=sdar"],
    "sdpo": ["method=sdpo"],
    "sft": ["method=sft_winners"],
    "dpo": ["method=gear_dpo", "method.credit.ramp=1.0"],
    "rank": ["method=gear_pairwise"],
    "hidden_match": ["method=bidirectional", "method.terms.hidden_match.coefficient=0.5",
                     "method.terms.hidden_match.layers=[0,2,-1]"],
    "cosine": ["method=bidirectional", "method.terms.hidden_match.coefficient=0.5",
               "method.terms.hidden_match.distance=cosine"],
    "segments": ["method=step_kd", DISTILL + "step_unit=segment", DISTILL + "skip_tokens=2"],
    "turns": ["method=step_kd", DISTILL + "step_unit=turn", DISTILL + "rows=failed"],
    "teacher_topk": ["method=opsd", DISTILL + "support=teacher_topk", DISTILL + "topk=8"],
    "student_topk": ["method=opsd", DISTILL + "support=student_topk", DISTILL + "topk=8",
                     DISTILL + "importance_clip=2.0", DISTILL + "token_clip=0.5"],
    **{
        f"{direction}": ["method=opsd", DISTILL + f"direction={direction}"]
        for direction in ("forward", "reverse", "jsd")
    },
    **{
        f"sampled_{kind}": ["method=opsd", DISTILL + "support=sampled",
                            DISTILL + "direction=reverse", DISTILL + f"estimator={kind}"]
        for kind in ("k2", "k3", "score")
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def played(folder, env):
    """A step's groups of the embedded policy, hidden states included, one of them not flat."""
    with assembled(folder, env, "method=gear", GROUP, name="played") as run:
        return run.method.source.groups(run.workshop, 1)


def advantages(judged) -> np.ndarray:
    return np.concatenate([s.advantages for s in all_samples(judged.groups)])


def fitted(run, groups):
    """Judge once and let the credit learn, so that a value head has been fitted."""
    judged = judge(run, groups, 1)
    run.method.credit.after_step(judged.groups, 1)
    return judge(run, groups, 2)


@pytest.mark.parametrize("credit", sorted(CREDITS))
def test_credit_with_ramp_zero_is_uniform_bit_for_bit(folder, env, played, credit):
    with assembled(folder, env, "method=grpo", GROUP, name="plain") as run:
        plain = advantages(judge(run, played, 2))
    assert (plain != 0).any()
    words = [*CREDITS[credit], GROUP]
    with assembled(folder, env, *words, "method.credit.ramp=0.0", name=f"{credit}_0") as run:
        assert (advantages(fitted(run, played)) == plain).all()
    with assembled(folder, env, *words, "method.credit.ramp=1.0", name=f"{credit}_1") as run:
        changed = advantages(fitted(run, played))
    assert (changed != plain).any()
    assert (np.sign(changed) == np.sign(plain)).all() or credit == "step_log_ratio"


@pytest.mark.parametrize("form", ["exp", "exp_sign", "sigmoid", "ratio"])
def test_weights_are_one_when_both_values_agree(folder, env, played, form):
    words = ["method=gear_ppo", GROUP, f"method.credit.form={form}", "method.credit.ramp=1.0",
             "method.credit.clip_low=null", "method.credit.clip_high=null"]  # fmt: skip
    with assembled(folder, env, *words, name=f"omega_{form}") as run:
        judged = fitted(run, played)
        credit, samples = run.method.credit, all_samples(judged.groups)
        values = credit.head.predict(samples).numpy()
        agreed = iter(
            replace(s, values=values[row, : len(s.token_ids)], advantages=s.action_mask * 2.0)
            for row, s in enumerate(samples)
        )
        groups = [replace(g, samples=tuple(next(agreed) for _ in g.samples)) for g in played]
        again, metrics = credit.reweight(groups, 3)
        assert metrics["credit/weight_min"] == metrics["credit/weight_max"] == 1.0
        assert all((s.advantages == s.action_mask * 2.0).all() for s in all_samples(again))
        _, metrics = credit.reweight(judged.groups, 3)  # against the critic's zeros
        assert metrics["credit/within_traj_std"] > 1e-3


def test_sspo_leaves_solved_trajectories_alone_and_weights_failed_ones(folder, env, played):
    with assembled(folder, env, "method=grpo", GROUP, name="plain") as run:
        plain = judge(run, played, 1)
    with assembled(folder, env, "method=sspo", GROUP, name="solved") as run:
        judged = judge(run, played, 1)
    changed = {True: 0, False: 0}
    for group, before in zip(judged.groups, plain.groups, strict=True):
        solved = [score.success >= 1.0 for score in group.scores]
        for sample, old in zip(group.samples, before.samples, strict=True):
            changed[solved[sample.sibling]] += int((sample.advantages != old.advantages).any())
            assert (sample.weights["credit"] <= 1.2 + 1e-6).all()
    assert changed[True] == 0
    assert changed[False] > 0


def test_one_step_per_trajectory_has_the_trajectory_weight(folder, env, played):
    words = ["method=sspo", GROUP, "method.credit.step_unit=turn", "method.credit.scored=all"]
    with assembled(folder, env, "method=grpo", GROUP, name="plain") as run:
        plain = judge(run, played, 1)
    with assembled(folder, env, *words, name="turns") as run:
        judged = judge(run, played, 1)
    num_weighted = 0
    for group, before in zip(judged.groups, plain.groups, strict=True):
        for sample, old in zip(group.samples, before.samples, strict=True):
            mask = sample.action_mask
            sign = np.sign(old.advantages[mask].sum())
            gap = (sample.views["teacher"].logprobs - sample.old_logprobs)[mask].astype(np.float64)
            failed = group.scores[sample.sibling].success < 1.0
            expected = min(np.exp(sign * gap.sum()), 1.2) if failed else 1.0
            np.testing.assert_allclose(sample.weights["credit"][mask], expected, rtol=1e-4)
            num_weighted += expected not in (1.0, 1.2)
    assert num_weighted > 0


@pytest.mark.parametrize("term", sorted(TERMS))
def test_micro_batches_and_padding_change_nothing(folder, env, played, term):
    with assembled(folder, env, *TERMS[term], GROUP, name=f"micro_{term}") as run:
        perturb(run)
        judged = fitted(run, played)
        perturb(run)  # a later update: ratios away from 1, values away from the old ones
        whole = loss_of(run, batches_of(run, judged))
        expected = gradients(run)
        batches = batches_of(run, judged, rows=1)
        assert len(batches) > 1
        assert loss_of(run, batches) == pytest.approx(whole, rel=1e-4, abs=1e-6)
        found = gradients(run)
    size = max(float(g.abs().max()) for g in expected.values())
    assert size > 0
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-4 * size)


@pytest.mark.parametrize("term", sorted(TERMS))
def test_no_target_gives_a_connected_zero(folder, env, played, term):
    with assembled(folder, env, *TERMS[term], GROUP, name=f"empty_{term}") as run:
        perturb(run)
        batch = batches_of(run, fitted(run, played))[0]
        empty = replace(
            batch,
            action_mask=torch.zeros_like(batch.action_mask),
            pairs=torch.full_like(batch.pairs, -1),
        )
        output = run.engine.forward(empty, run.method.forward_needs | {"entropy"})
        for name, part in run.method.terms.items():
            total, _ = part.total(output, empty)
            assert float(total.detach()) == 0.0, name
            assert total.requires_grad, name
            total.backward(retain_graph=True)
        assert all(float(g.abs().max()) == 0.0 for g in gradients(run).values())


@pytest.mark.parametrize("direction", ["forward", "reverse", "jsd"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_on_the_divergence_moves_it_that_way(folder, env, played, direction, sign):
    words = ["method=opsd", GROUP, f"method.terms.distill.direction={direction}",
             f"method.terms.distill.coefficient={sign}"]  # fmt: skip
    with assembled(folder, env, *words, name=f"way_{direction}_{sign}") as run:
        batches = batches_of(run, judge(run, played, 1))
        before = sign * loss_of(run, batches)
        assert before > 1e-3
        found = gradients(run)
        length = torch.stack([g.norm() for g in found.values()]).norm()
        with torch.no_grad():
            for name, parameter in run.policy.named_parameters():
                parameter.sub_(0.01 / length * found[name])
        after = sign * loss_of(run, batches)
        assert (after < before) if sign > 0 else (after > before)


def final(folder, env, name, *words):
    """Train three steps; bytes of the final weights."""
    with assembled(folder, env, *words, GROUP, "run.max_steps=3", name=name) as run:
        train(run)
    return final_files(folder / name)


def test_decay_zero_is_the_live_teacher_and_one_the_frozen_one(folder, env):
    live = final(folder, env, "live", "method=step_kd_free", "teacher=hinted", "method/sync=none")
    zero = final(folder, env, "zero", "method=step_kd_free", "method/sync=live")
    frozen = final(
        folder, env, "frozen", "method=step_kd_free", "teacher=frozen_hinted", "method/sync=none"
    )
    one = final(folder, env, "one", "method=step_kd_free", "method.sync.decay=1.0")
    assert zero == live
    assert one == frozen
    assert live != frozen
