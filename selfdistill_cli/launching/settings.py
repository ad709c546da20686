"""Settings of the launchers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from selfdistill_cli.core.durations import seconds_of
from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class InlineSettings(Settings):
    """`launcher=inline`: the process that the command was given in.

    Started by torchrun or deepspeed it is one rank of several, as RANK and WORLD_SIZE say.
    """

    implementation: ClassVar[str] = "selfdistill_cli.launching.inline:Inline"

    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""
    jobs: int | None
    """Cells of a sweep that run at once; null: as many as cores and GPUs carry."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "timeout_s")
        in_range(self, 1, 10**6, "jobs")


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """`launcher=local`: several processes on this machine, started and watched by the command."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.local:Local"

    num_processes: int
    """Ranks to start: one per GPU, or a few on a CPU."""
    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""
    jobs: int | None
    """Cells of a sweep that run at once; null: as many as cores and GPUs carry."""

    def __post_init__(self) -> None:
        in_range(self, 1, 1024, "num_processes")
        in_range(self, 1, inf, "timeout_s")


@dataclass(frozen=True, kw_only=True)
class SlurmSettings(Settings):
    """`launcher=slurm`: a batch script in the run directory, given to `sbatch`.

    The job stops with a checkpoint before its time limit and puts itself back into the queue.
    """

    implementation: ClassVar[str] = "selfdistill_cli.launching.slurm:Slurm"
    starts_later: ClassVar[bool] = True
    """The processes start later and elsewhere: what can be wrong with files is told now."""

    nodes: int
    """Machines of the job."""
    num_processes: int
    """Ranks on each machine: one per GPU, or one."""
    cpus_per_task: int
    """CPUs of each rank, for its threads and its sandbox workers."""
    gpus_per_node: int | str | None
    """GPUs of each machine, with a kind if need be (a100:4); null asks for none."""
    memory: str | int | None
    """Memory of each machine, such as 64G (a bare number is MB); null leaves it to the cluster."""
    time_limit: str | int | None
    """How long one start may take: 3h50m, or as Slurm writes it, 1-12:00:00; null is the
    partition's limit."""
    signal_before_s: int
    """Seconds before the time limit at which the run is asked to stop with a checkpoint: longer
    than a step with its checkpoint. Slurm may ask up to 60 s earlier."""
    partition: str | None
    """Partition; null is the cluster's default, as for the next two."""
    account: str | None
    """Account that pays."""
    qos: str | None
    """Quality of service."""
    extra: list[str]
    """More options of sbatch, each as on its command line: --constraint=h100, --exclusive."""
    setup: list[str]
    """Commands of bash that run on the first machine before the ranks start: module load cuda."""
    requeue: bool
    """Whether a job that was stopped with work left puts itself back into the queue."""
    submit: bool
    """false writes the script and says how to submit it."""
    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""
    jobs: int | None
    """Cells of a sweep that run at once; null: as many as the cluster gives."""

    def __post_init__(self) -> None:
        in_range(self, 1, 10**5, "nodes", "signal_before_s")
        in_range(self, 1, 10**6, "jobs")
        in_range(self, 1, 1024, "num_processes", "cpus_per_task")
        in_range(self, 1, inf, "timeout_s")
        if isinstance(self.gpus_per_node, int):
            in_range(self, 1, 1024, "gpus_per_node")
        _one_line(self, "gpus_per_node", "partition", "account", "qos")
        if self.memory is not None and not re.fullmatch(r"\d+[KMGT]?", str(self.memory), re.I):
            raise FieldError("memory", f"'{self.memory}'", "a size such as 64G or 500M, or null")
        limit = self.limit_s
        if limit is not None and limit <= self.signal_before_s:
            raise FieldError(
                "signal_before_s", self.signal_before_s,
                f"less than launcher.time_limit={self.time_limit}",
            )  # fmt: skip
        for option in self.extra:
            if not re.fullmatch(r"--?[A-Za-z][^\n\r]*", option):
                raise FieldError("extra", f"'{option}'", "options of sbatch such as --exclusive")

    @property
    def limit_s(self) -> int | None:
        """The time limit in seconds; raises FieldError."""
        if self.time_limit is None:
            return None
        text = str(self.time_limit)
        found = _SLURM_TIME.fullmatch(text)
        if found:
            days, hours, minutes, seconds = (int(x or 0) for x in found.groups())
            whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        else:
            whole = _whole_seconds(text)
        if whole < 1:
            raise FieldError(
                "time_limit", f"'{text}'", "a length of time such as 3h50m, 45m or 1-12:00:00"
            )
        return whole


_SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


def _whole_seconds(text: str) -> int:
    """Seconds, 0 if it is no length of time; a bare number is seconds to us, minutes to Slurm."""
    try:
        return 0 if text[-1:].isdigit() else math.ceil(seconds_of(text))
    except (ValueError, OverflowError):
        return 0


def _one_line(settings: SlurmSettings, *fields: str) -> None:
    """Raise FieldError unless each of the fields is one word (or no text at all)."""
    for name in fields:
        value = getattr(settings, name)
        if isinstance(value, str) and not re.fullmatch(r"[^\s\"'\\]+", value):
            raise FieldError(name, f"'{value}'", "one word")


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings(Settings):
    """`launcher=k8s`: a PyTorchJob of Kubeflow's training operator, one rank in each pod."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.kubernetes:Kubernetes"
    starts_later: ClassVar[bool] = True

    image: str
    """Image with this package installed."""
    num_processes: int
    """Ranks: pods of the job, the master among them."""
    gpus: int
    """GPUs of a pod: 1 for a rank on a GPU, 0 for a rank on CPUs."""
    cpus: int
    """CPUs of a pod."""
    memory: str
    """Memory of a pod, such as 64Gi."""
    namespace: str
    """Namespace of the job."""
    volume_claim: str
    """PersistentVolumeClaim with run.root, models and data; every pod mounts it."""
    mount: str
    """Where it is mounted: the run directory must lie below, here as in the pods."""
    grace_s: int
    """Seconds between SIGTERM and the end of a pod: a step and a checkpoint must fit in."""
    kubectl: str
    """Command that `submit` calls."""
    submit: bool
    """true applies the manifest; false writes it and says how to apply it."""
    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""

    def __post_init__(self) -> None:
        in_range(self, 1, 10**4, "num_processes")
        in_range(self, 0, 64, "gpus")
        in_range(self, 1, 1024, "cpus")
        in_range(self, 1, 86400, "grace_s")
        in_range(self, 1, inf, "timeout_s")
        if not re.fullmatch(r"\d+(Ki|Mi|Gi|Ti)?", self.memory):
            raise FieldError("memory", f"'{self.memory}'", "a quantity such as 64Gi")
        if not self.mount.startswith("/"):
            raise FieldError("mount", f"'{self.mount}'", "an absolute path")
