"""Sampling by servers: real HTTP, real tokens and log-probabilities of the weights they hold."""

from __future__ import annotations

import copy
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from serving import serving
from small_policies import small_policy

from selfdistill_cli import testing
from selfdistill_cli.core.errors import ConfigError, RunError, ServerError
from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.core.types import Finish
from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny
from selfdistill_cli.rollout.copied_weights import generation_of
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.server_client import InferenceServer, Refused
from selfdistill_cli.rollout.settings import InProcessSettings, VllmSettings
from selfdistill_cli.rollout.vllm_engine import VllmRollout
from selfdistill_cli.rollout.weight_files import write_model
from selfdistill_cli.training.world import World

LIMITS: dict[str, Any] = {
    "max_new_tokens": 8, "temperature": 1.0, "max_turns": 1, "max_context_tokens": 128,
    "max_live_tokens": 1000, "overflow": "stop", "env_wall_s": 1.0, "env_cpu_s": 1.0,
    "max_batch_rows": 4,
}  # fmt: skip
SERVED: dict[str, Any] = {
    "model": None, "sync_folder": None, "wait_s": 0.0, "timeout_s": 10.0, "retries": 1,
    "max_gap": None, "gpu_memory_utilization": 0.4, "tensor_parallel_size": 1, "sleep_level": 1,
    "enforce_eager": False,
}  # fmt: skip


def settings(url: Any, **changes: Any) -> VllmSettings:
    return VllmSettings(**{**LIMITS, **SERVED, "url": url, **changes})


def engine(policy: Any, url: Any, publish: bool = True, **changes: Any) -> Any:
    found = VllmRollout(settings(url, **changes), policy, World())
    if publish:
        found.load_weights(policy.weights(), version=1)
    return found


def requests(policy: Any, count: int = 6) -> list[GenerationRequest]:
    texts = [f"Write a function f{i % 3}." for i in range(count)]
    prompts = [policy.chat.prompt_ids([{"role": "user", "content": text}]) for text in texts]
    return [GenerationRequest(prompt_ids=p, seed=2**62 + i) for i, p in enumerate(prompts)]


def generate(rollout: Any, policy: Any, temperature: float = 1.0) -> list[Any]:
    return rollout.generate(requests(policy), max_new_tokens=8, temperature=temperature)


@torch.no_grad()
def move(policy: Any, scale: float = 0.1) -> None:
    """Change what is trained, as an update would."""
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.add_(scale * torch.randn_like(parameter))


def with_adapters(policy: Any) -> Any:
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    policy.backbone = get_peft_model(policy.backbone, config)
    return policy


def test_a_server_keeps_the_promises_of_a_rollout_engine() -> None:
    policy = small_policy()
    prompts = [policy.chat.prompt_ids([{"role": "user", "content": text}]) for text in "aba"]
    with serving(policy) as server:
        testing.check_rollout_engine(
            lambda: engine(policy, server.url), prompts=prompts, weights=policy.weights
        )


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_tokens_and_log_probabilities_are_those_of_the_process(temperature: float) -> None:
    policy = small_policy("qwen2")
    own = InProcessRollout(InProcessSettings(**LIMITS, compact_fraction=0.25), policy)
    expected = generate(own, policy, temperature)
    with serving(policy) as server:
        rollout = engine(policy, server.url, temperature=temperature)
        found = generate(rollout, policy, temperature)
        sent = [body for path, body in server.seen if path == "/v1/completions" and "seed" in body]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.action_ids == theirs.action_ids
        assert mine.finish == theirs.finish
        assert np.abs(mine.logprobs - theirs.logprobs).max() < 1e-5
    asked = {tuple(body["prompt"]): body for body in sent}
    for request in requests(policy):
        assert asked[tuple(request.prompt_ids)]["stop_token_ids"] == sorted(policy.chat.stop_ids)
    assert {body["seed"] for body in sent} >= {request.seed for request in requests(policy)}


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_every_publication_reaches_the_server(tmp_path: Path, family: str, adapted: bool) -> None:
    policy = small_policy(family)
    torch.manual_seed(1)
    with serving(policy) as server:
        if adapted:
            policy = with_adapters(policy)
        rollout = engine(policy, server.url, sync_folder=str(tmp_path / "weights"))
        before = generate(rollout, policy)
        move(policy)
        rollout.load_weights(policy.weights(), version=2)
        after = generate(rollout, policy)
        own = InProcessRollout(InProcessSettings(**LIMITS, compact_fraction=0.25), policy)
        expected = generate(own, policy)
        assert [x.action_ids for x in after] == [x.action_ids for x in expected]
        assert [x.action_ids for x in after] != [x.action_ids for x in before]
        assert len(server.adapters) == int(adapted)  # earlier ones were unloaded
        assert server.count("/reset_prefix_cache") == (0 if adapted else 2)
    left = [path for path in tmp_path.rglob("*.safetensors") if "weights_000001" in str(path)]
    assert left == []


def test_the_critic_stays_at_home_and_large_models_travel_in_parts(tmp_path: Path) -> None:
    policy = small_policy("llama")
    policy.add_value_head()
    with serving(policy) as server:
        engine(policy, server.url)  # the server refuses names that it does not know
    write_model(tmp_path / "w", policy, policy.weights())
    assert len(list((tmp_path / "w").glob("*.safetensors"))) == 2  # 20 tensors, 16 at once


def test_servers_share_the_ranks() -> None:
    class Second(World):
        rank, size = 1, 2

    policy = small_policy()
    with serving(policy) as one, serving(policy) as other:
        rollout = VllmRollout(settings([one.url, other.url]), policy, Second())
        rollout.load_weights(policy.weights(), version=1)
        generate(rollout, policy)
        played = [sum("seed" in body for _, body in server.seen) for server in (one, other)]
        assert played == [0, 6]
        assert one.count("/collective_rpc") == other.count("/collective_rpc") == 1


@pytest.mark.parametrize("how", ["503", "words", "slow"])
def test_a_failure_that_passes_is_endured_and_one_that_stays_is_told(how: str) -> None:
    policy = small_policy()
    with serving(policy) as server:
        rollout = engine(policy, server.url, timeout_s=0.7)
        expected = generate(rollout, policy)
        server.broken += [how]
        found = generate(rollout, policy)
        assert [x.action_ids for x in found] == [x.action_ids for x in expected]
        server.broken += [how] * 20
        with pytest.raises(ServerError, match=r"rollout.url=.* no answer to /v1/completions after"):
            generate(rollout, policy)


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ({"longest": 64}, "was started with --max-model-len 64; start it with 128 or more"),
        ({"other_letters": True}, "its tokenizer is not the student's: id 301 is"),
        ({"ignores_temperature": True}, "start it with --logprobs-mode processed_logprobs"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_at_the_start(switch: Any, expected: str) -> None:
    policy = load_policy(shipped_tiny())
    with (
        serving(policy, **switch) as server,
        pytest.raises(ConfigError, match=expected),
    ):
        engine(policy, server.url, temperature=0.7)


def test_another_name_or_another_model_is_told() -> None:
    policy, other = small_policy(), small_policy(seed=5)
    with serving(other, name="theirs") as server:
        with pytest.raises(ConfigError, match=r"rollout.model: got 'mine', but .* serves theirs"):
            engine(policy, server.url, model="mine")
        adapted = with_adapters(copy.deepcopy(policy))
        with pytest.raises(ServerError, match="log-probabilities of a probe differ from the"):
            engine(adapted, server.url)
    assert "theirs" in server.name


def test_weights_that_do_not_arrive_are_noticed() -> None:
    policy = small_policy()
    with serving(policy, ignores_weights=True) as server:
        rollout = engine(policy, server.url)
        move(policy)
        with pytest.raises(ServerError, match="differ from the trainer's by"):
            rollout.load_weights(policy.weights(), version=2)
    for adapted, remedy in ((False, "VLLM_SERVER_DEV_MODE=1"), (True, "--enable-lora")):
        policy = with_adapters(small_policy()) if adapted else small_policy()
        with (
            serving(small_policy(), refuses_weights=True) as server,
            pytest.raises(ServerError, match=remedy),
        ):
            engine(policy, server.url)


def test_answers_that_make_no_sense_are_told() -> None:
    policy = small_policy()
    with serving(policy) as server:
        rollout = engine(policy, server.url)
        server.broken += ["empty"]
        with pytest.raises(ServerError, match="expected the prompt's own ids, sampled token_ids"):
            generate(rollout, policy)
        server.prompts_changed = True
        with pytest.raises(ServerError, match="expected the prompt's own ids"):
            generate(rollout, policy)


@pytest.mark.parametrize(
    ("ids", "logprobs", "expected"),
    [
        ([], [], "sampled 0 tokens, expected 1 to 3"),
        ([5] * 4, [-1.0] * 4, "sampled 4 tokens, expected 1 to 3"),
        ([5, 6], [-1.0], "gave 1 log-probabilities for 2 sampled tokens"),
        ([5, 6, 7], [-1.0, float("nan"), -1.0], "gave the log-probability nan"),
        ([5, 6, 7], [-1.0, None, -1.0], "gave the log-probability None"),
        ([5, 6, 7], [-1.0, 0.5, -1.0], "gave the log-probability 0.5"),
        ([9, 6, 7], [-1.0] * 3, "sampled on after a stop token"),
        ([5, 6], [-1.0] * 2, "ended after 2 tokens without a stop token"),
    ],
)
def test_what_an_engine_says_is_checked(ids: Any, logprobs: Any, expected: str) -> None:
    with pytest.raises(ServerError, match=expected):
        generation_of(ids, logprobs, stop_ids=frozenset({9}), max_new_tokens=3, who="it")
    fine = generation_of([5, 9], [-1.0, 1e-7], stop_ids=frozenset({9}), max_new_tokens=3, who="it")
    assert fine.finish is Finish.STOP
    assert fine.logprobs.max() <= 0


def test_a_server_that_is_not_there_and_a_machine_that_is_another() -> None:
    policy = small_policy()
    with serving(policy) as server:
        gone = server.url
    with pytest.raises(ServerError, match=r"no answer to /health after 1 attempt .*serve.sh"):
        engine(policy, gone)
    with serving(policy) as server:
        rollout = engine(policy, server.url, publish=False)
        far = InferenceServer(url="http://far", setting="rollout.url", timeout_s=1, retries=0)
        rollout.servers = [far]
        with pytest.raises(ConfigError, match=r"rollout\.sync_folder: got null"):
            rollout.load_weights(policy.weights(), version=1)


def test_a_sync_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    policy, file = small_policy(), tmp_path / "file"
    file.touch()
    with (
        serving(policy) as server,
        pytest.raises(RunError, match="file/inside could not be written"),
    ):
        engine(policy, server.url, sync_folder=str(file / "inside"))


def test_a_refusal_travels_to_other_ranks() -> None:
    found = pickle.loads(pickle.dumps(Refused("no", 404)))
    assert (str(found), found.status, isinstance(found, ServerError)) == ("no", 404, True)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_remedy_is_told() -> None:
    with pytest.raises(ConfigError, match="vLLM cannot be imported here"):
        engine(small_policy(), None)
