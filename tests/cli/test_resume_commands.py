"""resume, checkpoints and verify-resume, as a user types them."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import yaml
from running import SMALL, numbers, run

from selfdistill_cli.cli import checkpoints, resume
from selfdistill_cli.core.errors import ConfigError, UserError

WORDS = ["method=grpo", *SMALL[:1], "batch.tasks_per_step=2", "method.group_size=2",
         "eval.every=0", "env.sandbox.workers=1", "tracker=none"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the finished run `a` of four steps."""
    folder = tmp_path_factory.mktemp("finished")
    run(folder, "train", *WORDS, "run.name=a", "run.max_steps=4", "checkpoint.every=1",
        "checkpoint.keep=9")  # fmt: skip
    return folder


def test_go_back_list_verify_prune_and_go_on(finished):
    directory = finished / "runs" / "a"
    before = numbers(directory)
    said = run(finished, "resume", "a", "resume.step=2", "run.max_steps=5")
    assert "continuing after step 2" in said
    assert numbers(directory)[: len(before)] == before, "the same steps give the same numbers"
    assert [line["step"] for line in numbers(directory)] == [1, 2, 3, 4, 5]
    backup = [json.loads(x) for x in (directory / "metrics.jsonl.bak-1").read_text().splitlines()]
    assert [line["step"] for line in backup] == [1, 2, 3, 4]
    said = run(finished, "checkpoints", "a")
    assert "rewound_step_000003" in said
    assert said.splitlines()[-1].split() == ["step_000005", said.split()[-3], "MiB", "latest"]
    weights = directory / "checkpoints/step_000004/policy/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "damaged" in run(finished, "checkpoints", "a", "verify", expect=1)
    said = run(finished, "checkpoints", "a", "prune", "keep=2", "aside=true")
    assert "kept step_000003, step_000005" in said, "a damaged one counts as none"
    assert sorted(os.listdir(directory / "checkpoints")) == ["latest", "step_000003", "step_000005"]
    said = run(finished, "resume", "a")
    assert "already finished" in said, "going back is done once, not at every call"


def test_resume_names_what_is_wrong(finished):
    said = run(finished, "resume", "b", expect=2)
    assert "no run under runs; runs there: a" in said
    said = run(finished, "resume", "a", "optim.lrr=1", expect=2)
    assert "optim.lrr: the run has no such key; did you mean 'lr'?" in said
    said = run(finished, "resume", "a", "optim.lr=1", expect=2)
    assert "resume.allow=[optim.lr]" in said
    said = run(finished, "resume", "a", "resume.step=77", expect=2)
    assert "resume.step=77: no such checkpoint" in said
    assert "expected one of the steps:" in said


def test_an_old_run_is_named_with_a_remedy_that_works(finished, monkeypatch):
    monkeypatch.chdir(finished)
    old = finished / "runs" / "old"
    shutil.copytree(finished / "runs" / "a", old)
    container = yaml.safe_load((old / "config.yaml").read_text())
    for group in ("sweep", "resume"):
        del container[group]
        for path in (old / "config.yaml", *old.glob("logs/*/config.yaml")):
            path.write_text(yaml.safe_dump(container, sort_keys=False))
        with pytest.raises(ConfigError, match=f"{group}: is missing") as error:
            resume.main(["old"])
        assert "`selfdistill train` command again" in str(error.value)
    assert "already finished" in run(finished, "train", *WORDS, "run.name=old", "run.max_steps=4")
    with pytest.raises(ConfigError, match=r"config\.yaml with resume.step=best does not fit"):
        resume.main(["old", "resume.step=best"])


def test_checkpoints_names_what_is_wrong():
    for words, expected in [
        (["a", "verifi"], "did you mean 'verify'"),
        (["a", "prune", "keep=0"], "expected a whole number above 0"),
        (["a", "prune", "aside=maybe"], "expected true or false"),
    ]:
        with pytest.raises(UserError, match=expected):
            checkpoints.parse(words)


def test_verify_resume_says_equal(tmp_path):
    said = run(tmp_path, "verify-resume", "steps=2", *WORDS)
    assert "killed after step 1: equal (best, engine, guards, method, " in said
    assert "1 of 1 continued runs equal the straight one, byte for byte" in said
    assert list(tmp_path.iterdir()) == []


def test_stop_after_ends_with_a_checkpoint_and_goes_on(tmp_path):
    words = ["train", *WORDS, "run.name=r", "run.max_steps=400"]
    said = run(tmp_path, *words, "run.stop_after=2s", expect=75)
    assert "run.stop_after is" in said
    assert "the same command continues" in said
    step = numbers(tmp_path / "runs/r")[-1]["step"]
    assert os.readlink(tmp_path / "runs/r/checkpoints/latest") == f"step_{step:06d}"
    said = run(tmp_path, "train", *WORDS, "run.stop_after=soon", expect=2)
    assert "run.stop_after: got 'soon', expected a length of time such as 3h50m" in said


@pytest.mark.slow
def test_resume_gives_the_exit_code_of_its_ranks(tmp_path):
    words = [*WORDS, "run.name=r", "run.max_steps=400", "run.stop_after=1s", "checkpoint.every=50",
             "launcher=local", "launcher.num_processes=2"]  # fmt: skip
    run(tmp_path, "train", *words, expect=75)
    run(tmp_path, "resume", "r", expect=75)
