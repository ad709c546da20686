"""Train as a PyTorchJob: render its manifest into the run directory, apply it if asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.launching.settings import InlineSettings, KubernetesSettings
from selfdistill_cli.training.files import launch_folder, write_text
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.settings import TrainSettings

MANIFEST = "pytorchjob.yaml"
PATIENCE_S = 120
"""How long kubectl may take."""


class Kubernetes:
    """Composes once; the pods continue the run directory that this process makes."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self.settings = settings

    def launch(self, settings: TrainSettings, container: Mapping[str, Any], display: Any) -> int:
        """Write the manifest and apply it if asked; `settings.run.name` is set. Returns 0.

        Raises ConfigError for a run directory that pods cannot see, a kubectl that is not there,
        or a manifest that the cluster refuses; RunError if the cluster does not answer.
        """
        directory = RunDirectory(Path(settings.run.root).resolve() / str(settings.run.name))
        mount = Path(self.settings.mount)
        if mount not in directory.path.parents:
            raise ConfigError(
                f"run.root: got '{settings.run.root}', which is not below launcher.mount={mount}; "
                "every pod must see the run directory under the same path: mount the volume of "
                f"launcher.volume_claim here, and use run.root={mount}/runs"
            )
        inline = {
            "_target_": _named(InlineSettings), "timeout_s": self.settings.timeout_s, "jobs": None,
        }  # fmt: skip
        directory.prepare({**container, "launcher": inline}, settings.resume)
        directory.close()
        manifest = directory.path / MANIFEST
        write_text(manifest, render(self.settings, directory.path))
        if self.settings.submit:
            display.message(apply(self.settings.kubectl, manifest))
        else:
            display.message(f"written, not applied: {self.settings.kubectl} apply -f {manifest}")
        return 0


def render(settings: KubernetesSettings, directory: Path) -> str:
    """The manifest of a run directory, without anchors, as YAML."""
    resources = {"cpu": str(settings.cpus), "memory": settings.memory}
    if settings.gpus:
        resources["nvidia.com/gpu"] = str(settings.gpus)
    values = {
        "NAME": job_name(directory.name),
        "NAMESPACE": settings.namespace,
        "GRACE_S": settings.grace_s,
        "IMAGE": settings.image,
        "WORKING_DIR": settings.mount,
        "COMMAND": ["selfdistill", "resume", str(directory)],
        "RESOURCES": resources,
        "MOUNT": settings.mount,
        "VOLUME_CLAIM": settings.volume_claim,
        "WORKERS": settings.num_processes - 1,
    }
    template = (launch_folder("k8s") / MANIFEST).read_text()
    filled = re.sub(r"\$\{([A-Z_]+)\}", lambda found: json.dumps(values[found[1]]), template)
    manifest = yaml.safe_load(filled)
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    if settings.num_processes == 1:
        del replicas["Worker"]
    return yaml.dump(manifest, Dumper=_Plain, sort_keys=False)


def _named(settings_class: type[Any]) -> str:
    return f"{settings_class.__module__}.{settings_class.__qualname__}"


class _Plain(yaml.SafeDumper):
    """Writes shared parts out: kubectl reads anchors, people should not have to."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def job_name(run: str) -> str:
    """A name that Kubernetes takes: lower-case letters, digits, dashes; at most 50 characters."""
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:50].strip("-")
    return plain if plain[:1].isalpha() else f"run-{plain}".strip("-")


def apply(kubectl: str, manifest: Path) -> str:
    """Give a manifest to the cluster; return what kubectl said."""
    if shutil.which(kubectl) is None:
        raise ConfigError(
            f"launcher.kubectl: there is no command {kubectl} here. The manifest is written: apply "
            f"it on a machine that reaches the cluster with\n  kubectl apply -f {manifest}\n"
            "launcher.submit=false writes it without trying"
        )
    try:
        done = subprocess.run(
            [kubectl, "apply", "-f", str(manifest)],
            capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{kubectl} did not answer within {PATIENCE_S} s") from error
    if done.returncode != 0:
        said = done.stderr.strip()
        kind = RunError if "Unable to connect" in said else ConfigError
        raise kind(f"{kubectl} refused {manifest}:\n{said}")
    return done.stdout.strip()
