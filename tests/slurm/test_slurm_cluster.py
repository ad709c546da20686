"""Jobs on a real Slurm: stopped by its signals, put back, continued, and equal in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import running
from cluster import Cluster, missing, running_cluster

from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.training.state_compare import compare_runs

CHECKOUT = Path(__file__).parents[2]
NO_CLUSTER = missing()
pytestmark = pytest.mark.skipif(NO_CLUSTER is not None, reason=f"no Slurm here: {NO_CLUSTER}")

STEPS = 30
WORDS = [
    "train", "method=grpo", *running.SMALL, "eval.every=0", "run.trajectories_every=1",
    "checkpoint.every=100", "checkpoint.keep=9", f"run.max_steps={STEPS}",
]  # fmt: skip
SHORT = ["method=grpo", *running.SMALL, "eval.every=0", "run.max_steps=2"]
JOB = ["launcher=slurm", "launcher.cpus_per_task=1", "launcher.time_limit=30m"]
TOGETHER = 'launcher.setup=["export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo"]'
"""Node names of the test's cluster are in no one's address book."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to train in, from which commands reach the cluster."""
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cluster.environment |= {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    folder = tmp_path / "it's 100% odd"
    folder.mkdir()
    return folder


def submitted(directory: Path) -> str:
    """The job of a run."""
    return json.loads((directory / "run.json").read_text())["slurm_job"]


def wait_for_step(cluster: Cluster, job: str, directory: Path, step: int) -> None:
    """Wait until a job has logged a step."""
    end = time.monotonic() + 200
    while running.last_step(directory) < step:
        assert time.monotonic() < end, output(directory)
        assert cluster.job(job)["JobState"] in ("PENDING", "CONFIGURING", "RUNNING"), output(
            directory
        )
        time.sleep(0.1)


def output(directory: Path) -> str:
    """Everything that the jobs of a run said."""
    return "\n".join(path.read_text() for path in sorted((directory / "logs").glob("*.out")))


def newest(directory: Path) -> int:
    """Step of the newest checkpoint."""
    return int(os.readlink(directory / "checkpoints" / "latest").removeprefix("step_"))


def test_a_job_is_stopped_put_back_cancelled_submitted_again_and_equals_a_straight_run(
    home: Path, cluster: Cluster, tmp_path: Path
) -> None:
    running.run(home, *WORDS, "run.name=straight")
    directory = home / "runs/job"
    said = running.run(home, *WORDS, *JOB, "run.name=job")
    job = submitted(directory)
    assert f"submitted job {job}" in said

    wait_for_step(cluster, job, directory, 2)
    assert f"job {job} of runs/job is running" in running.run(home, *WORDS, *JOB, "run.name=job")
    assert submitted(directory) == job
    cluster.call("scancel", "--signal=USR1", job)  # what Slurm sends before the time limit
    cluster.start_again(job)
    first = newest(directory)
    assert first < STEPS

    wait_for_step(cluster, job, directory, first + 2)
    cluster.call("scancel", job)
    ended = cluster.wait_for(job, "CANCELLED")
    second = newest(directory)
    assert first < second < STEPS
    assert ended["Restarts"] == "1"
    assert "stopped with a checkpoint" in output(directory)
    assert "not put back by this script" in output(directory)

    script = directory.resolve() / "slurm.sbatch"
    again = cluster.call("sbatch", "--parsable", str(script), folder=tmp_path).strip()
    assert cluster.wait_for(again, "COMPLETED")["ExitCode"] == "0:0"
    assert not any(compare_runs(home / "runs/straight", directory, STEPS).values())
    starts = [
        (directory / f"logs/attempt_{n}/environment.txt").read_text().splitlines()[-1]
        for n in (1, 2, 3)
    ]
    assert starts == [
        f"slurm job {job}, start 1 on n1",
        f"slurm job {job}, start 2 on n1",
        f"slurm job {again}, start 1 on n1",
    ]
    assert f"slurm: job {job}, start 2 on n1" in output(directory)


@pytest.mark.slow
def test_two_nodes_stop_together_and_equal_two_local_ranks(home: Path, cluster: Cluster) -> None:
    words = [word for word in WORDS if not word.startswith("run.max_steps")]
    steps = 8
    words += [f"run.max_steps={steps}"]
    running.run(home, *words, "run.name=local", "launcher=local", "launcher.num_processes=2")
    directory = home / "runs/job"
    running.run(home, *words, *JOB, "launcher.nodes=2", TOGETHER, "run.name=job")
    job = submitted(directory)
    wait_for_step(cluster, job, directory, 2)
    cluster.call("scancel", "--signal=USR1", job)
    cluster.start_again(job)
    assert 2 <= newest(directory) < steps
    assert cluster.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0", output(directory)
    assert not any(compare_runs(home / "runs/local", directory, steps).values())
    assert f"slurm: job {job}, start 2 on n[1-2]" in output(directory)
    assert (directory / "ranks/rank_1.log").is_file()


@pytest.mark.slow
def test_the_signal_before_the_time_limit_and_the_limit_itself(
    home: Path, cluster: Cluster
) -> None:
    """Slurm counts minutes: 1m with the signal 55 s before, then steps that outlast the signal."""
    words = [word for word in WORDS if not word.startswith("run.max_steps")]
    words += ["run.max_steps=100000", "launcher=slurm", "launcher.cpus_per_task=1"]
    running.run(home, *words, "launcher.time_limit=1m", "launcher.signal_before_s=45", "run.name=a")
    directory = home / "runs/a"
    job = submitted(directory)
    cluster.wait_for(job, "RUNNING")
    known = cluster.wait_for(job, "PENDING", seconds=150)
    assert known["Restarts"] == "1"
    assert output(directory).count("stopping after this step") == 1
    assert "back into the queue" in output(directory)
    cluster.call("scancel", job)

    # One step lasts longer than the signal leaves: SIGTERM comes twice at the limit, and is borne.
    late = ["batch.tasks_per_step=200", "method.group_size=24", "launcher.signal_before_s=1"]
    running.run(home, *words, *late, "launcher.time_limit=1m", "run.name=b")
    directory = home / "runs/b"
    job = submitted(directory)
    cluster.wait_for(job, "RUNNING")
    cluster.wait_for(job, "PENDING", "TIMEOUT", seconds=200)
    assert "DUE TO TIME LIMIT" in output(directory)
    assert "back into the queue" in output(directory)
    assert newest(directory) >= 1
    cluster.call("scancel", job)


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["main", "grace"])
def test_a_preempted_job_keeps_its_steps_and_comes_back(
    home: Path, cluster: Cluster, partition: str
) -> None:
    """Put back by Slurm itself in one partition, and by its own script in the other."""
    place = [f"launcher.partition={partition}", "run.name=job", "run.max_steps=5000"]
    running.run(home, *WORDS, *JOB, *place)
    directory = home / "runs/job"
    job = submitted(directory)
    wait_for_step(cluster, job, directory, 2)
    urgent = ["--partition=urgent", "--nodes=2", "--ntasks=2", "--cpus-per-task=2"]
    cluster.call("sbatch", *urgent, "--output=/dev/null", "--wrap=sleep 1", folder=home)
    assert cluster.wait_for(job, "PENDING")["Restarts"] == "1"
    cluster.call("scancel", job)
    cluster.wait_for(job, "CANCELLED")
    assert 2 <= newest(directory) == running.last_step(directory)
    assert ("back into the queue" in output(directory)) == (partition == "grace")


@pytest.mark.slow
def test_a_job_that_fails_is_not_put_back(home: Path, cluster: Cluster) -> None:
    words = [*WORDS, *JOB, "run.name=job", "checkpoint.every=1"]
    running.run(home, *words, "run.max_steps=1")
    directory = home / "runs/job"
    cluster.wait_for(submitted(directory), "COMPLETED")
    weights = directory / "checkpoints/step_000001/policy/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    running.run(home, "resume", "runs/job", "run.max_steps=3")
    ended = cluster.wait_for(submitted(directory), "FAILED")
    assert (ended["ExitCode"], ended["Restarts"], ended["Requeue"]) == ("2:0", "0", "1")
    assert "no whole checkpoint is left" in output(directory)


@pytest.mark.slow
def test_an_array_of_prepared_jobs(home: Path, cluster: Cluster) -> None:
    words = [word for word in WORDS if not word.startswith("run.max_steps")] + ["run.max_steps=12"]
    runs = [home / f"runs/r{seed}" for seed in range(4)]
    for seed in range(4):
        own = [*words, *JOB, "launcher.submit=false", f"seed={seed}", f"run.name=r{seed}"]
        running.run(home, *own)
    running.run(home, *words, "seed=3", "run.name=straight")
    submit = (
        "import sys; from pathlib import Path\n"
        "from selfdistill_cli.config.resolved import load_resolved\n"
        "from selfdistill_cli.launching.slurm import record, submit\n"
        "from selfdistill_cli.launching.slurm_script import render_array\n"
        "jobs = [Path(name) for name in sys.argv[1:]]\n"
        "settings = load_resolved(jobs[0].parent / 'config.yaml').launcher\n"
        "array = submit(render_array(settings, Path('sweep'), jobs, limit=2))\n"
        "for k, job in enumerate(jobs): record(job, f'{array}_{k}')\n"
        "print(array)"
    )
    jobs = [str(run / "slurm_job.json") for run in runs]
    done = subprocess.run(
        [sys.executable, "-c", submit, *jobs],
        cwd=home, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    array = done.stdout.strip()
    assert submitted(runs[3]) == f"{array}_3"
    wait_for_step(cluster, f"{array}_3", runs[3], 2)
    assert "nothing was submitted" in running.run(home, "resume", "runs/r3")
    cluster.call("scancel", "--signal=USR1", f"{array}_3")
    cluster.start_again(f"{array}_3")
    for k, run in enumerate(runs):
        cluster.wait_for(f"{array}_{k}", "COMPLETED", "FAILED")
        assert running.last_step(run) == 12, k
    assert not any(compare_runs(home / "runs/straight", runs[3], 12).values())
    assert (runs[3] / "logs/attempt_2").is_dir()
    assert len(list((home / "sweep/logs").glob(f"slurm_{array}_?.out"))) == 4


@pytest.mark.slow
def test_scripts_that_people_submit(home: Path, cluster: Cluster) -> None:
    cluster.environment |= {"PYTHON": sys.executable, "MASTER_ADDR": "left.over.example"}
    words = [w for w in WORDS[1:] if not w.startswith("run.max_steps")]
    script = (CHECKOUT / "launch/slurm/train.sbatch").read_text()
    own = home / "train.sbatch"
    local = "unset MASTER_ADDR MASTER_PORT\nexport MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo\n"
    own.write_text(script.replace("unset MASTER_ADDR MASTER_PORT\n", local))
    options = ["--parsable", "--nodes=2", "--cpus-per-task=1"]
    job = cluster.call(
        "sbatch", *options, str(own), *words, "run.max_steps=400", "run.name=r", folder=home
    ).strip()
    directory = home / "runs/r"
    wait_for_step(cluster, job, directory, 2)
    cluster.call("scancel", "--signal=USR1", job)
    cluster.start_again(job)
    first = newest(directory)
    wait_for_step(cluster, job, directory, first + 1)
    cluster.call("scancel", job)
    cluster.wait_for(job, "CANCELLED")
    assert newest(directory) > first
    said = (home / f"slurm_{job}.out").read_text()
    assert f"sbatch {own}" in said

    lines = [
        f"{sys.executable} -m selfdistill_cli train run.name=r{k} run.max_steps=1 {' '.join(words)}"
        for k in range(2)
    ]
    (home / "runs.txt").write_text("\n".join(lines) + "\n")
    array = cluster.call(
        "sbatch", "--parsable", "--array=0-2", "--cpus-per-task=1",
        str(CHECKOUT / "launch/slurm/array.sbatch"), "runs.txt", folder=home,
    ).strip()  # fmt: skip
    for k in range(2):
        cluster.wait_for(f"{array}_{k}", "COMPLETED")
        assert running.last_step(home / f"runs/r{k}") == 1
    assert cluster.wait_for(f"{array}_2", "FAILED")["ExitCode"] == "2:0"


@pytest.mark.slow
def test_a_sweep_is_an_array_whose_cells_are_in_its_ledger(home: Path, cluster: Cluster) -> None:
    words = [
        "train", "-m", "seed=1,2", *SHORT, "method.group_size=4,1", "launcher=slurm",
        "launcher.cpus_per_task=1", "launcher.time_limit=30m", "launcher.jobs=2",
    ]  # fmt: skip
    said = running.run(home, *words, expect=1)
    assert "2 pending, 2 invalid" in said, said
    (sweep,) = (home / "runs" / "multirun").iterdir()
    ledger = Ledger(sweep)
    started = {name: cell for name, cell in ledger.cells().items() if cell.status != "invalid"}
    assert {cell.values["method.group_size"] for cell in started.values()} == {"4"}
    again = running.run(home, *words, expect=1)
    assert "submitted" not in again, "every cell has a job already"
    for cell in started.values():
        assert cell.job is not None
        cluster.wait_for(cell.job, "COMPLETED")
    shown = running.run(home, "sweep", "status", str(sweep))
    assert "2 done, 2 invalid" in shown, shown
    for name in started:
        assert ledger.cells()[name].status == "done"
        assert running.last_step(sweep / name) == 2
        array, _, _ = str(started[name].job).partition("_")
        assert f"submitted array {array}: 2 cells" in said
    running.run(home, "sweep", "report", str(sweep))
    assert (sweep / "report" / "report.html").is_file()


@pytest.mark.slow
def test_cells_of_an_array_are_cancelled_from_the_ledger(home: Path, cluster: Cluster) -> None:
    words = [
        "train", "-m", "seed=1,2", *SHORT[:-1], "run.max_steps=500", "launcher=slurm",
        "launcher.cpus_per_task=1", "launcher.time_limit=30m",
    ]  # fmt: skip
    running.run(home, *words)
    (sweep,) = (home / "runs" / "multirun").iterdir()
    first, second = Ledger(sweep).cells().values()
    wait_for_step(cluster, str(first.job), sweep / first.name, 1)
    running.run(home, "sweep", "cancel", str(sweep))
    for cell in (first, second):
        cluster.wait_for(str(cell.job), "CANCELLED", "COMPLETED", "FAILED")
        assert Ledger(sweep).cells()[cell.name].status == "cancelled"
    assert newest(sweep / first.name) >= 1


@pytest.mark.slow
def test_failed_cells_of_an_array_start_again_and_nowhere_else(
    home: Path, cluster: Cluster
) -> None:
    words = ["train", "-m", "seed=1,2", *SHORT, "launcher.cpus_per_task=1", "launcher=slurm"]
    running.run(home, *words, "launcher.setup=[exit 3]")
    (sweep,) = (home / "runs" / "multirun").iterdir()
    for cell in Ledger(sweep).cells().values():
        cluster.wait_for(str(cell.job), "FAILED")
    running.run(home, *words, expect=1)
    said = running.run(home, "sweep", "retry", str(sweep))
    assert "2 cells; scancel" in said, said
    here = [word for word in words if not word.startswith("launcher")]
    said = running.run(home, *here, expect=2)
    assert "Slurm has jobs of this sweep: seed_1 (job" in said, said
    for cell in Ledger(sweep).cells().values():
        cluster.wait_for(str(cell.job), "COMPLETED")
    said = running.run(home, *words, "run.max_steps=3")
    assert "2 cells; scancel" in said, said
    for cell in Ledger(sweep).cells().values():
        cluster.wait_for(str(cell.job), "COMPLETED")
        assert running.last_step(sweep / cell.name) == 3
