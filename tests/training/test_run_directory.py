"""Run directories: continued, refused, locked."""

from __future__ import annotations

import dataclasses
import os

import pytest
import yaml

from selfdistill_cli.core.errors import ConfigError, UserError
from selfdistill_cli.training.run_directory import RunDirectory, differences
from selfdistill_cli.training.settings import ResumeSettings

AUTO = ResumeSettings(mode="auto", allow=[])
CONFIG = {"seed": 1, "optim": {"lr": 0.1}, "run": {"max_steps": 5}}


def opened(path, config=CONFIG, resume=AUTO):
    directory = RunDirectory(path)
    directory.open(config, resume)
    directory.close()
    return directory


def test_every_attempt_is_recorded(tmp_path):
    opened(tmp_path / "r")
    again = opened(tmp_path / "r")
    assert again.attempt == 2
    assert yaml.safe_load((tmp_path / "r/logs/attempt_1/config.yaml").read_text()) == CONFIG
    for name in ("config.yaml", "command.txt", "environment.txt", "git.txt"):
        assert (tmp_path / "r" / name).stat().st_size > 0


def test_changed_key_is_refused_with_a_table_and_the_remedy(tmp_path):
    opened(tmp_path / "r")
    changed = {**CONFIG, "optim": {"lr": 0.2}}
    with pytest.raises(ConfigError, match=r"optim\.lr  0\.1 -> 0\.2") as caught:
        opened(tmp_path / "r", changed)
    assert "resume.allow=[optim.lr]" in str(caught.value)
    allowed = dataclasses.replace(AUTO, allow=["optim.lr"])
    opened(tmp_path / "r", changed, allowed)


def test_length_of_the_run_may_change(tmp_path):
    opened(tmp_path / "r")
    opened(tmp_path / "r", {**CONFIG, "run": {"max_steps": 50}})


def test_modes(tmp_path):
    with pytest.raises(ConfigError, match="no run to continue"):
        opened(tmp_path / "r", resume=dataclasses.replace(AUTO, mode="must"))
    opened(tmp_path / "r")
    with pytest.raises(ConfigError, match="holds a run already"):
        opened(tmp_path / "r", resume=dataclasses.replace(AUTO, mode="never"))
    opened(tmp_path / "r", resume=dataclasses.replace(AUTO, mode="must"))


def test_second_process_is_refused(tmp_path):
    first = RunDirectory(tmp_path / "r")
    first.open(CONFIG, AUTO)
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        opened(tmp_path / "r")
    first.close()
    opened(tmp_path / "r")


def test_unusable_root_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run\.root"):
        opened(tmp_path / "file" / "r")


def test_differences_name_leaves():
    found = differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 5})
    assert found == [("a.c", 2, 4), ("d", 3, None), ("e", None, 5)]


def test_identity_survives(tmp_path):
    directory = opened(tmp_path / "r")
    identity = directory.identity()
    directory.update_identity(**identity)
    directory.update_identity(status="running")
    again = RunDirectory(tmp_path / "r").identity()
    assert again["wandb_id"] == identity["wandb_id"]
    assert again["status"] == "running"
