"""A run's policy as a folder for other programs: it says there what it says here."""

from __future__ import annotations

import importlib.util

import pytest
from assembled import assembled, environment
from peft import PeftModel
from small_policies import small_policy
from transformers import AutoModelForCausalLM, AutoTokenizer

from selfdistill_cli.cli.main import main
from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import train

STEPS = ("method=step_kd", "method.group_size=4", "run.max_steps=2", "method.sync.decay=0.5")
HF = ("policy=hf", f"policy.path={shipped_tiny()}")
LORA = (*HF, "policy.lora.rank=4", "optim.lr=1e-2")
PROMPTS = ("Write a function f.", "def f(x):")
LENGTH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def env(folder):
    with environment(folder) as env:
        yield env


@pytest.fixture(scope="module")
def runs(folder, env):
    """Two finished runs, and what their students and slow copies say greedily."""
    said = {}
    for name, words in {"full": (), "lora": LORA}.items():
        with assembled(folder, env, *STEPS, *words, name=name) as run:
            train(run)
            said[name] = spoken(run)
            with run.slow_copy.in_place():
                said[f"{name}:teacher"] = spoken(run)
    return said


def spoken(run) -> list[list[int]]:
    """Greedy answers to the prompts, by the run's own rollout."""
    requests = [GenerationRequest(prompt_ids=ids, seed=0) for ids in prompts(run)]
    found = run.workshop.rollout.generate(requests, max_new_tokens=LENGTH, temperature=0.0)
    return [list(map(int, answer.action_ids)) for answer in found]


def prompts(run) -> list[list[int]]:
    return [run.policy.chat.prompt_ids([{"role": "user", "content": text}]) for text in PROMPTS]


def written(model, folder) -> list[list[int]]:
    """What transformers generates with a model and the tokenizer of a folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    out = []
    for text in PROMPTS:
        shown = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(
            shown, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        made = model.generate(**ids, max_new_tokens=LENGTH, do_sample=False)
        out.append(made[0, ids["input_ids"].shape[1] :].tolist())
    return out


@pytest.mark.parametrize("name", ["full", "full:teacher", "lora", "lora:teacher"])
def test_the_merged_folder_generates_the_same_tokens(folder, runs, tmp_path, name):
    run, _, which = name.partition(":")
    spec = f"{run}:{which or 'latest'}"
    assert main(["export", spec, str(tmp_path / "out"), f"root={folder}"]) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not [n for n, _ in model.named_parameters() if "lora" in n]
    assert written(model, tmp_path / "out") == runs[name]
    assert runs["lora"] != runs["full"], "the answers tell policies apart"


def test_the_adapter_folder_generates_the_same_tokens(folder, runs, tmp_path, capsys):
    words = ["export", "lora:latest", str(tmp_path / "out"), "format=adapter", f"root={folder}"]
    assert main(words) == 0
    base = AutoModelForCausalLM.from_pretrained(shipped_tiny())
    assert written(PeftModel.from_pretrained(base, tmp_path / "out"), tmp_path / "out") == (
        runs["lora"]
    )
    direct = AutoModelForCausalLM.from_pretrained(tmp_path / "out")  # its base is named in it
    assert written(direct, tmp_path / "out") == runs["lora"]
    assert main(words) == 2
    assert "OUT" in capsys.readouterr().err
    words[1:3] = ["full:latest", str(tmp_path / "other")]
    assert main(words) == 2
    assert "format=merged" in capsys.readouterr().err
    assert main(["export", "lora"]) == 2
    assert main(["export", "lora", "x", "format=merge"]) == 2
    assert "did you mean 'merged'?" in capsys.readouterr().err


def test_a_run_continues_an_exported_adapter(folder, env, runs, tmp_path):
    main(["export", "lora:latest", str(tmp_path / "a"), "format=adapter", f"root={folder}"])
    words = (*STEPS, *LORA, f"policy.init_from={tmp_path / 'a'}")
    with assembled(folder, env, *words, name="continued") as run:
        assert spoken(run) == runs["lora"]


@pytest.mark.parametrize(
    ("word", "part"),
    [("policy.lora.alpha=16", "policy.lora.alpha=32"), ("policy.lora.rank=8", "policy.lora.rank=4"),
     ("policy.lora.target_modules=[q_proj]", "down_proj")],
)  # fmt: skip
def test_an_adapter_of_other_settings_is_refused(folder, runs, capsys, word, part):
    code = main([
        "train", *STEPS, *LORA, word, "policy.init_from=lora:latest", f"run.root={folder}",
        "run.name=other", "tracker=none", "eval.every=0", "resume.allow=['*']",
    ])  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert "adapter" in said
    assert part in said


def test_the_base_is_not_the_initial_policy_of_a_run_from_an_adapter(folder, env, runs):
    words = [*LORA, "method=grpo", "method.group_size=4", "policy.init_from=lora:latest"]
    found = {}
    for weights in ("frozen", "base"):
        more = ["teacher=frozen", f"teacher.weights={weights}"]
        with assembled(folder, env, *words, *more, name=weights) as run:
            groups = run.method.source.groups(run.workshop, 1)
            before = spoken(run)
            found[weights] = judge(run, groups, 1).metrics["teacher/kl"]
            assert spoken(run) == before == runs["lora"], "scoring leaves the student alone"
            with run.policy.backbone.disable_adapter():
                off = spoken(run)
            if weights == "base":
                with run.scorers["teacher"].copy.in_place():
                    assert spoken(run) == off
    assert found["frozen"] < 1e-9
    assert found["base"] > 1e-6


def test_without_adapters_there_is_no_base(folder, capsys):
    code = main([
        "train", "method=grpo", "method.group_size=4", "teacher=frozen", "teacher.weights=base",
        f"run.root={folder}", "run.name=none", "tracker=none", "eval.every=0",
    ])  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert "teacher.weights: got base" in said
    assert "teacher.weights=frozen" in said


@pytest.mark.skipif(not importlib.util.find_spec("bitsandbytes"), reason="needs bitsandbytes")
def test_a_quantized_base_is_written_out(folder, env, tmp_path):
    small_policy(hidden=64).save(tmp_path / "model")
    words = [
        "policy=hf", f"policy.path={tmp_path / 'model'}", "policy.lora.rank=4", "optim.lr=1e-2",
        "policy.quantization=nf4", "rollout.max_new_tokens=16", "rollout.max_context_tokens=256",
        "env.sandbox.workers=1", "method=sft", "run.max_steps=2",
    ]  # fmt: skip
    with assembled(folder, env, *words, name="quantized") as run:
        train(run)
        said = spoken(run)
    assert main(["export", "quantized:latest", str(tmp_path / "out"), f"root={folder}"]) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert written(model, tmp_path / "out") == said
