"""Batch scripts: their text, odd paths, refusals, and what happens where there is no Slurm."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import running

from selfdistill_cli.cli import resume, train
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.launching import slurm
from selfdistill_cli.launching.jobs import read_job
from selfdistill_cli.launching.slurm_script import MARK, render_array, render_job

SCRIPTS = Path(__file__).parents[2] / "launch/slurm"
WORDS = ["method=grpo", "launcher=slurm", "tracker=none", "run.name=r"]

GOLDEN = """\
#!/bin/bash
#SBATCH --job-name=r
#SBATCH --output="{folder}/runs/r/logs/slurm_%j.out"
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=a100:8
#SBATCH --mem=64G
#SBATCH --time=1-02:30:00
#SBATCH --signal=USR1@300
#SBATCH --partition=long
#SBATCH --account=lab
#SBATCH --qos=high
#SBATCH --requeue
#SBATCH --constraint=h100
#SBATCH --exclusive
# Made by launcher=slurm; to submit it again: sbatch {folder}/runs/r/slurm.sbatch

job={folder}/runs/r/slurm_job.json
cd -- {folder} || exit
"""
FULL = [
    "launcher.nodes=2", "launcher.num_processes=8", "launcher.gpus_per_node=a100:8",
    "launcher.memory=64G", "launcher.time_limit=1d2h30m", "launcher.signal_before_s=300",
    "launcher.partition=long", "launcher.account=lab", "launcher.qos=high",
    'launcher.extra=["--constraint=h100",--exclusive]', 'launcher.setup=["module load cuda"]',
]  # fmt: skip


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Let only these commands be found, each a script of sh, and what a script needs."""
    place = folder / "commands"
    place.mkdir()
    for name, text in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place))


def rendered(words: list[str]) -> Path:
    """The script of a configuration."""
    composed = compose([*WORDS, *words])
    settings = composed.settings
    return render_job(settings.launcher, slurm.prepare(settings, composed.container))  # pyright: ignore


def test_script(tmp_path: Path) -> None:
    script = rendered(FULL)
    text = script.read_text()
    assert text.startswith(GOLDEN.format(folder=tmp_path))
    middle, end = text[len(GOLDEN.format(folder=tmp_path)) :].split(MARK)
    assert middle.splitlines()[-6:] == [
        "unset MASTER_ADDR MASTER_PORT",
        "set -e",
        "module load cuda",
        "set +e",
        middle.splitlines()[-2],
        "",
    ]
    assert middle.splitlines()[-2].endswith('-m selfdistill_cli.cli.worker "$job" slurm)')
    assert end == (SCRIPTS / "train.sbatch").read_text().split(MARK)[1]


def test_what_is_not_asked_for_is_left_out() -> None:
    lines = rendered([]).read_text().splitlines()
    options = [line.split("--")[1].split("=")[0] for line in lines if line.startswith("#SBATCH")]
    assert options == ["job-name", "output", "open-mode", "nodes", "ntasks-per-node",
                       "cpus-per-task", "signal", "requeue"]  # fmt: skip
    assert "#SBATCH --no-requeue" in rendered(["launcher.requeue=false"]).read_text()


@pytest.mark.parametrize("name", ["train.sbatch", "array.sbatch"])
def test_scripts_of_people_are_bash_and_share_one_end(name: str) -> None:
    subprocess.run(["bash", "-n", str(SCRIPTS / name)], check=True)
    ends = {path.read_text().split(MARK)[1] for path in SCRIPTS.glob("*.sbatch")}
    assert len(ends) == 1


def test_odd_paths_reach_bash_and_sbatch_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / """it's "100%" $HOME `x` ünï"""
    odd.mkdir()
    monkeypatch.chdir(odd)
    script = rendered(["run.root='my runs'", "env.data=\"it's here.jsonl\""])
    assert script == odd / "my runs/r/slurm.sbatch"
    lines = script.read_text().splitlines()
    escaped = str(odd).replace('"', '\\"').replace("%", "%%")
    assert f'#SBATCH --output="{escaped}/my runs/r/logs/slurm_%j.out"' in lines
    body = "\n".join([*lines[: lines.index(next(x for x in lines if MARK in x))], 'echo "$job"'])
    said = subprocess.run(["bash", "-c", body + "; pwd"], capture_output=True, text=True, cwd="/")
    assert said.stdout.splitlines() == [str(script.parent / "slurm_job.json"), str(odd)]
    assert read_job(script.parent / "slurm_job.json")[1]["env"]["data"] == "it's here.jsonl"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="with a backslash or a line break"):
        rendered(["run.root='back\\\\slash'"])


def test_job_file_keeps_the_order_and_goes_back_only_once(tmp_path: Path) -> None:
    composed = compose([*WORDS, "method=gear", "resume=never"])
    container = read_job(slurm.prepare(composed.settings, composed.container))[1]
    assert list(container) == list(composed.container)
    assert list(container["method"]["terms"]) == list(composed.container["method"]["terms"])
    assert (container["resume"]["mode"], container["resume"]["step"]) == ("auto", None)
    # Nothing was trained, so there is nothing that another configuration could contradict.
    again = compose([*WORDS, "method=gear", "optim.lr=0.5"])
    slurm.prepare(again.settings, again.container)
    assert "lr: 0.5" in (tmp_path / "runs/r/config.yaml").read_text()
    assert not list((tmp_path / "runs/r/logs").glob("attempt_*"))


def test_array(tmp_path: Path) -> None:
    jobs = [rendered([f"run.name=r{k}"]).parent / "slurm_job.json" for k in range(3)]
    settings = compose(WORDS).settings.launcher
    script = render_array(settings, tmp_path / "my sweep", jobs, limit=2)  # pyright: ignore
    text = script.read_text()
    assert script == tmp_path / "my sweep/array.sbatch"
    assert "#SBATCH --array=0-2%2" in text
    assert f'#SBATCH --output="{tmp_path}/my sweep/logs/slurm_%A_%a.out"' in text
    subprocess.run(["bash", "-n", str(script)], check=True)
    choice = text[text.index("jobs=(") : text.index("cd --")]
    for k, job in enumerate(jobs):
        words = ["bash", "-c", f"SLURM_ARRAY_TASK_ID={k}\n{choice}\necho $job"]
        assert subprocess.run(words, capture_output=True, text=True).stdout.strip() == str(job)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("launcher.time_limit=abc", "launcher.time_limit: got 'abc', expected a length of time"),
        ("launcher.time_limit=30", "launcher.time_limit: got '30', expected a length of time"),
        ("launcher.time_limit=0m", "launcher.time_limit: got '0m'"),
        ("launcher.nodes=0", "launcher.nodes: got 0, expected a number from 1"),
        ("launcher.gpus_per_node=0", "launcher.gpus_per_node: got 0"),
        ("launcher.memory=lots", "launcher.memory: got 'lots', expected a size such as 64G"),
        ("launcher.time_limit=2m", "launcher.signal_before_s: got 120, expected less than"),
        ("launcher.extra=[exclusive]", "launcher.extra: got 'exclusive', expected options"),
        ("launcher.partition='a b'", "launcher.partition: got 'a b', expected one word"),
        ("launcher.partion=a", "did you mean 'partition'"),
    ],
)
def test_wrong_values(word: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose([*WORDS, word])
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3h50m", 13800), ("1-12:00:00", 129600), ("04:00:00", 14400)]
)
def test_time_limits(text: str, seconds: int) -> None:
    settings = compose([*WORDS, f"launcher.time_limit={text}"]).settings.launcher
    assert settings.limit_s == seconds  # pyright: ignore


def test_without_sbatch_the_script_is_written_and_the_remedy_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="there is no command sbatch here") as error:
        train.main(WORDS)
    assert "launcher.submit=false" in str(error.value)
    assert (tmp_path / "runs/r/slurm.sbatch").is_file()


def test_submit_false_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main([*WORDS, "launcher.submit=false"]) == 0
    assert f"sbatch {tmp_path}/runs/r/slurm.sbatch" in capsys.readouterr().out
    assert not (tmp_path / "runs/r/run.json").exists()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("sbatch: error: invalid partition specified: nope", ConfigError),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", RunError),
    ],
)
def test_what_sbatch_refuses_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[Exception]
) -> None:
    commands(tmp_path, monkeypatch, sbatch=f"echo '{said}' >&2; exit 1")
    with pytest.raises(kind, match="sbatch refused") as error:
        train.main(WORDS)
    assert said in str(error.value)


def test_a_job_is_submitted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands(tmp_path, monkeypatch, sbatch="echo '12;main'", squeue="echo PENDING")
    identity = tmp_path / "runs/r/run.json"
    assert train.main(WORDS) == 0
    assert "submitted job 12 for runs/r" in capsys.readouterr().out
    known = json.loads(identity.read_text())
    assert (known["slurm_job"], known["status"]) == ("12", "submitted")
    (tmp_path / "commands/sbatch").write_text("#!/bin/sh\necho 13\n")
    for again in (lambda: train.main(WORDS), lambda: train.main([*WORDS, "launcher.submit=false"])):
        assert again() == 0
        assert "job 12 of runs/r is pending: nothing was submitted" in capsys.readouterr().out
    for squeue in ("echo COMPLETED", "echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1"):
        (tmp_path / "commands/squeue").write_text(f"#!/bin/sh\n{squeue}\n")
        assert train.main(WORDS) == 0
        assert "submitted job 13" in capsys.readouterr().out
        slurm.record(tmp_path / "runs/r/slurm_job.json", "12")
    (tmp_path / "commands/squeue").write_text("#!/bin/sh\necho 'cannot connect' >&2; exit 1\n")
    with pytest.raises(RunError, match="squeue does not say what became of it"):
        train.main(WORDS)


def test_a_command_given_twice_at_once_submits_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes in between: sbatch of the first starts it."""
    again = f"{sys.executable} -m selfdistill_cli train {shlex.join(WORDS)}"
    count = f"echo x >> {tmp_path}/calls; cd {tmp_path}; {again} >> said 2>&1; echo 12"
    commands(tmp_path, monkeypatch, sbatch=count, squeue="echo PENDING")
    assert train.main(WORDS) == 0
    assert (tmp_path / "calls").read_text() == "x\n"
    assert "in use by process" in (tmp_path / "said").read_text()


def test_mistakes_in_files_are_told_before_submission() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl"):
        train.main([*WORDS, "launcher.submit=false", "env.data=nowhere.jsonl"])


def test_one_of_several_does_not_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="use launcher=inline here"):
        train.main(WORDS)


def test_resume_submits_goes_back_once_or_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [*WORDS[:1], *running.SMALL, "eval.every=0", "run.name=r", "checkpoint.every=1",
             "batch.tasks_per_step=2", "method.group_size=2"]  # fmt: skip
    running.run(tmp_path, "train", *small, "run.max_steps=3")
    with monkeypatch.context() as patch:
        commands(tmp_path, patch, sbatch="echo 12", squeue="true")
        assert resume.main(["r", "launcher=slurm", "launcher.nodes=2", "resume.step=2"]) == 0
        assert "submitted job 12" in capsys.readouterr().out
        assert os.readlink("runs/r/checkpoints/latest") == "step_000002"
        assert resume.main(["r"]) == 0
        assert "#SBATCH --nodes=2" in Path("runs/r/slurm.sbatch").read_text()
        with pytest.raises(ConfigError, match="there is no option 'slrum'; did you mean 'slurm'"):
            resume.main(["r", "launcher=slrum"])
    said = running.run(tmp_path, "resume", "r", "launcher=inline")
    assert "continuing after step 2" in said
    assert running.last_step(tmp_path / "runs/r") == 3
