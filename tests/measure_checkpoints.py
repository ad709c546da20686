"""What a checkpoint costs: python tests/measure_checkpoints.py

Seconds that training stands still for a save, at once and in the background, in turns; the size of
a checkpoint of all weights and of adapters alone. The models have random weights.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from small_policies import small_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny
from selfdistill_cli.policies.lora import add_adapter
from selfdistill_cli.policies.settings import LoraSettings
from selfdistill_cli.training.background import Writer
from selfdistill_cli.training.checkpoints import POLICY, Checkpoints
from selfdistill_cli.training.disk_budget import folder_bytes
from selfdistill_cli.training.settings import CheckpointSettings

ROUNDS = 5


def big_policy(rank: int = 0) -> CausalPolicy:
    """Some 57 million parameters, with adapters on all linear layers if `rank` is above 0."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(small_tokenizer()), hidden_size=768, num_hidden_layers=8,
        num_attention_heads=12, num_key_value_heads=4, intermediate_size=2304,
        eos_token_id=small_tokenizer().eos_token_id, pad_token_id=0,
    )  # fmt: skip
    model: Any = Qwen2ForCausalLM(config)
    if rank:
        lora = LoraSettings(rank=rank, alpha=32.0, dropout=0.0, target_modules="all-linear")
        model = add_adapter(model, lora)
    return CausalPolicy(model, TemplateChat(small_tokenizer()))


def state_after_an_update(policy: CausalPolicy) -> dict[str, Any]:
    """The optimizer's state: two numbers for every trained one."""
    trained = [p for p in policy.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(trained, lr=1e-6)
    optimizer.step()
    return {"engine": {"optimizer": optimizer.state_dict()}}


def measured(name: str, policy: CausalPolicy) -> None:
    """Print blocked seconds of both ways, in turns, and the size."""
    state = state_after_an_update(policy)
    blocked: dict[bool, list[float]] = {False: [], True: []}
    whole: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        size = 0
        for number in range(1, ROUNDS + 1):
            for background in (False, True):
                settings = CheckpointSettings(
                    every=1, keep=1, best_metric="eval/success", background=background
                )
                root = Path(folder) / str(background)
                root.mkdir(exist_ok=True)
                writer = Writer(Checkpoints(root, settings), policy.save, background)
                begun = time.perf_counter()
                writer.save(number, {POLICY: policy.held()}, state, number)
                blocked[background].append(time.perf_counter() - begun)
                writer.wait()
                if background:
                    whole.append(time.perf_counter() - begun)
                size = folder_bytes(root / f"step_{number:06d}")
    at_once, behind, done = map(statistics.median, (blocked[False], blocked[True], whole))
    parameters = sum(p.numel() for p in policy.parameters()) / 1e6
    print(
        f"{name:<22} {parameters:7.1f} M parameters  {size / 2**20:8.1f} MiB  blocked: at once "
        f"{at_once:.3f} s, background {behind:.3f} s (written after {done:.3f} s)",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    measured("tiny", load_policy(shipped_tiny()))
    measured("big, all weights", big_policy())
    measured("big, LoRA rank 16", big_policy(rank=16))
