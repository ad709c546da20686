"""Frozen weights in few bits under adapters: what runs where bitsandbytes is, what is said else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from small_policies import small_policy

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.cli.main import main
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.huggingface import HuggingFacePolicy
from selfdistill_cli.policies.settings import HuggingFaceSettings, LoraSettings

INSTALLED = importlib.util.find_spec("bitsandbytes") is not None
BATCH = collate([demonstration_sample([9, 10, 11], [12, 13, 14, 15])])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    small_policy(hidden=64).save(path)
    return path


def settings(folder: Path, kind: str, rank: int = 4) -> HuggingFaceSettings:
    lora = LoraSettings(rank=rank, alpha=8.0, dropout=0.0, target_modules="all-linear")
    return HuggingFaceSettings(
        path=str(folder), init_from=None, dtype="float32", attn_implementation="sdpa",
        gradient_checkpointing=False, quantization=kind, chat_template=None, lora=lora,
    )  # fmt: skip


def gradients(policy) -> dict[str, torch.Tensor]:
    """Of the adapters, whose second factors are set away from 0 first."""
    with torch.no_grad():
        for name, parameter in sorted(policy.named_parameters()):
            if "lora_B" in name:
                seed = torch.Generator().manual_seed(len(name))
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=seed))
    policy.eval()
    with torch.no_grad():
        policy.score(BATCH, frozenset())  # sampling comes first, as in a step
    policy.train()
    policy.score(BATCH, frozenset()).logprobs.sum().backward()
    return {n: p.grad for n, p in policy.named_parameters() if p.requires_grad}


@pytest.mark.skipif(not INSTALLED, reason="needs bitsandbytes")
def test_gradients_pass_through_four_bits(folder: Path) -> None:
    """Equal to those of a model whose weights are the four-bit ones written out."""
    quantized = HuggingFacePolicy(settings(folder, "nf4"))
    plain = HuggingFacePolicy(settings(folder, "none"))
    torch.manual_seed(0)
    from bitsandbytes.functional import dequantize_4bit

    theirs = dict(quantized.named_modules())
    with torch.no_grad():
        for name, module in plain.named_modules():
            if name.endswith("base_layer"):
                weight = theirs[name].weight
                module.weight.copy_(dequantize_4bit(weight.data, weight.quant_state))
        for name, parameter in plain.named_parameters():
            if "lora_A" in name:
                parameter.copy_(dict(quantized.named_parameters())[name])
    found, expected = gradients(quantized), gradients(plain)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.skipif(not INSTALLED, reason="needs bitsandbytes")
def test_int8_runs(folder: Path) -> None:
    found = gradients(HuggingFacePolicy(settings(folder, "int8")))
    assert all(bool(value.abs().sum() > 0) for value in found.values())


def test_quantized_weights_cannot_be_trained_themselves(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.quantization: got nf4.*policy\.lora\.rank=16"):
        HuggingFacePolicy(settings(folder, "nf4", rank=0))


@pytest.mark.skipif(INSTALLED, reason="bitsandbytes is installed here")
@pytest.mark.parametrize(
    ("words", "key"),
    [(["policy=hf", "policy.lora.rank=4", "policy.quantization=nf4"], "policy.quantization=nf4"),
     (["optim=adamw_8bit"], "optim=adamw_8bit")],
)  # fmt: skip
def test_without_the_package_the_remedy_is_told(folder, tmp_path, capsys, words, key) -> None:
    if words[0] == "policy=hf":
        words = [*words, f"policy.path={folder}"]
    code = main([
        "train", f"run.root={tmp_path}", "tracker=none", "method=grpo", "run.max_steps=1",
        "eval.every=0", "batch.tasks_per_step=2", "env.sandbox.workers=1", *words,
    ])  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert key in said
    for part in ("bitsandbytes", "device cpu", "selfdistill[quant]"):
        assert part in said
    assert "Traceback" not in said
