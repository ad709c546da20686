"""What may stand in a file of DeepSpeed's, and what is said where it cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from assembled import composed

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny
from selfdistill_cli.training.deepspeed_config import OWNED, merged, read_config, shipped_folder

STAGES = {"zero1": 1, "zero2": 2, "zero2_offload": 2, "zero3": 3, "zero3_offload": 3}


@pytest.mark.parametrize("name", STAGES)
def test_shipped_files_hold_memory_and_communication_only(name: str, tmp_path: Path) -> None:
    settings = composed(tmp_path, f"zero={name}").settings
    given = read_config(settings.zero.config)
    assert given["zero_optimization"]["stage"] == STAGES[name]
    assert given.keys() == {"zero_optimization"}
    whole = merged(given, settings.optim, bf16=True)
    assert whole["gradient_clipping"] == settings.optim.max_grad_norm
    assert whole["bf16"]["enabled"]
    assert "bf16" not in merged(given, settings.optim, bf16=False)


def test_every_shipped_file_is_an_option() -> None:
    assert {path.stem for path in shipped_folder().glob("*.json")} == STAGES.keys()


@pytest.mark.parametrize("key", OWNED)
def test_a_number_in_two_places_names_both(key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}, key: 1}))
    with pytest.raises(ConfigError) as caught:
        read_config(str(path))
    assert f"{path} sets {key} (owned by {OWNED[key]})" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "has no object 'zero_optimization'"),
        ('{"zero_optimization": {"stage": 0}}', "expected 1, 2 or 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"zero\.config=") as caught:
        read_config(str(path))
    assert said in str(caught.value)


def test_a_name_that_is_unknown_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"zero1\.json, zero2\.json"):
        read_config("zero4.json")


def test_without_deepspeed_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    settings = composed(tmp_path, "zero=zero2").settings
    with pytest.raises(ConfigError, match=r"install selfdistill\[zero\], or use zero=off"):
        settings.zero.build(load_policy(shipped_tiny()), settings.optim, 1, 0)
