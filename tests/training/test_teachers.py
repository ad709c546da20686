"""Whose weights a view is scored under: runs, skills, adapters, other models; and wrong ones."""

from __future__ import annotations

import pytest
import torch
from assembled import assembled, environment
from running import numbers
from safetensors.torch import load_file
from small_policies import small_policy

from selfdistill_cli.cli.main import main
from selfdistill_cli.policies.huggingface import TinyPolicy, load_policy, shipped_tiny
from selfdistill_cli.policies.settings import TinySettings
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import train

GROUP = "method.group_size=4"
STEPS = "run.max_steps=2"
LORA = ("policy=hf", f"policy.path={shipped_tiny()}", "policy.lora.rank=4", "optim.lr=1e-2")
NARROW = TinySettings(
    path=str(shipped_tiny()), init_from=None, from_scratch=True, hidden_size=48, num_layers=2,
    num_heads=4, intermediate_size=64, max_length=1024, weights_seed=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs of this module lie; its name is the root of their names."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def env(folder):
    """The code environment, started once."""
    with environment(folder) as env:
        yield env


@pytest.fixture(scope="module")
def taught(folder, env):
    """A finished run of a method that keeps a slow copy and saves skills."""
    words = (
        "method=bidirectional", GROUP, STEPS, "method.sync.save_every=1", "eval.every=1",
        "eval.num_tasks=4", "eval.samples_per_task=1", "optim.lr=1e-3", "method.sync.decay=0.5",
    )  # fmt: skip
    with assembled(folder, env, *words, name="taught") as run:
        train(run)
    return folder / "taught"


@pytest.fixture(scope="module")
def adapters(folder, env):
    """A finished run that trained adapters."""
    with assembled(folder, env, *LORA, "method=grpo", GROUP, STEPS, name="adapters") as run:
        train(run)
    return folder / "adapters"


@pytest.fixture
def refused(folder, env, capsys):
    """Give a command line that is wrong; return what is said, which is no traceback."""

    def call(*words: str) -> str:
        code = main([
            "train", f"run.root={folder}", "run.name=refused", "tracker=none", GROUP, STEPS,
            "eval.every=0", "batch.tasks_per_step=2", "resume.allow=['*']", *words,
        ])  # fmt: skip
        said = capsys.readouterr()
        assert code == 2, said.out + said.err
        assert "Traceback" not in said.err
        return said.err

    return call


def weights(path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def student(run) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in run.policy.backbone.named_parameters()}


def equal(a, b) -> bool:
    return all(bool((a[name] == b[name]).all()) for name in a.keys() & b.keys())


def test_skills_are_policies_and_starts(folder, env, taught):
    skills = sorted(path.name for path in (taught / "skills").iterdir())
    assert skills == ["teacher_skill_step_000001", "teacher_skill_step_000002"]
    skill = taught / "skills" / skills[-1]
    assert equal(weights(skill), weights(taught / "checkpoints/step_000002/teacher"))
    assert not equal(weights(skill), weights(taught / "checkpoints/step_000002/policy"))
    assert not equal(weights(skill), weights(taught / "skills" / skills[0]))
    load_policy(skill)
    for key in ("policy.path", "policy.init_from"):
        name = key.replace(".", "_")
        with assembled(folder, env, "method=grpo", GROUP, f"{key}={skill}", name=name) as run:
            assert equal(student(run), weights(skill))


@pytest.mark.parametrize(
    ("which", "saved"),
    [("teacher", "step_000002/teacher"), ("latest", "step_000002/policy"), ("best", "best/policy"),
     ("1", "step_000001/policy")],
)  # fmt: skip
def test_a_run_starts_from_another_ones_weights(folder, env, taught, which, saved):
    words = ["method=grpo", GROUP, f"policy.init_from=taught:{which}"]
    with assembled(folder, env, *words, name=f"from_{which}") as run:
        assert equal(student(run), weights(taught / "checkpoints" / saved))


def test_a_trained_baseline_teaches(folder, env, taught):
    words = ["method=opsd", GROUP, "teacher.path=taught:best", "teacher.hints=[]"]
    with assembled(folder, env, *words, STEPS, name="baseline") as run:
        other = dict(run.scorers["teacher"].policy.backbone.named_parameters())
        assert equal(other, weights(taught / "checkpoints/best/policy"))
        train(run)
        assert equal(other, weights(taught / "checkpoints/best/policy")), "it never changes"
    assert numbers(folder / "baseline")[0]["teacher/kl"] > 0


def test_a_slow_copy_may_start_from_a_trained_baseline(folder, env, taught):
    words = ["method=step_kd", GROUP, "teacher.path=taught:latest"]
    with assembled(folder, env, *words, name="slow_start") as run:
        assert equal(run.slow_copy.slow, weights(taught / "checkpoints/latest/policy"))
        assert equal(student(run), weights(shipped_tiny())), "the student starts from its own"


def test_a_lighter_teacher_scores_and_stays_frozen(folder, env):
    TinyPolicy(NARROW).save(folder / "narrow")
    words = ["method=opsd", GROUP, STEPS, f"teacher.path={folder / 'narrow'}"]
    with assembled(folder, env, *words, name="lighter") as run:
        train(run)
    lines = numbers(folder / "lighter")
    assert all(line["teacher/kl"] > 0.1 for line in lines)
    assert all(line["loss/distill"] > 0.01 for line in lines)


def test_wrong_teachers_are_explained(folder, refused, taught, adapters):
    TinyPolicy(NARROW).save(folder / "narrow")
    small_policy().save(folder / "foreign")
    said = refused("method=opsd", f"teacher.path={folder / 'foreign'}")
    assert "teacher.path" in said
    assert "tokenizer differs" in said
    said = refused("method=step_kd", f"teacher.path={folder / 'narrow'}")
    assert "teacher.path" in said
    assert "teacher.weights=frozen" in said
    said = refused("method=opsd", "teacher.path=nobody:best")
    assert "'nobody' is no run" in said
    said = refused("method=opsd", "teacher.path=taught:7")
    assert "steps: 1, 2" in said
    said = refused("method=grpo", "policy.init_from=adapters:teacher")
    assert "policy.init_from=adapters:teacher" in said
    assert "has no teacher" in said


def test_hidden_states_that_cannot_be_matched_are_explained(folder, refused):
    TinyPolicy(NARROW).save(folder / "narrow")
    match = (
        "method=step_kd", "method/terms=bidirectional", "method.terms.hidden_match.coefficient=0.1"
    )  # fmt: skip
    frozen = ("teacher=frozen", "method/sync=none", "method.evaluate_teacher=false")
    said = refused(*match, *frozen, f"teacher.path={folder / 'narrow'}")
    assert "method.terms.hidden_match" in said
    assert "48 wide" in said
    said = refused(*match, "method.terms.hidden_match.layers=[7]")
    assert "method.terms.hidden_match.layers: got 7, expected indices from -5 to 4" in said


def test_a_slow_head_needs_a_head_that_is_trained(refused):
    said = refused("method=step_kd", "method.sync.scope=head", *LORA)
    assert "method.sync.scope: got head" in said


def test_the_reference_of_a_run_from_an_adapter_is_that_adapter(folder, env, adapters):
    words = [*LORA, "method=grpo", GROUP, "run.max_steps=1", "teacher=frozen"]
    with assembled(folder, env, *words, "policy.init_from=adapters:latest", name="on") as run:
        groups = run.method.source.groups(run.workshop, 1)
        judged = judge(run, groups, 1)
        assert judged.metrics["teacher/kl"] < 1e-9
        with run.policy.backbone.disable_adapter():
            base = judge(run, groups, 1)
        assert base.metrics["teacher/kl"] > 1e-6, "the base model is another policy"


def test_adapters_teach_a_student_on_the_same_base(folder, env, refused, adapters):
    words = [*LORA, "method=opsd", GROUP, "run.max_steps=1", "teacher.hints=[]"]
    with assembled(folder, env, *words, "teacher.path=adapters:latest", name="taught_by") as run:
        train(run)
    assert numbers(folder / "taught_by")[0]["teacher/kl"] > 1e-6
    said = refused("method=opsd", "teacher.path=adapters:latest")
    assert "teacher.path" in said


@pytest.mark.parametrize(
    "words",
    [["method.sync.lora_average=factors", *LORA], ["method.sync.lora_average=product", *LORA],
     ["method.sync.scope=head"]],
    ids=["factors", "product", "head"],
)  # fmt: skip
def test_every_kind_of_copy_resumes_exactly(folder, env, words, request):
    name = request.node.callspec.id
    words = [
        "method=step_kd", GROUP, "method.sync.decay=0.5", *words, "eval.every=1",
        "eval.num_tasks=4", "eval.samples_per_task=1",
    ]  # fmt: skip
    with assembled(folder, env, *words, "run.max_steps=3", name=f"{name}_straight") as run:
        train(run)
        expected = {n: value.clone() for n, value in run.slow_copy.slow.items()}
    for steps in (2, 3):
        more = f"run.max_steps={steps}"
        with assembled(folder, env, *words, more, name=f"{name}_parts") as run:
            train(run)
    assert numbers(folder / f"{name}_parts") == numbers(folder / f"{name}_straight")
    assert equal(run.slow_copy.slow, expected)
    last = numbers(folder / f"{name}_straight")[-1]
    assert last["teacher/distance"] > 0
    assert last["loss/distill"] > 0


def test_student_dropout_and_random_stream_are_untouched_by_the_teacher(folder, env):
    with assembled(folder, env, "method=step_kd_free", GROUP, name="dropout") as run:
        groups = run.method.source.groups(run.workshop, 1)
        for module in run.policy.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.5
        run.policy.train()
        state = torch.get_rng_state()
        first = judge(run, groups, 1)
        assert all(module.training for module in run.policy.modules())
        assert (torch.get_rng_state() == state).all()
        again = judge(run, groups, 1)
    for group, other in zip(first.groups, again.groups, strict=True):
        for sample, twin in zip(group.samples, other.samples, strict=True):
            assert (sample.views["teacher"].logprobs == twin.views["teacher"].logprobs).all()

