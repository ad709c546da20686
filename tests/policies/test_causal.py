"""The policy scores what a plain forward pass of the language model says."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from small_policies import FAMILIES, small_model, small_policy, small_tokenizer

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.core.errors import CheckpointError, ConfigError
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.fast_llama import applies_to
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.policies.settings import HuggingFaceSettings, LoraSettings, TinySettings

SAMPLES = [
    demonstration_sample([9, 10, 11], [12, 13, 14, 15]),
    demonstration_sample([20], [21, 22]),
]
LORA = LoraSettings(rank=4, alpha=8.0, dropout=0.0, target_modules="all-linear")


def hf_settings(path, **changes):
    base = {
        "path": str(path),
        "init_from": None,
        "dtype": "float32",
        "attn_implementation": "sdpa",
        "gradient_checkpointing": False,
        "quantization": "none",
        "chat_template": None,
        "lora": dataclasses.replace(LORA, rank=0),
    }
    return HuggingFaceSettings(**{**base, **changes})


def tiny_settings(path, **changes):
    base = {
        "path": path and str(path),
        "init_from": None,
        "from_scratch": False,
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 24,
        "max_length": 64,
        "weights_seed": 0,
    }
    return TinySettings(**{**base, **changes})


@pytest.fixture
def folder(tmp_path):
    small_policy().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_equal_a_plain_forward(family):
    policy = small_policy(family)
    output = policy.score(collate(SAMPLES), frozenset({"entropy"}), temperature=0.5)
    for row, sample in enumerate(SAMPLES):
        ids = torch.from_numpy(sample.token_ids)[None]
        log_p = torch.log_softmax(policy.backbone(ids).logits[0] / 0.5, -1)
        for t in range(len(sample.token_ids)):
            if not sample.action_mask[t]:
                assert output.logprobs[row, t] == 0
                continue
            before = log_p[t - 1]
            torch.testing.assert_close(output.logprobs[row, t], before[ids[0, t]])
            torch.testing.assert_close(output.entropy[row, t], -(before.exp() * before).sum())
        assert (output.logprobs[row, len(sample.token_ids) :] == 0).all()


def test_hidden_states_do_not_depend_on_the_side_of_the_padding():
    policy = small_policy("gpt2")
    ids = torch.tensor([[0, 0, 9, 10, 11]])
    left = policy.hidden_states(ids, torch.tensor([[0, 0, 1, 1, 1]]))[:, 2:]
    right = policy.hidden_states(torch.tensor([[9, 10, 11, 0, 0]]), None)[:, :3]
    torch.testing.assert_close(left, right)


def test_critic_starts_at_zero_and_reads_the_state_before_each_token():
    policy = small_policy()
    assert policy.add_value_head() is policy.add_value_head()
    batch = collate(SAMPLES)
    assert (policy.score(batch, frozenset({"values"})).values == 0).all()
    torch.nn.init.normal_(policy.value_head.weight)
    output = policy.score(batch, frozenset({"values", "hidden"}))
    expected = policy.value_head(output.hidden).squeeze(-1) * batch.action_mask
    torch.testing.assert_close(output.values, expected)
    raw = policy.hidden_states(batch.token_ids, None)
    torch.testing.assert_close(output.hidden[0, 3], raw[0, 2])


def test_save_and_load_restore_weights_and_critic(tmp_path, folder):
    policy = small_policy()
    torch.nn.init.normal_(policy.add_value_head().weight)
    policy.save(tmp_path / "with_critic")
    other = small_policy(seed=1)
    other.load(tmp_path / "with_critic")
    pairs = zip(policy.weights(), other.weights(), strict=True)
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)
    with pytest.raises(CheckpointError, match=r"value_head\.safetensors"):
        other.load(folder)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        other.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="do not fit"):
        small_policy(hidden=16).load(folder)


def test_a_folder_becomes_the_same_policy(folder):
    policy = hf_settings(folder).build()
    batch, original = collate(SAMPLES), small_policy()
    for built in (policy, tiny_settings(folder).build()):
        mine = built.score(batch, frozenset()).logprobs
        torch.testing.assert_close(mine, original.score(batch, frozenset()).logprobs)
    assert policy.chat.prompt_ids([{"role": "user", "content": "f?"}])


def test_new_tiny_weights_keep_only_the_tokenizer(folder):
    first = tiny_settings(folder, from_scratch=True).build()
    again = tiny_settings(folder, from_scratch=True).build()
    assert first.hidden_size == 16
    assert torch.equal(first.unembedding()[0], again.unembedding()[0])
    assert len(first.chat.tokenizer) == first.unembedding()[0].shape[0]


def test_adapters_start_at_the_base_and_are_all_that_is_trained(tmp_path, folder):
    base = hf_settings(folder).build()
    policy = hf_settings(folder, lora=LORA, gradient_checkpointing=True).build()
    batch = collate(SAMPLES)
    policy.train()
    output = policy.score(batch, frozenset()).logprobs
    torch.testing.assert_close(output, base.score(batch, frozenset()).logprobs)
    output.sum().backward()
    trained = {name for name, p in policy.named_parameters() if p.grad is not None}
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    policy.save(tmp_path / "adapter")
    other = hf_settings(folder, lora=LORA).build()
    other.load(tmp_path / "adapter")
    changed = policy.eval().score(batch, frozenset()).logprobs
    assert not torch.allclose(changed, output)
    torch.testing.assert_close(other.score(batch, frozenset()).logprobs, changed)
    with pytest.raises(CheckpointError, match=r"policy\.lora"):
        other.load(folder)


def test_unknown_adapter_targets(folder):
    lora = LoraSettings(rank=4, alpha=8.0, dropout=0.0, target_modules=["query"])
    with pytest.raises(ConfigError, match=r"policy\.lora\.target_modules.*q_proj"):
        hf_settings(folder, lora=lora).build()


def test_weights_name_every_parameter_once():
    policy = small_policy("llama")
    names = [name for name, _ in policy.weights()]
    assert len(names) == len(set(names)) == len(list(policy.parameters()))


def test_dropout_is_off(tmp_path):
    CausalPolicy(small_model("gpt2"), TemplateChat(small_tokenizer())).save(tmp_path)
    policy = hf_settings(tmp_path).build()
    batch = collate(SAMPLES)
    policy.train()
    once, twice = (policy.score(batch, frozenset()).logprobs for _ in range(2))
    assert torch.equal(once, twice)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "nothing there.*not downloaded"),
        ([], "an empty folder"),
        (["config.json"], "no weights and no tokenizer"),
        (["config.json", "model.safetensors"], r"no tokenizer \(found config\.json"),
        (["adapter_config.json"], "adapter without its base model.*policy.init_from"),
    ],
)
def test_folders_that_are_no_model(tmp_path, files, message):
    path = tmp_path / "model"
    if files is not None:
        path.mkdir()
        for name in files:
            (path / name).write_text("{}")
    with pytest.raises(ConfigError, match=f"policy.path=.*{message}"):
        hf_settings(path).build()


def test_folders_of_other_models(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "architectures": ["BertForMaskedLM"]})
    )
    with pytest.raises(ConfigError, match=r"BertForMaskedLM.*ForCausalLM"):
        hf_settings(folder).build()


def test_scaled_logits_are_refused():
    model = small_model("llama")
    model.config.logits_scaling = 8.0
    with pytest.raises(ConfigError, match=r"logits_scaling=8\.0"):
        CausalPolicy(model, TemplateChat(small_tokenizer()))


def test_shipped_folder_lies_in_the_package():
    assert shipped_tiny().parts[-4:] == ("selfdistill_cli", "policies", "weights", "tiny")


def test_the_fast_step_is_used_only_where_it_computes_the_same_function(folder):
    assert applies_to(small_model("llama"))
    assert not applies_to(small_model("llama").bfloat16())
    assert not any(applies_to(small_model(family)) for family in FAMILIES if family != "llama")
    assert not applies_to(hf_settings(folder, lora=LORA).build().backbone)
    scaled = small_model("llama")
    scaled.config.rope_parameters["rope_type"] = "linear"
    assert not applies_to(scaled)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_steps_equal_reading_everything_at_once(family):
    policy = small_policy(family)
    for module in policy.modules():  # norms that are not the identity
        if "Norm" in type(module).__name__:
            torch.nn.init.normal_(module.weight)
    prompts = [[9, 10, 11], [9, 10, 11], [20]]
    stepper = policy.stepper(prompts, 4)
    rows = [list(prompt) for prompt in prompts]
    for ids, keep in [([30, 31, 32], [0, 1, 2]), ([40, 41], [2, 0]), ([50, 51], [0, 1])]:
        stepper.keep(torch.tensor(keep))
        rows = [rows[i] + [token] for i, token in zip(keep, ids, strict=True)]
        stepper.step(torch.tensor(ids))
        for row, ids_so_far in enumerate(rows):
            whole = policy.hidden_states(torch.tensor([ids_so_far]), None)[0, -1]
            torch.testing.assert_close(stepper.hidden[row], whole, atol=1e-5, rtol=1e-5)
