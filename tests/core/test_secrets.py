"""Nothing that is recorded or sent elsewhere holds a key or a password."""

from __future__ import annotations

from selfdistill_cli.core.secrets import masked_words, without_secrets


def test_secrets_are_removed_by_name_by_value_and_from_addresses(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("MY_PASSWORD", "short")
    config = {
        "api_key": "1",
        "optim": {"password": "2", "lr": 0.1},
        "note": ["k" * 40, "plain", f"Bearer {'k' * 40}!"],
        "max_new_tokens": 12,
        "pad_token": "<pad>",
        "url": "https://me:pw@host/path?x=a@b",
        "mail": "me@host",
        "word": "short of it",
        "none": None,
    }
    assert without_secrets(config) == {
        "api_key": "<removed>",
        "optim": {"password": "<removed>", "lr": 0.1},
        "note": ["<removed>", "plain", "Bearer <removed>!"],
        "max_new_tokens": 12,
        "pad_token": "<pad>",
        "url": "https://<removed>@host/path?x=a@b",
        "mail": "me@host",
        "word": "short of it",
        "none": None,
    }


def test_words_of_a_command_line(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghij")
    words = [
        "train",
        "reward.judge.api_key=abc,def",
        "reward={judge: {api_key: abc, weight: 1}}",
        "+judge.access_token=x",
        "judge.header=hf_abcdefghij",
        "judge.url=http://u:p@h",
        "policy.pad_token=<pad>",
        "rollout.max_new_tokens=8",
    ]
    assert masked_words(words) == [
        "train",
        "reward.judge.api_key=<removed>",
        "reward={judge: {api_key: <removed>, weight: 1}}",
        "+judge.access_token=<removed>",
        "judge.header=<removed>",
        "judge.url=http://<removed>@h",
        "policy.pad_token=<pad>",
        "rollout.max_new_tokens=8",
    ]
