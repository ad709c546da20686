"""Run directories: continued, refused, locked."""

from __future__ import annotations

import dataclasses
import json
import os
import resource

import pytest
import yaml

from selfdistill_cli.core.errors import CheckpointError, ConfigError, RunError, UserError
from selfdistill_cli.training.run_directory import RunDirectory, differences
from selfdistill_cli.training.settings import ResumeSettings

AUTO = ResumeSettings(mode="auto", allow=[], step=None)
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


def test_an_edited_configuration_is_compared_with_that_of_the_last_attempt(tmp_path):
    opened(tmp_path / "r")
    edited = {**CONFIG, "seed": 2}
    (tmp_path / "r/config.yaml").write_text(yaml.safe_dump(edited))
    with pytest.raises(ConfigError, match=r"seed  1 -> 2"):
        opened(tmp_path / "r", edited)
    opened(tmp_path / "r")
    opened(tmp_path / "r", edited, dataclasses.replace(AUTO, allow=["seed"]))
    opened(tmp_path / "r", edited)


def test_a_group_that_an_old_run_lacks_may_come_if_its_keys_may_change(tmp_path):
    opened(tmp_path / "r")
    opened(tmp_path / "r", {**CONFIG, "sweep": {"retries": 2}})
    with pytest.raises(ConfigError, match="zero  None ->"):
        opened(tmp_path / "r", {**CONFIG, "zero": {"stage": 2}})


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


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "\xff\xfe"])
def test_a_damaged_configuration_is_named(tmp_path, text):
    opened(tmp_path / "r")
    (tmp_path / "r/config.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.yaml is damaged: .*attempt_<n>/config"):
        opened(tmp_path / "r")


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_a_damaged_identity_is_named(tmp_path, text):
    directory = opened(tmp_path / "r")
    (tmp_path / "r/run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"run\.json is damaged: .*; delete it"):
        directory.update_identity(status="running")


def test_a_lock_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "r/.lock").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"\.lock cannot be opened: Is a directory"):
        opened(tmp_path / "r")


def test_other_folders_among_the_attempts_are_passed_over(tmp_path):
    opened(tmp_path / "r")
    (tmp_path / "r/logs/attempt_x").mkdir()
    assert opened(tmp_path / "r").attempt == 2


def test_a_long_list_of_changes_is_cut_and_its_groups_are_named(tmp_path):
    before = {**CONFIG, "method": {f"key{i}": i for i in range(30)}}
    after = {**CONFIG, "seed": 2, "method": {f"other{i}": i for i in range(30)}}
    opened(tmp_path / "r", before)
    with pytest.raises(ConfigError, match="and 53 more") as caught:
        opened(tmp_path / "r", after)
    assert len(str(caught.value).splitlines()) == 11
    assert "'resume.allow=[seed,method.*]'" in str(caught.value)
    opened(tmp_path / "r", after, dataclasses.replace(AUTO, allow=["seed", "method.*"]))


def lines(path, *steps):
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in steps))


def test_what_was_taken_away_is_missed(tmp_path):
    path, config = tmp_path / "r", {**CONFIG, "checkpoint": {"every": 2}}
    opened(path, config)
    lines(path / "metrics.jsonl", 0, 1, 2)  # killed before the first checkpoint: starts over
    opened(path, config)
    lines(path / "metrics.jsonl", 0, 1, 2, 3)
    with pytest.raises(CheckpointError, match=r"no checkpoint, although .* steps up to 3. Put it"):
        opened(path, config)
    (path / "checkpoints/step_000002").mkdir(parents=True)
    opened(path, config)
    (path / "metrics.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl is missing, although there are"):
        opened(path, config)


def test_changed_content_is_refused_like_a_changed_key(tmp_path):
    directory = opened(tmp_path / "r")
    directory.check_contents({"env.data": "aa"}, AUTO)
    directory.check_contents({"env.data": "bb"}, AUTO)  # nothing was computed yet
    lines(tmp_path / "r/metrics.jsonl", 0)
    directory.check_contents({"env.data": "bb"}, AUTO)
    with pytest.raises(ConfigError, match=r"env\.data: content changed .*resume\.allow=\[env"):
        directory.check_contents({"env.data": "cc"}, AUTO)
    directory.check_contents({"env.data": "cc"}, dataclasses.replace(AUTO, allow=["env.data"]))
    directory.check_contents({"env.data": "cc"}, AUTO)


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path):
    directory = opened(tmp_path / "r")
    directory.update_identity(status="running")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(RunError, match=r"run\.json could not be written: File too large"):
            directory.update_identity(status="x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert directory.identity()["status"] == "running"
    assert [path.name for path in (tmp_path / "r").iterdir() if "partial" in path.name] == []


def test_a_prepared_run_has_no_attempt_and_contradicts_nothing(tmp_path):
    directory = RunDirectory(tmp_path / "r")
    for lr, mode in ((1.0, "auto"), (2.0, "never")):
        directory.prepare({"optim": {"lr": lr}}, dataclasses.replace(AUTO, mode=mode))
        directory.close()
    assert directory.config() == {"optim": {"lr": 2.0}}
    with pytest.raises(ConfigError, match="there is no run to continue"):
        directory.prepare({}, dataclasses.replace(AUTO, mode="must"))
    directory.open({"optim": {"lr": 2.0}}, dataclasses.replace(AUTO, mode="never"))
    directory.close()
    assert directory.attempt == 1
    with pytest.raises(ConfigError, match="started with another configuration"):
        directory.prepare({"optim": {"lr": 3.0}}, AUTO)
    assert directory.config() == {"optim": {"lr": 2.0}}


def test_an_attempt_says_which_job_it_was(tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path / "r")
    job = {"JOB_ID": "7", "ARRAY_JOB_ID": "5", "ARRAY_TASK_ID": "1", "JOB_NODELIST": "n[1-2]",
           "RESTART_COUNT": "2"}  # fmt: skip
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    directory.open({}, AUTO)
    directory.close()
    said = (tmp_path / "r/logs/attempt_1/environment.txt").read_text().splitlines()
    assert said[-1] == "slurm job 5_1, start 3 on n[1-2]"
