"""Settings of the launchers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import ClassVar

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

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "timeout_s")


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """`launcher=local`: several processes on this machine, started and watched by the command."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.local:Local"

    num_processes: int
    """Ranks to start: one per GPU, or a few on a CPU."""
    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""

    def __post_init__(self) -> None:
        in_range(self, 1, 1024, "num_processes")
        in_range(self, 1, inf, "timeout_s")


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings(Settings):
    """`launcher=k8s`: a PyTorchJob of Kubeflow's training operator, one rank in each pod."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.kubernetes:Kubernetes"

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
