"""What DeepSpeed divides is saved whole: a run goes on exactly; adapters are all that is kept."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import running
import torch
from job import train
from running import numbers
from safetensors.torch import load_file
from small_policies import small_policy
from starting import CHECKOUT, run_job
from test_equal_ranks import QUIET, assert_equal_runs, episodes, learned, words_of

from selfdistill_cli.core.errors import CheckpointError
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.training.world import World

__all__ = ("episodes",)

ADAMW = ("optim=adamw", "optim.lr=1e-3", "optim.warmup_steps=0")
STAGES = ("zero2", "zero3")
HF = ("policy=hf", f"policy.path={shipped_tiny()}")
LORA = (*HF, "policy.lora.rank=4")


def state_of(folder: Path, name: str) -> dict:
    """What the newest checkpoint holds besides weights."""
    latest = (folder / "runs" / name / "checkpoints/latest").resolve()
    return torch.load(latest / "training_state.pt", weights_only=True)


def assert_identical(left, right) -> None:
    """Nested containers of tensors are equal, bit for bit."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_identical(left[key], right[key])
    elif isinstance(left, list | tuple):
        for a, b in zip(left, right, strict=True):
            assert_identical(a, b)
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    else:
        assert left == right


WIDE = pytest.param(["zero2", "zero3"], "float32", marks=pytest.mark.slow)
OTHERS = pytest.param(
    ["zero1", "zero2_offload", "zero3_offload"], "float32", marks=pytest.mark.slow
)
NARROW = pytest.param(["zero1", "zero2", "zero3"], "bfloat16", marks=pytest.mark.slow)


@pytest.mark.parametrize(("stages", "dtype"), [WIDE, OTHERS, NARROW])
def test_resumed_run_is_the_straight_one(tmp_path: Path, episodes: Path, stages, dtype) -> None:
    runs = []
    for zero in stages:
        more = (f"zero={zero}", *ADAMW, *HF, f"policy.dtype={dtype}")
        more += ("policy.gradient_checkpointing=true",) if dtype == "bfloat16" else ()
        for name, steps in (("straight", 4), ("resumed", 2), ("resumed", 4)):
            last = f"run.max_steps={steps}"
            runs.append(words_of("step_kd", episodes, tmp_path, f"{zero}_{name}", *more, last))
    run_job(tmp_path, 2, runs)
    for zero in stages:
        straight, resumed = f"{zero}_straight", f"{zero}_resumed"
        assert numbers(tmp_path / "runs" / straight) == numbers(tmp_path / "runs" / resumed)
        assert_identical(learned(tmp_path, straight), learned(tmp_path, resumed))
        assert_identical(state_of(tmp_path, straight), state_of(tmp_path, resumed))
        kept = state_of(tmp_path, straight)["engine"]
        states = kept["optimizer"]["state"].values()
        assert all(float(state["exp_avg_sq"].sum()) > 0 for state in states)
        # Steps that bfloat16 cannot hold are in the master weights.
        assert ("master" in kept) == (dtype == "bfloat16")


@pytest.mark.slow
def test_another_stage_and_another_number_of_ranks_go_on(tmp_path: Path, episodes: Path) -> None:
    momentum = ("optim.momentum=0.9", "optim.lr=0.03", "resume.allow=[zero.*]")

    def words(name: str, zero: str, steps: int) -> list[str]:
        more = (f"zero={zero}", *momentum, f"run.max_steps={steps}")
        return words_of("step_kd", episodes, tmp_path, name, *more)

    train(words("straight", "off", 6), World())
    train(words("off_zero3", "off", 2), World())
    stages = ["zero1", "zero2", "zero3"]
    first = [words(f"{zero}_off", zero, 2) for zero in stages]
    run_job(tmp_path, 2, [*first, words("off_zero3", "zero3", 4), words("zero2_zero3", "zero2", 2),
                          words("zero2_zero3", "zero3", 6)])  # fmt: skip
    for zero in stages:
        train(words(f"{zero}_off", "off", 6), World())
    run_job(tmp_path, 3, [words("off_zero3", "zero3", 6)])
    for name in (*(f"{zero}_off" for zero in stages), "off_zero3", "zero2_zero3"):
        assert_equal_runs(tmp_path, "straight", name)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("bitsandbytes"), reason="needs bitsandbytes")
def test_moments_in_eight_bits_go_on_exactly(tmp_path: Path, episodes: Path) -> None:
    runs = []
    for zero in STAGES:
        more = (f"zero={zero}", "optim=adamw_8bit", "optim.lr=1e-3", "optim.warmup_steps=0")
        for name, steps in (("straight", 4), ("resumed", 2), ("resumed", 4)):
            last = f"run.max_steps={steps}"
            runs.append(words_of("grpo", episodes, tmp_path, f"{zero}_{name}", *more, last))
    run_job(tmp_path, 2, runs)
    for zero in STAGES:
        straight, resumed = f"{zero}_straight", f"{zero}_resumed"
        assert_identical(learned(tmp_path, straight), learned(tmp_path, resumed))
        assert_identical(state_of(tmp_path, straight), state_of(tmp_path, resumed))
        assert len(state_of(tmp_path, straight)["engine"]["optimizer"]["state"]["ranks"]) == 2
    undivided = [*runs[0], "zero=off", "resume.allow=[zero.*]", "run.max_steps=5"]
    with pytest.raises(CheckpointError, match="made on 2 ranks and is read with zero=off"):
        train(undivided, World())


def test_adapters_are_all_that_is_trained_and_saved(tmp_path: Path, episodes: Path) -> None:
    train(words_of("step_kd", episodes, tmp_path, "one", *LORA), World())
    stages = ("off", "zero2", "zero3")
    runs = []
    for zero in stages:
        more = (*LORA, f"zero={zero}")
        runs += [
            words_of("step_kd", episodes, tmp_path, zero, *more),
            words_of("step_kd", episodes, tmp_path, f"{zero}_resumed", *more, "run.max_steps=2"),
            words_of("step_kd", episodes, tmp_path, f"{zero}_resumed", *more),
        ]
    run_job(tmp_path, 2, runs)
    adapters = {k for k in learned(tmp_path, "one") if k.startswith("adapter_model")}
    for zero in stages:
        assert_equal_runs(tmp_path, "one", zero)
        assert_identical(learned(tmp_path, zero), learned(tmp_path, f"{zero}_resumed"))
        assert_identical(state_of(tmp_path, zero), state_of(tmp_path, f"{zero}_resumed"))
        groups = state_of(tmp_path, zero)["engine"]["optimizer"]["param_groups"]
        assert sum(len(group["params"]) for group in groups) == len(adapters) + 2  # the critic's
        latest = (tmp_path / "runs" / zero / "checkpoints/latest").resolve()
        assert not (latest / "policy/model.safetensors").exists()
        teacher = load_file(latest / "teacher/adapter_model.safetensors")
        student = load_file(latest / "policy/adapter_model.safetensors")
        factor = next(key for key in teacher if "lora_B" in key)
        assert teacher[factor].abs().max() > 1e-5  # it began at zero
        assert not torch.equal(teacher[factor], student[factor])


@pytest.mark.slow
def test_one_process_is_divided_among_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    words = ["train", "method=grpo", *running.SMALL, "eval.every=0", "run.max_steps=1"]
    for zero in ("off", "zero3"):
        running.run(tmp_path, *words, f"run.name={zero}", f"zero={zero}")
    assert_equal_runs(tmp_path, "off", "zero3")


@pytest.mark.slow
def test_models_of_other_families_are_divided(tmp_path: Path) -> None:
    """An unembedding of its own (Qwen2), and biases and transposed matrices (GPT-2)."""
    runs = []
    for family in ("qwen2", "gpt2"):
        small_policy(family).save(tmp_path / family)
        words = [
            "method=sft", "policy=hf", f"policy.path={tmp_path / family}", "optim=sgd",
            "optim.lr=0.1", "optim.warmup_steps=0", "run.max_steps=3", "batch.tasks_per_step=6",
            "batch.micro_batch_rows=2", f"run.root={tmp_path / 'runs'}", *QUIET,
        ]  # fmt: skip
        train([*words, f"run.name={family}_one"], World())
        runs += [[*words, f"run.name={family}_{zero}", f"zero={zero}"] for zero in STAGES]
    run_job(tmp_path, 2, runs)
    for family in ("qwen2", "gpt2"):
        before = load_file(tmp_path / family / "model.safetensors")
        after = learned(tmp_path, f"{family}_one")
        gaps = [(v - after[f"model.safetensors {k}"]).abs().max() for k, v in before.items()]
        assert max(gaps) > 1e-3
        for zero in STAGES:
            assert_equal_runs(tmp_path, f"{family}_one", f"{family}_{zero}")
