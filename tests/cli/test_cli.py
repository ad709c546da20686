"""The command as a person types it: in its own process, from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from selfdistill_cli.cli.arguments import parse
from selfdistill_cli.cli.main import COMMANDS, exit_code, without_local_rank
from selfdistill_cli.core.errors import Preempted, RunError, UserError

CHECKOUT = Path(__file__).resolve().parents[2]


def selfdistill(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "selfdistill_cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def cpu_seconds(folder: Path, *words: str) -> float:
    """The best of three, in CPU seconds of the child: what an idle core needs."""
    best = float("inf")
    for _ in range(3):
        before = os.times()
        assert selfdistill(folder, *words).returncode == 0
        after = os.times()
        spent = after.children_user + after.children_system
        best = min(best, spent - before.children_user - before.children_system)
    return best


def test_help_lists_commands_and_examples(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "--help")
    assert said.returncode == 0
    assert "train a policy, or continue a run" in said.stdout
    assert "selfdistill eval RUN split=test" in said.stdout
    assert selfdistill(tmp_path).stdout == said.stdout


def test_help_answers_at_once(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path, "--help") < 0.5


def test_a_dry_run_takes_less_than_three_seconds(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path, "train", "--dry-run") < 3.0


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["train", "--dry-run"],
        ["compare", "--help"],
        ["doctor", "--help"],
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(tmp_path: Path, words: list[str]) -> None:
    code = (
        "import sys; from selfdistill_cli.cli.main import main; "
        f"code = main({words}); "
        "print([m for m in ('torch', 'transformers', 'wandb', 'peft') if m in sys.modules], "
        "file=sys.stderr); sys.exit(code)"
    )
    path = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stderr == "[]\n"


def test_train_help_lists_groups_and_keys_with_their_meaning(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "train", "--help").stdout
    assert "  method              a2c, bcsd, bidirectional, cispo" in said
    assert "Episodes per task in one step." in said
    assert "--dry-run" in said


def test_a_dry_run_prints_yaml_with_origins_and_touches_nothing(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "train", "method=grpo", "method.group_size=4", "--dry-run")
    assert said.returncode == 0, said.stderr
    container = yaml.safe_load(said.stdout)
    assert container["method"]["group_size"] == 4
    lines = {
        line.split("#")[0].strip(): line.rpartition("# ")[2] for line in said.stdout.splitlines()
    }
    assert lines["group_size: 4"] == "command line"
    assert lines["drop_flat_groups: false"] == "conf/method/grpo.yaml"
    assert f"# directory  runs/{container['run']['name']} (new)" in said.stdout
    assert "# rules      all hold" in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_violated_rules_and_fails(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "train", "method.group_size=1", "--dry-run")
    assert said.returncode == 2
    assert "# rules      1 violated" in said.stdout
    assert said.stderr.startswith("error: method.group_size: got 1, but method.advantage compares")


def test_a_dry_run_says_that_a_run_would_be_continued(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    said = selfdistill(tmp_path, "train", "run.name=mine", "--dry-run")
    assert "# directory  runs/mine (exists: would be continued)" in said.stdout
    assert (folder / "config.yaml").read_text() == "seed: 0\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "error: there is no command 'trian'; did you mean 'train'?"),
        (
            ["train", "method=geer"],
            "error: method: there is no option 'geer'; did you mean 'gear'?",
        ),
        (["train", "--dryrun"], "error: there is no flag --dryrun; did you mean '--dry-run'?"),
        (["train", "--config-dir"], "error: --config-dir: expected a value after it, got nothing"),
        (["train", "-m", "optim.lr=1e-3,high"], "error: optim.lr: got 'high' (str), expected a"),
        (["train", "-m", "seed=0"], "error: -m: no key has several values"),
        (["train", "-m", "seed=0,1", "hydra/launcher=basic", "method.group_size=8,1"],
         "error: in the run seed=0 method.group_size=1:"),
        (["train", "-m", "seed=0,1", "hydra/launcher=basik"],
         "error: hydra/launcher: there is no option 'basik'; did you mean 'basic'?"),
        (["sweep", "stauts", "x"], "error: there is no 'sweep stauts'; did you mean 'status'?"),
        (["sweep", "status"], "error: sweep status: expected the directory of a sweep"),
        (["sweep", "status", "x", "y"], "error: sweep status: expected one directory, got x, y"),
        (["sweep", "resume", "x"], "error: 'x' is no directory of a sweep and no sweep in"),
        (["train", "--cfg", "job", "optim.lrr=1"], "error: optim.lrr: optim has no setting 'lrr'"),
        (["eval"], ""),
        (
            ["eval", "x", "sampels=3"],
            "error: eval has no argument 'sampels'; did you mean 'samples'",
        ),
        (
            ["eval", "x", "samples=many"],
            "error: samples: got 'many' (str), expected a whole number",
        ),
        (["eval", "x", "hints=[ansewr]"], "error: hints[0]: got 'ansewr' (str), expected one of"),
        (["eval", "x", "hints=["], "error: hints: got '[', which cannot be read as YAML"),
        (["eval", "x", "samples=0"], "error: samples: got 0, expected at least 1"),
        (["eval", "x", "num_tasks=-3"], "error: num_tasks: got -3, expected at least 1"),
        (["train", "optim=null"], "error: optim: got null, expected one of the options"),
        (["eval", "x", "y"], "error: expected one RUN, got x, y; see selfdistill eval --help"),
    ],
)
def test_wrong_input_is_explained_without_a_traceback(
    tmp_path: Path, words: list[str], expected: str
) -> None:
    said = selfdistill(tmp_path, *words)
    assert said.returncode == 2
    assert said.stderr.startswith(expected)
    assert "Traceback" not in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_run_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").write_text("seed: 0\n")
    said = selfdistill(tmp_path, "eval", "frist")
    assert said.returncode == 2
    assert said.stderr.startswith("error: 'frist' is no run directory")
    assert "first" in said.stderr.partition("runs there:")[2]


def test_hydras_own_flags_work_and_leave_nothing_behind(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "train", "--cfg", "job", "method=gear", "method=grpo")
    assert said.returncode == 0, said.stderr
    assert yaml.safe_load(said.stdout)["method"]["name"] == "grpo"
    resolved = selfdistill(tmp_path, "train", "--cfg=job", "--resolve", "optim.value_lr=${seed}")
    assert yaml.safe_load(resolved.stdout)["optim"]["value_lr"] == 0
    assert "Config search path" in selfdistill(tmp_path, "train", "--info", "searchpath").stdout
    assert list(tmp_path.iterdir()) == []


def test_every_run_of_a_multirun_is_told_although_one_fails(tmp_path: Path) -> None:
    words = ["train", "-m", "run.root=runs", "policy=hf", "policy.path=.", "seed=0,1"]
    said = selfdistill(tmp_path, *words, "sweep.name=both")
    assert said.returncode == 1
    for name in ("seed_0", "seed_1"):
        assert f"{name}: failed: policy.path=.: no config.json" in said.stdout
        log = tmp_path / "runs/multirun/both/logs" / f"{name}.log"
        assert f"log: {log}" in said.stdout
        assert "policy.path=.: no config.json" in log.read_text()


@pytest.mark.slow
def test_a_sweeper_of_hydra_may_be_chosen(tmp_path: Path) -> None:
    words = ["train", "-m", "hydra/sweeper=basic", "policy=hf", "policy.path=.", "seed=0,1"]
    said = selfdistill(tmp_path, *words)
    assert said.returncode == 2
    assert said.stdout.count("exit 2") == 2
    assert said.stderr.count("policy.path=.: no config.json") == 2


def test_the_sweeps_stand_behind_the_interface_of_hydra_too(tmp_path: Path) -> None:
    words = ["train", "-m", "hydra/sweeper=selfdistill", "method.group_size=1", "seed=0,1"]
    said = selfdistill(tmp_path, *words, "sweep.name=s")
    assert said.returncode == 1
    assert "2 cells: 2 invalid" in said.stdout
    assert (tmp_path / "runs/multirun/s/ledger.jsonl").is_file()
    wrong = selfdistill(tmp_path, *words, "optim.ler=1,2")
    assert wrong.returncode == 2
    assert "did you mean 'lr'" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_combinations_that_break_a_rule_are_invalid_and_are_told(tmp_path: Path) -> None:
    said = selfdistill(tmp_path, "train", "-m", "method.group_size=1", "seed=0,1", "sweep.name=s")
    assert said.returncode == 1
    assert "seed_0, seed_1: invalid: method.group_size: got 1, but" in said.stdout
    assert "2 cells: 2 invalid" in said.stdout
    assert not (tmp_path / "runs/multirun/s/seed_0").exists()


def test_completion_knows_commands_groups_and_options(tmp_path: Path) -> None:
    def complete(line: str) -> list[str]:
        said = selfdistill(tmp_path, "-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line)))
        return said.stdout.split()

    assert complete("selfdistill tr") == list(COMMANDS)
    assert "method=grpo" in complete("selfdistill train method=g")
    assert complete("selfdistill eval x") == []
    script = selfdistill(tmp_path, "-sc", "install=bash").stdout
    assert "hydra_bash_completion" in script


def test_the_rank_that_launchers_add_is_swallowed() -> None:
    argv = ["--local_rank=1", "train", "--local-rank", "0", "seed=1", "--local-rank=2"]
    assert without_local_rank(argv) == ["train", "seed=1"]


def test_flags_are_told_from_overrides() -> None:
    found = parse(["-m", "seed=0,1", "--config-dir=own", "--cfg", "job", "--resolve", "-i"])
    assert found.words == ["seed=0,1"]
    assert found.config_dir == "own"
    assert found.hydra_flags == ["-m", "--cfg", "job", "--resolve", "-i", "all"]
    assert found.multirun


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UserError("seed: wrong\nalso this"), 2, "error: seed: wrong\n  also this\n"),
        (RunError("the disk is full"), 1, "the run failed: the disk is full\n"),
        (Preempted("stopped after step 3"), 75, "stopped after step 3\n"),
        (KeyboardInterrupt(), 1, "interrupted\n"),
    ],
)
def test_errors_become_messages_and_exit_codes(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert exit_code(fail) == code
    assert capsys.readouterr().err == text


def test_our_own_mistakes_keep_their_traceback() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_code(fail)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "selfdistill_cli", "train", "--dry-run"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert process.returncode == 0


def test_a_full_standard_output_is_told_without_a_traceback(tmp_path: Path) -> None:
    path = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with open("/dev/full", "w") as full:
        said = subprocess.run(
            [sys.executable, "-u", "-m", "selfdistill_cli", "train", "--dry-run"],
            cwd=tmp_path, env=path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert said.returncode == 1
    assert said.stderr.startswith("the run failed: standard output could not be written: No space")
    assert "Traceback" not in said.stderr
