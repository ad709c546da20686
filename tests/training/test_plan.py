"""What a plan says, beside what small runs allocate, byte for byte, and what they write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assembled import assembled, environment
from measured_memory import make_model, measured, planned

from selfdistill_cli.cli.main import main
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.planning.division import divisions

MODELS = {
    "llama": ("llama", {"hidden": 256, "layers": 6, "inner": 704, "vocabulary": 8192}),
    "wide": ("llama", {"hidden": 128, "layers": 3, "inner": 352, "vocabulary": 32000}),
    "qwen": ("qwen2", {"hidden": 256, "layers": 4, "inner": 704, "vocabulary": 8192}),
    "gpt2": ("gpt2", {"hidden": 256, "layers": 4, "inner": 1024, "vocabulary": 8192}),
}
BFLOAT, LORA = "policy.dtype=bfloat16", "policy.lora.rank=8"
CHECKPOINTING = "policy.gradient_checkpointing=true"
CASES = {
    "all weights": ("llama",),
    "checkpointing": ("llama", CHECKPOINTING),
    "large vocabulary": ("wide",),
    "bfloat16": ("llama", BFLOAT),
    "LoRA": ("llama", LORA),
    "LoRA, bfloat16": ("llama", LORA, BFLOAT),
    "LoRA, bfloat16, checkpointing": ("llama", LORA, BFLOAT, CHECKPOINTING),
    "slow copy, critic, divergence": ("llama", "method=step_kd"),
    "grouped queries, critic": ("qwen", "method=ppo"),
    "GPT-2": ("gpt2",),
    "SGD": ("llama", "optim=sgd"),
}
"""Eleven configurations: the model and further words."""
IN_DEFAULT_SUITE = ("large vocabulary", "LoRA, bfloat16, checkpointing")
STATIC = ("weights", "optimizer", "slow copy", "frozen teachers")
TOLERANCE = 0.15
"""Of a phase; static parts are exact."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    for name, (family, sizes) in MODELS.items():
        make_model(folder / name, family, **sizes)
    return folder


@pytest.fixture(scope="module")
def env(root):
    with environment(root) as env:
        yield env


def words_of(root: Path, case: str) -> list[str]:
    model, *more = CASES[case]
    base = ["method=grpo", "policy=hf", f"policy.path={root / model}"]
    return [*base, *more, "method.group_size=4"]


def marked(case: str):
    marks = () if case in IN_DEFAULT_SUITE else (pytest.mark.slow,)
    return pytest.param(case, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_a_plan_is_near_what_is_allocated(root, env, case) -> None:
    words = words_of(root, case)
    found = measured(root, env, *words, name=case.replace(" ", "_").replace(",", ""))
    memory = planned(root, *words).memories["off"]
    print(f"\n| {case} |", " | ".join(row(memory, found)), "|")  # for docs/performance.md
    for part in STATIC:
        assert memory.static.get(part, 0.0) == pytest.approx(found[part], rel=0.02), part
    for phase in ("learn", "update", "act"):
        planned_bytes = sum(memory.phases[phase].values())
        assert planned_bytes == pytest.approx(found[phase], rel=TOLERANCE), phase
    phases = ("learn", "update", "act")
    peak = sum(found[p] for p in STATIC) + max(found[p] for p in phases)
    expected = max(memory.of_phase(phase) for phase in phases)
    assert expected == pytest.approx(peak, rel=0.12)


def row(memory, found) -> list[str]:
    """Planned / measured in MB: all static parts, the phases, and the peak."""
    static = sum(memory.static.get(p, 0.0) for p in STATIC), sum(found[p] for p in STATIC)
    phases = {p: (sum(memory.phases[p].values()), found[p]) for p in ("learn", "update", "act")}
    planned_peak = static[0] + max(value[0] for value in phases.values())
    peak = planned_peak, static[1] + max(value[1] for value in phases.values())
    pairs = [static, *phases.values(), peak]
    return [f"{a / 1e6:.1f} / {b / 1e6:.1f}" for a, b in pairs] + [f"{peak[0] / peak[1]:.2f}"]


@pytest.mark.parametrize("adapters", [False, True], ids=["all weights", "LoRA"])
def test_checkpoints_are_as_large_as_planned(root, env, adapters) -> None:
    words = [*words_of(root, "slow copy, critic, divergence"), *([LORA] if adapters else [])]
    name = f"checkpoint_{adapters}"
    with assembled(root, env, *words, "run.max_steps=1", name=name) as run:
        train(run)
    folder = (root / name / "checkpoints" / "latest").resolve()
    tokenizer = {"tokenizer.json", "chat_template.jinja"}
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in tokenizer]
    size = sum(f.stat().st_size for f in files)
    assert planned(root, *words).checkpoint == pytest.approx(size, rel=0.05)


def test_zero_divides_what_the_paper_says() -> None:
    """arXiv 1910.02054, figure 1: 7.5 billion parameters on 64 GPUs take 120, 31.4, 16.6 and 1.9
    GB with Adam in mixed precision."""
    parameters, sizes = 7.5e9, {}
    for division in divisions(64):
        state = 12 * parameters / division.optimizer
        rest = 2 * parameters / division.gradients + 2 * parameters / division.weights
        sizes[division.name] = (state + rest) / 1e9
    assert sizes["off"] == pytest.approx(120)
    assert sizes["zero1"] == pytest.approx(31.4, abs=0.05)
    assert sizes["zero2"] == pytest.approx(16.6, abs=0.05)
    assert sizes["zero3"] == pytest.approx(1.9, abs=0.05)


CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560,
    "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def four_billion(tmp_path: Path) -> list[str]:
    """A folder with nothing but a config.json."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return ["policy=hf", f"policy.path={tmp_path}", "policy.dtype=bfloat16", "method=step_kd",
            CHECKPOINTING]  # fmt: skip


def plan(capsys, *words: str) -> tuple[int, dict]:
    code = main(["plan", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_model_that_is_not_here_is_planned(four_billion, capsys) -> None:
    many = [*four_billion, "plan.gpus=8", "plan.gpu_memory_gib=80"]
    code, found = plan(capsys, *many)
    assert found["shape"]["trained"] == pytest.approx(4.02e9, rel=0.01)
    peaks = {zero: memory["peak"] for zero, memory in found["memory"].items()}
    assert peaks["zero2"] < peaks["zero1"]
    assert peaks["zero3"] < peaks["zero1"]
    assert found["memory"]["zero2_offload"]["cpu"]["optimizer"] > 0
    assert code == (0 if found["memory"]["off"]["fits"] else 1)
    _, adapters = plan(capsys, *many, "policy.lora.rank=64")
    assert adapters["memory"]["off"]["peak"] < peaks["off"] / 2
    assert adapters["checkpoint_bytes"] < found["checkpoint_bytes"] / 15
    _, quantized = plan(capsys, *many, "policy.lora.rank=64", "policy.quantization=nf4")
    saved = adapters["memory"]["off"]["static"]["weights"]
    assert quantized["memory"]["off"]["static"]["weights"] < saved / 2
    assert main(["plan", *four_billion, "plan.gpu_memory_gib=8"]) == 1
    said = capsys.readouterr().out
    assert "zero=off does not fit" in said or "nothing fits" in said
    assert "<- the fullest phase" in said


def test_a_calibration_gives_the_time_of_its_own_step(root, env, capsys) -> None:
    words = ["method=grpo", "method.group_size=2", "run.max_steps=2"]
    with assembled(root, env, *words, name="calibrated") as run:
        train(run)
    same = [*words, f"run.root={root}", "batch.tasks_per_step=4", "plan.calibration=calibrated"]
    _, found = plan(capsys, *same)
    time = found["step_time"]
    assert time["seconds"] == pytest.approx(time["measured"])
    assert set(time["phases"]) == {"act", "judge", "learn"}
    _, double = plan(capsys, *same, "method.group_size=4", "plan.gpus=4")
    assert double["step_time"]["seconds"] == pytest.approx(time["seconds"] / 2)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["plan.gpu=8"], ["plan.gpu", "did you mean 'gpus'?"]),
        (["plan.gpus=0"], ["plan.gpus", "got 0"]),
        (["plan.calibration=nobody"], ["'nobody' is no run"]),
        (["policy=hf", f"policy.path={shipped_tiny() / '..'}"], ["no config.json"]),
        (["method=grop"], ["grop"]),
    ],
)
def test_mistakes_are_explained(words, parts, capsys) -> None:
    assert main(["plan", *words]) == ConfigError.exit_code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for part in parts:
        assert part in said
