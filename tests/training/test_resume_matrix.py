"""`selfdistill verify-resume` finds no differing byte, whatever a run is made of."""

from __future__ import annotations

import pytest
from running import run

from selfdistill_cli.policies.huggingface import shipped_tiny

SMALL = [
    "run.num_threads=1", "batch.tasks_per_step=4", "eval.every=2", "eval.num_tasks=4",
    "eval.samples_per_task=1", "env.sandbox.workers=1",
]  # fmt: skip
GROUPS = ["method.group_size=4"]
LORA = ["policy=hf", f"policy.path={shipped_tiny()}", "policy.lora.rank=4", "optim.lr=1e-2"]
RANKS = ["launcher=local", "launcher.num_processes=2"]
BUFFER = ["batch.epochs=2", "batch.mini_batches=3"]
RUNS = {
    "sft": ["method=sft"],
    "grpo": ["method=grpo", *GROUPS],
    "gear": ["method=gear", *GROUPS],
    "sspo": ["method=sspo", *GROUPS],
    "ppo_several_updates": ["method=ppo", *GROUPS, *BUFFER],
    "replay": ["method=step_kd", "method/source=replay", *GROUPS, *BUFFER],
    "pid": ["method=bidirectional", *GROUPS],
    "lora_ema": ["method=step_kd", *GROUPS, *LORA],
    "lora_products": [
        "method=step_kd", *GROUPS, *LORA, "method.sync.lora_average=product",
    ],
    "zero1": ["method=step_kd", "zero=zero1", *GROUPS, *RANKS],
    "zero2": ["method=step_kd", "zero=zero2", *GROUPS, *RANKS],
    "zero3": ["method=step_kd", "zero=zero3", *GROUPS, *RANKS],
    "zero3_lora": ["method=bidirectional", "zero=zero3", *GROUPS, *RANKS, *LORA],
    "background": ["method=step_kd", "checkpoint.background=true", *GROUPS, *LORA],
    "background_zero3": [
        "method=step_kd", "checkpoint.background=true", "zero=zero3", *GROUPS, *RANKS,
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_every_continued_run_equals_the_straight_one(tmp_path, name):
    said = run(tmp_path, "verify-resume", "steps=4", *RUNS[name], *SMALL, timeout=800)
    assert "3 of 3 continued runs equal the straight one, byte for byte" in said
