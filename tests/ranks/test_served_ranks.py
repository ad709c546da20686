"""Two ranks that sample from one server: rank 0 publishes, both play their own tasks."""

from __future__ import annotations

from pathlib import Path

import torch
from running import numbers
from serving import serving
from starting import run_job

from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny

WORDS = [
    "method=grpo", "batch.tasks_per_step=4", "method.group_size=2", "run.num_threads=1",
    "tracker=none", "env.sandbox.workers=1", "eval.every=0", "run.max_steps=2",
    "run.trajectories_every=0", "rollout=vllm", "rollout.max_new_tokens=16", "rollout.wait_s=1",
    "rollout.retries=0", "optim.lr=0.01", "optim.warmup_steps=0", "zero=zero3",
]  # fmt: skip


def test_two_ranks_share_a_server(tmp_path: Path) -> None:
    with serving(load_policy(shipped_tiny())) as server:
        words = [*WORDS, f"run.root={tmp_path / 'runs'}", "run.name=two"]
        run_job(tmp_path, 2, [[*words, f"rollout.url={server.url}"]])
        assert server.count("/collective_rpc") == 1 + 2  # by one rank, at the start and after steps
        asked = [body for path, body in server.seen if path == "/v1/completions" and "seed" in body]
        assert len({body["seed"] for body in asked}) == len(asked) == 2 * 8
        theirs = server.policy.backbone.state_dict()
    lines = numbers(tmp_path / "runs/two")
    assert [line["rollout/episodes"] for line in lines] == [8, 8]
    assert max(line["rollout/gap_max"] for line in lines) < 1e-3
    last = load_policy((tmp_path / "runs/two/checkpoints/latest").resolve() / "policy")
    for name, value in last.backbone.state_dict().items():
        assert torch.equal(value, theirs[name]), name
