"""What parts read of a step: the right student, the right moment, the right temperature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assembled import assembled
from making import make_group

from selfdistill_cli.methods.pairs import with_pairs
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.run import Run

GROUP = "method.group_size=4"


def logged(run: Run, key: str) -> list[float]:
    """A metric of every step."""
    from running import numbers

    return [line[key] for line in numbers(run.directory) if key in line]


def test_replayed_episodes_are_compared_with_the_student_as_it_is_now(folder, env):
    """A teacher that is the student itself has KL 0, however old the episodes are."""
    words = ["method=grpo", "method/source=replay", "teacher=hinted", "teacher.hints=[]"]
    more = ["optim.lr=1e-3", "run.max_steps=4", "eval.every=0", GROUP]
    with assembled(folder, env, *words, *more, name="replayed") as run:
        train(run)
    assert max(logged(run, "policy/approx_kl")) > 1e-3
    assert max(logged(run, "teacher/kl")) < 1e-6


def test_a_controller_forgets_at_the_first_reading_after_a_full_copy(folder, env):
    """The KL of the step that ends with the copy was measured against the old copy."""
    words = ["method=bidirectional", "method/sync=ema_with_full_sync", GROUP, "optim.lr=1e-3",
             "method.sync.full_sync_every=3", "method.sync.decay=1.0", "eval.every=0",
             "run.max_steps=6", "method.terms.distill.coefficient.target=0.001"]  # fmt: skip
    with assembled(folder, env, *words, name="forgets") as run:
        train(run)
    beta = logged(run, "loss/coefficient_distill")
    kl = logged(run, "loss/distill")
    assert kl[3] < 1e-6 < kl[2]
    error = (kl[3] - 0.001) / 0.001  # the first error after the copy: no sum, no change before it
    assert beta[4] == pytest.approx(beta[3] * np.exp(0.1 * error + 0.01 * error), rel=1e-4)


def test_a_gate_starts_from_the_copys_own_score(folder, env):
    with assembled(folder, env, "method=grpo", GROUP, "optim.lr=0.3", "eval.every=0",
                   "run.max_steps=2", name="ruined") as run:  # fmt: skip
        train(run)
    words = ["method=step_kd", "method/sync=gated", GROUP, "policy.init_from=ruined:latest",
             "teacher.path=fine:latest", "run.max_steps=1"]  # fmt: skip
    with assembled(folder, env, "method=grpo", GROUP, "optim.lr=1e-9", "eval.every=0",
                   "run.max_steps=1", name="fine") as run:  # fmt: skip
        train(run)
    with assembled(folder, env, *words, "eval.every=1", "eval.num_tasks=20", name="gated") as run:
        run.log_baseline()
        assert run.method.sync.gate.teacher_score > 0.1


def test_a_pair_is_chosen_by_the_mean_advantage_not_by_length():
    group = make_group("pair", [1.0, 0.9, 0.0, 0.1])
    values = {0: 1.0, 1: 0.8, 2: -1.0, 3: -0.8}
    repeats = {0: 1, 1: 4, 2: 1, 3: 4}
    samples = []
    for sample in group.samples:
        reps = repeats[sample.sibling]
        mask = np.concatenate([sample.action_mask] * reps)
        samples.append(
            replace(
                sample, token_ids=np.concatenate([sample.token_ids] * reps), action_mask=mask,
                advantages=np.where(mask, values[sample.sibling], 0.0).astype(np.float32),
            )
        )  # fmt: skip
    (paired,) = with_pairs([replace(group, samples=tuple(samples))])
    assert [sample.sibling for sample in paired.samples if sample.pair == 0] == [0, 2]


def test_equal_scores_teach_nothing_at_any_sampling_temperature(folder, env, monkeypatch):
    (folder / "equal_scores.py").write_text(
        "def score(task, before, candidates):\n    return [0.5] * len(candidates)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    words = ["method=step_kd", "teacher=heuristic", "teacher.function=equal_scores:score", GROUP,
             "method.terms.distill.support=student_topk", "method.terms.distill.topk=8",
             "rollout.temperature=0.5", "eval.every=0", "run.max_steps=1"]  # fmt: skip
    with assembled(folder, env, *words, name="equal") as run:
        train(run)
    assert abs(logged(run, "loss/distill")[0]) < 1e-6
    assert logged(run, "teacher/kl")[0] < 1e-6


def test_a_hint_that_does_not_fit_the_model_is_an_error(folder, env):
    with assembled(folder, env, "method=rlsd", GROUP, name="long") as run:
        groups = run.method.source.groups(run.workshop, 1)
        run.policy.language_model.config.max_position_embeddings = 40
        with pytest.raises(ValueError, match=r"view teacher: with its hints task .* has"):
            judge(run, groups, 1)
