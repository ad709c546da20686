"""Rules across parts: each one fires on its mistake, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from selfdistill_cli.config import catalog, rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.config.sweeps import check_sweep
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.settings import Settings


def violations(*words: str) -> list[str]:
    return rules.violations(compose(words).settings)


METHODS = catalog.options([catalog.shipped_dir()], "method")
TAUGHT = {"bidirectional", "gear_paper", "gkd", "opsd", "rlsd", "sdar", "sdpo", "sspo", "step_kd",
          "step_kd_free"}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("teacher", [None, "hinted", "frozen"])
def test_shipped_recipes_break_no_rule(method: str, teacher: str | None) -> None:
    words = [] if teacher is None else [f"teacher={teacher}"]
    assert violations(f"method={method}", *words) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_that_reads_a_teacher_asks_for_one(method: str) -> None:
    found = violations(f"method={method}", "teacher=none")
    assert bool(found) == (method in TAUGHT)
    assert all("got 'teacher', but teacher=none" in message for message in found)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run.trajectories_every=-1"], "run.trajectories_every: got -1, expected at least 0"),
        (["batch.tasks_per_step=0"], "batch.tasks_per_step: got 0, expected at least 1"),
        (["method.group_size=10000000"], "method.group_size: got 10000000, expected at most"),
        (["checkpoint.best_metric=loss/total"], "checkpoint.best_metric: got 'loss/total', exp"),
        (["eval.panel=validaton"], "eval.panel: got 'validaton', expected one of"),
        (["method.source.split=foo"], "method.source.split: got 'foo', expected one of"),
        (
            ["env.attempts=2"],
            "env.attempts: got 2, but rollout.max_turns=1 ends an episode before; "
            "use rollout.max_turns=2, or env.attempts=1",
        ),
        (
            ["env.attempts=8", "rollout.max_turns=8"],
            "env.attempts: got 8, but 8 answers of rollout"
            ".max_new_tokens=64 and what is said between them do not fit into rollout",
        ),
        (["env.data=humanevl"], "env.data: got 'humanevl', no such file; expected a .jsonl or "),
        (["env.data=/nowhere.jsonl"], "env.data: got '/nowhere.jsonl', no such file"),
        (["env.data=/"], "env.data: got '/', is a folder"),
        (["policy.path=/nowhere"], "policy.path: got '/nowhere', nothing is there"),
        (["policy.init_from=/nowhere:best"], "policy.init_from: got '/nowhere:best', nothing"),
        (["teacher=frozen", "teacher.path=/nowhere"], "teacher.path: got '/nowhere', nothing"),
        (
            ["method.views.reference.path=/nowhere"],
            "method.views.reference.path: got '/nowhere', nothing is there",
        ),
        (["run.name=../elsewhere"], "run.name: got '../elsewhere', expected letters, digits"),
        (["run.name=.hidden"], "run.name: got '.hidden'"),
        (["method.group_size=1"], "method.group_size: got 1, but method.advantage compares"),
        (
            ["method=ppo", "method.group_size=1", "method.drop_flat_groups=true"],
            "method.drop_flat_groups: got true with method.group_size=1",
        ),
        (["rollout.temperature=0"], "rollout.temperature: got 0, but greedy siblings are all"),
        (
            ["method=grpo", "method/advantage=gae"],
            "method.advantage: GeneralizedAdvantageSettings needs the critic, which the term",
        ),
        (
            ["method.credit.v_orig=critic"],
            "method.credit.v_orig: 'critic' needs the critic, which the term `value` trains",
        ),
        (
            ["method=sspo", "method/sync=none"],
            "teacher.weights: got 'slow_copy', but method/sync=none keeps none",
        ),
        (
            ["method=step_kd", "method/sync=gated", "eval.every=0"],
            "method.sync: the gate compares evaluations, but eval.every=0 makes none",
        ),
        (
            ["method=bidirectional", "method.sync.scope=head"],
            "method.sync.save_every: got 50, but with method.sync.scope=head the copy is not",
        ),
        (
            ["method=online_dpo", "method/advantage=none"],
            "method.terms.pairwise: compares the best sibling with the worst, but",
        ),
        (
            ["method.terms.policy_gradient.loss_type=gspo"],
            "method.terms.policy_gradient.loss_type: got 'gspo', whose gradient averages",
        ),
        (
            ["method=rlsd", "method/coefficient@method.credit.ramp=pid"],
            "method.credit.ramp: got a controller, which follows its own loss term",
        ),
        (
            ["method=step_kd", "method/source=replay", "method.old_logprobs=recomputed"],
            "method.old_logprobs: got 'recomputed', which would forget the policy that sampled",
        ),
        (
            ["method=gkd", "method.terms.distill.importance_clip=2.0"],
            "method.terms.distill.importance_clip: got 2.0, but method.source gives",
        ),
        (["method=ppo", "method/source=mixed"], "method.source: demonstrations have no reward, so"),
        (["method=grpo", "method/advantage=none"], "method.terms.policy_gradient: a policy"),
        (["method=grpo", "method/terms=cross_entropy"], "method.terms.cross_entropy: imitates"),
        (["method=rlsd", "teacher.path=runs"], "teacher.path: got 'runs', but teacher.w"),
        (
            ["method=step_kd", "method.terms.distill.support=sampled"],
            "method.terms.distill.direction: got 'forward', but support=sampled estimates",
        ),
        (
            ["method=sdar", "+method/coefficient@method.terms.gated.coefficient=pid"],
            "method.terms.gated.coefficient: got a controller, which keeps a KL",
        ),
        (
            ["method=step_kd", "method.sync.rollback_kl=1.0", "eval.every=0"],
            "method.sync.rollback_kl: goes back to the copy of the best evaluation",
        ),
        (
            ["method=grpo", "method/source=replay", "method.source.max_rounds=3"],
            "method.source.max_rounds: got 3, which only method/source=play reads",
        ),
        (["method=bcsd", "method.credit.pruned=prune"], "method.credit.pruned: got 'prune'"),
        (["method=grpo", "method/source=dataset"], "method.source: demonstrations have no reward"),
        (
            ["method.terms.policy_gradient.coefficient=0"],
            "method.terms: every coefficient is 0, so there is nothing to minimise",
        ),
        (
            ["method.terms.reference_kl.coefficient=1", "method.terms.reference_kl.view=teacher"],
            "method.terms.reference_kl.view: got 'teacher', but teacher=none; choose",
        ),
        (
            ["method.terms.reference_kl.coefficient=1", "method.terms.reference_kl.view=referenc"],
            "method.terms.reference_kl.view: got 'referenc', expected one of reference; did you "
            "mean 'reference'?",
        ),
        (["rollout.max_new_tokens=512"], "rollout.max_new_tokens: got 512, which leaves no room"),
    ],
)
def test_a_violation_names_the_key_and_the_remedy(words: list[str], expected: str) -> None:
    found = violations(*words)
    assert len(found) == 1
    assert found[0].startswith(expected)


class PlainEnv:
    """What the rule about hints asks of an environment's class."""

    hints = frozenset({"feedback", "answer"})


@dataclass(frozen=True, kw_only=True)
class PlainSettings(Settings):
    """Settings of an environment that gives two hints."""

    implementation: ClassVar[str] = f"{__name__}:PlainEnv"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["teacher=hinted", "teacher.hints=[skill]"],
            "teacher.hints: the environment cannot give the hint 'skill'; it gives: answer, "
            "feedback",
        ),
        (["eval.hints=[evidence]"], "eval.hints: the environment cannot give the hint 'evidence'"),
        (
            ["method=sft", "method.source.hints.pruned=0.5"],
            "method.source.hints: the environment cannot give the hint 'pruned'",
        ),
    ],
)
def test_a_hint_that_the_environment_cannot_give(words: list[str], expected: str) -> None:
    settings = compose(words).settings
    assert rules.violations(settings) == []
    found = rules.violations(replace(settings, env=PlainSettings()))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_term_with_coefficient_zero_needs_no_view() -> None:
    assert violations("method.terms.reference_kl.view=nothing") == []


def test_all_violations_are_raised_together() -> None:
    settings = compose(["checkpoint.keep=0", "method.group_size=1"]).settings
    with pytest.raises(ConfigError) as caught:
        rules.check(settings)
    assert len(str(caught.value).splitlines()) == 2


def test_a_sweep_is_checked_before_its_first_run() -> None:
    with pytest.raises(ConfigError, match=r"in the run method=gear method\.group_size=1:\nmethod"):
        check_sweep(["method=grpo", "method=gear", "method.group_size=8,1"], None, "train")
    with pytest.raises(ConfigError, match=r"run\.name: 'x' would be the name of two runs"):
        check_sweep(["run.name=x", "seed=0,1"], None, "train")
    kept = check_sweep(["method=grpo", "method=gear", "seed=0,1"], None, "train")
    assert kept == ["method=gear", "seed=0,1"]
