"""vLLM itself, where it is installed: sampling, publishing, a teacher; measured, then bounded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollout.test_vllm_server import LIMITS, SERVED, generate, move, requests, with_adapters
from serving import table
from small_policies import small_policy

from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.needs import TopNeed
from selfdistill_cli.rollout.settings import VllmSettings
from selfdistill_cli.rollout.vllm_engine import VllmRollout
from selfdistill_cli.teachers.settings import ServedTeacherSettings
from selfdistill_cli.training.served import ServedScorer
from selfdistill_cli.training.world import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM (docs/vllm.md)"),
]
CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
CLOSE = 1e-3
"""Largest difference of a float32 log-probability. 4e-5 was measured on weights as drawn, 1.5e-4 on
moved ones, whose log-probabilities go down to -60."""


def policy_of(family: str) -> Any:
    """Small, with heads as wide as vLLM's attention on a CPU wants them."""
    return small_policy(family, hidden=128)


def largest_gap(policy: Any, rollout: Any, temperature: float) -> float:
    """Between the recorded log-probabilities and those of the trainer."""
    gaps: list[float] = []
    found = generate(rollout, policy, temperature)
    for request, one in zip(requests(policy), found, strict=True):
        ids = [*request.prompt_ids, *one.action_ids]
        rows = (table(policy, ids) / (temperature or 1.0)).log_softmax(-1)
        own = rows.gather(1, torch.tensor(ids)[:, None]).squeeze(1)[len(request.prompt_ids) :]
        gaps.append(float((own - torch.from_numpy(one.logprobs)).abs().max()))
    return max(gaps)


def check_publications(policy: Any, rollout: Any, temperature: float) -> None:
    """Sampled log-probabilities are the trainer's after every change of the weights."""
    torch.manual_seed(0)
    seen = []
    for version in range(3):
        rollout.load_weights(policy.weights(), version=version)
        gap = largest_gap(policy, rollout, temperature)
        print(f"publication {version}: largest gap {gap:.1e}")
        assert gap < CLOSE
        first, again = (generate(rollout, policy, temperature) for _ in range(2))
        assert [x.action_ids for x in first] == [x.action_ids for x in again]
        seen.append([x.action_ids for x in first])
        move(policy, 0.2)
    assert seen[0] != seen[1] != seen[2]


@pytest.mark.parametrize("kind", ["full", "tied", "adapters"])
def test_an_engine_in_the_process(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CPU.items():
        monkeypatch.setenv(name, value)
    policy = policy_of("llama" if kind == "tied" else "qwen2")
    if kind == "adapters":
        policy = with_adapters(policy)
    changes = {"temperature": 0.7, "enforce_eager": True, "url": None}
    rollout = VllmRollout(VllmSettings(**{**LIMITS, **SERVED, **changes}), policy, World())
    check_publications(policy, rollout, 0.7)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a small model, started as launch/vllm/serve.sh starts one."""
    folder = tmp_path_factory.mktemp("served")
    policy_of("qwen2").save(folder / "model")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    script = Path(__file__).parents[2] / "launch/vllm/serve.sh"
    own = {"PORT": str(port), "LORA_RANK": "4", "MAX_LEN": "256", "PYTHON": sys.executable,
           "DTYPE": "float32"}  # fmt: skip
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(
            ["bash", str(script), str(folder / "model"), "--enforce-eager"],
            env={**os.environ, **CPU, **own}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(60)


def served(address: str, policy: Any, **changes: Any) -> Any:
    given = {**LIMITS, **SERVED, "url": address, "wait_s": 240.0, "timeout_s": 60.0, **changes}
    return VllmRollout(VllmSettings(**given), policy, World())


def test_a_server_takes_adapters_then_all_weights_and_teaches(address: str) -> None:
    adapted = with_adapters(policy_of("qwen2"))
    check_publications(adapted, served(address, adapted, temperature=0.7), 0.7)
    policy = policy_of("qwen2")
    rollout = served(address, policy)
    check_publications(policy, rollout, 1.0)
    rollout.load_weights(policy.weights(), version=9)
    view = ServedTeacherSettings(
        weights="frozen", path=None, hints=[], url=address, model=None, requests_at_once=8,
        wait_s=1.0, timeout_s=60.0, retries=0,
    )  # fmt: skip
    scorer = ServedScorer(view, policy, "teacher", World())
    ids = list(range(30, 90))
    need = TopNeed(support="teacher_topk", topk=20, temperature=1.0)
    (found,) = scorer.read([demonstration_sample(ids[:20], ids[20:])], [need])
    expected = table(policy, ids).numpy()
    for position in range(20, 60):
        own = expected[position][ids[position]]
        assert found.logprobs[position] == pytest.approx(own, abs=CLOSE)
        best = found.tops[need].ids[position]
        assert set(best) == set(expected[position].argsort()[-20:])
        assert np.abs(found.tops[need].logprobs[position] - expected[position][best]).max() < CLOSE
    with pytest.raises(ConfigError, match="--max-logprobs 30"):
        scorer.read(
            [demonstration_sample(ids[:20], ids[20:])],
            [TopNeed(support="teacher_topk", topk=30, temperature=1.0)],
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_engine_sleeps_while_the_gpu_trains() -> None:
    policy = policy_of("qwen2").to("cuda")
    changes = {"url": None, "gpu_memory_utilization": 0.2, "sleep_level": 1}
    rollout = VllmRollout(VllmSettings(**{**LIMITS, **SERVED, **changes}), policy, World())
    rollout.load_weights(policy.weights(), version=0)
    generate(rollout, policy)
    before = torch.cuda.mem_get_info()[0]
    rollout.rest()
    assert torch.cuda.mem_get_info()[0] > before
    move(policy)
    rollout.load_weights(policy.weights(), version=1)
    assert len(generate(rollout, policy)) == 6
