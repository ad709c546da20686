"""A real Slurm on this machine: munged, slurmctld and two nodes, in a folder of their own.

    python tests/slurm/cluster.py FOLDER        start one, say how to use it, stop it with Ctrl-C

Needs root and the packages slurm-wlm and munge. Nothing outside the folder is changed: the munge
key, its socket, the configuration, logs and process ids are in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
NODES = ("n1", "n2")
LIMIT_S = 60
"""How long a daemon may take to start or to stop on a busy machine."""
KILL_WAIT_S = 30
"""Between SIGTERM and SIGKILL, as it is on most clusters."""
STOPS = (signal.SIGINT, signal.SIGTERM)
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
"""States of a job that will not run again."""
REVOKED_S = 3
"""A node refuses a job that comes back in the second in which it was put back."""

CONFIGURATION = """\
ClusterName=selfdistill
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobRequeue=1
KillWait={kill_wait}
MessageTimeout=60
ReturnToService=2
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmdLogFile={folder}/slurmd_%n.log
SlurmdSpoolDir={folder}/spool_%n
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=n1,n2 Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=grace Nodes=n1,n2 PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=urgent Nodes=n1,n2 PriorityTier=2
"""


def missing() -> str | None:
    """Why there can be no cluster here, None if there can."""
    if os.geteuid() != 0:
        return "starting Slurm takes root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (tests/slurm/install.sh)" if absent else None


class Cluster:
    """The daemons and what is asked of them; `environment` is what a command needs to reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SLURM_")},
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def start(self) -> None:
        """Start the daemons and wait until both nodes take jobs. Raises RuntimeError."""
        for name in ("state", *(f"spool_{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        configuration = CONFIGURATION.format(
            folder=self.folder, ports=_free_ports(3), kill_wait=KILL_WAIT_S
        )
        (self.folder / "slurm.conf").write_text(configuration)
        places = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid",
                  "log-file": "munged.log", "seed-file": "munge.seed"}  # fmt: skip
        self._daemon("munged", "--force", *(f"--{k}={self.folder / v}" for k, v in places.items()))
        self._daemon("slurmctld", "-c")
        for node in NODES:
            self._daemon("slurmd", "-c", "-N", node)
        end = time.monotonic() + LIMIT_S
        while self._idle_nodes() < len(NODES):
            if time.monotonic() > end:
                raise RuntimeError(f"the nodes did not come up:\n{self._last_logs()}")
            time.sleep(0.2)

    def _daemon(self, *words: str) -> None:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}\n{self._last_logs()}")

    def _idle_nodes(self) -> int:
        words = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return len(done.stdout.split())

    def _last_logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-600:]}" for log in logs)

    def stop(self) -> None:
        """End all jobs, then the daemons, by the process ids that they wrote down."""
        if (self.folder / "slurmctld.pid").exists():
            for words in (["scancel", "--signal=KILL", "--user=root"], ["scancel", "--user=root"]):
                subprocess.run(words, env=self.environment, capture_output=True, timeout=LIMIT_S)
            end = time.monotonic() + LIMIT_S
            while self.call("squeue", "--noheader").strip() and time.monotonic() < end:
                time.sleep(0.2)
        names = [*(f"slurmd_{node}.pid" for node in NODES), "slurmctld.pid", "munged.pid"]
        for path in (self.folder / name for name in names):
            if path.exists():
                _end(int(path.read_text()))

    def call(self, *words: str, folder: Path | None = None) -> str:
        """Run one of Slurm's commands; return what it says. Raises CalledProcessError."""
        return subprocess.run(
            words, env=self.environment, cwd=folder, capture_output=True, text=True,
            timeout=LIMIT_S, check=True,
        ).stdout  # fmt: skip

    def job(self, job: str) -> dict[str, str]:
        """What the cluster knows of a job: JobState, Reason, Restarts, ExitCode and more."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, job: str, *states: str, seconds: float = 200) -> dict[str, str]:
        """Wait until a job is in one of the states. Raises AssertionError."""
        end = time.monotonic() + seconds
        while (known := self.job(job))["JobState"] not in states:
            waits = time.monotonic() < end and known["JobState"] not in OVER
            assert waits, f"job {job} is {known['JobState']}, expected {states}"
            time.sleep(0.2)
        return known

    def start_again(self, job: str) -> None:
        """Let a job that was put back start soon, and not after the two minutes that it waits."""
        self.wait_for(job, "PENDING")
        time.sleep(REVOKED_S)
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("0.0.0.0", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def _end(process: int) -> None:
    """Ask a daemon to end, and end it."""
    end = time.monotonic() + LIMIT_S / 4
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
        while time.monotonic() < end:
            os.kill(process, 0)
            time.sleep(0.05)
        os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that is stopped at the end, whatever happens."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    with running_cluster(Path(sys.argv[1]).resolve()) as own:
        print(f"export SLURM_CONF={own.environment['SLURM_CONF']}", flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        signal.sigwait(STOPS)
