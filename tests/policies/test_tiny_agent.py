"""The embedded agents: one tokenizer, weights for each environment, and what says so if not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoTokenizer

from selfdistill_cli.cli import tiny_agent
from selfdistill_cli.config.compose import compose
from selfdistill_cli.config.resolved import load_resolved
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.settings import shipped_agent_names, shipped_agents

TOKENIZER = AutoTokenizer.from_pretrained(shipped_agents(), local_files_only=True)


def policy_of(*words: str) -> CausalPolicy:
    chosen: Any = compose(["policy=tiny_agent", *words]).settings.policy
    return chosen.build()


@pytest.mark.parametrize("env", shipped_agent_names())
def test_the_chosen_environment_brings_its_weights(env: str) -> None:
    assert env in tiny_agent.ENVIRONMENTS
    composed = compose(["policy=tiny_agent", f"env={env}"])
    assert composed.container["policy"]["weights"] == env
    assert composed.origins["policy.weights"] == "the choice of env"
    policy = policy_of(f"env={env}")
    file = shipped_agents() / env / "model.safetensors"
    assert file.stat().st_size <= 2_500_000
    assert sum(p.numel() for p in policy.parameters()) <= 3_000_000
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    loaded = dict(policy.backbone.named_parameters())
    for name, tensor in load_file(file).items():
        assert tensor.dtype == torch.float16
        assert torch.equal(loaded[name].detach(), tensor.float())
    assert policy.chat.tokenizer.get_vocab() == TOKENIZER.get_vocab()


def test_there_are_weights_for_text_games_and_mathematics() -> None:
    assert {"textgame", "math"} <= set(shipped_agent_names())


def test_a_resumed_run_keeps_its_weights(tmp_path: Path) -> None:
    import yaml

    container = compose(["policy=tiny_agent", "env=math"]).container
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(container))
    again: Any = load_resolved(tmp_path / "config.yaml").policy
    assert again.weights == "math"


def test_what_is_typed_wins_over_the_environment() -> None:
    composed = compose(["policy=tiny_agent", "env=code", "policy.weights=math"])
    assert composed.container["policy"]["weights"] == "math"
    assert composed.origins["policy.weights"] == "command line"


@pytest.mark.parametrize("env", [[], ["env=gymnasium", "env.id=guessing:make"]])
def test_an_environment_without_weights_is_told_what_there_is(env: list[str]) -> None:
    with pytest.raises(ConfigError) as told:
        compose(["policy=tiny_agent", *env])
    found = env[0].removeprefix("env=") if env else "code"
    assert f"policy.weights: got '{found}', expected one of math" in str(told.value)
    assert "use policy=tiny, or warm up an agent of your own" in str(told.value)


def test_from_scratch_needs_no_weights_and_takes_the_shipped_tokenizer() -> None:
    policy = policy_of("env=code", "policy.from_scratch=true", "policy.hidden_size=16")
    assert policy.chat.tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert policy.backbone.config.vocab_size == len(TOKENIZER)


def test_weights_of_a_warm_up_become_a_folder_that_ships(tmp_path: Path) -> None:
    policy = policy_of("env=code", "policy.from_scratch=true", "policy.hidden_size=16")
    policy.save(tmp_path / "warm")
    tiny_agent.write_weights(tmp_path, "tools", str(tmp_path / "warm"))
    saved = load_file(tmp_path / "tools" / "model.safetensors")
    assert saved
    for name, weight in policy.backbone.named_parameters():
        assert torch.equal(saved[name], weight.detach().half())
    with pytest.raises(ConfigError, match="got chess, expected one of math"):
        tiny_agent.write_weights(tmp_path, "chess", str(tmp_path / "warm"))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_any_text_survives_encoding(text: str) -> None:
    ids = TOKENIZER(text, split_special_tokens=True)["input_ids"]
    assert TOKENIZER.decode(ids) == text


def test_digits_are_single_tokens() -> None:
    tokens = [TOKENIZER.decode([i]) for i in TOKENIZER("11 open 3\n40+12=52")["input_ids"]]
    assert [token for token in tokens if token.strip().isdigit()] == list("1134012" "52")


def test_the_tokenizer_is_made_of_what_every_environment_says() -> None:
    texts = list(tiny_agent.texts())
    assert texts == list(tiny_agent.texts())
    for piece in ("#### ", "Your task: ", "\n1 search ", "\n1 open "):
        assert any(piece in text for text in texts), piece
