"""launcher=k8s: the manifest that is written, what its pods do with exit codes and SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from running import finish, run, start

from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.launching.kubernetes import apply, job_name, render

WORDS = ["launcher=k8s", "launcher.image=registry/selfdistill:1", "launcher.volume_claim=runs"]
SMALL = ["debug=fast", "run.max_steps=1", "run.name=My_run.1", "eval.every=0"]


def manifest(*words: str) -> dict[str, Any]:
    launcher: Any = compose([*WORDS, *words]).settings.launcher
    return yaml.safe_load(render(launcher, Path("/data/runs/My_run.1")))


def test_a_manifest_is_a_pytorch_job() -> None:
    job = manifest("launcher.num_processes=4", "launcher.gpus=1", "launcher.grace_s=900")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert job["metadata"]["name"] == "my-run-1"
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] in ("Running", "All", "None")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {kind: spec["replicas"] for kind, spec in replicas.items()} == {"Master": 1, "Worker": 3}
    for spec in replicas.values():
        assert spec["restartPolicy"] == "ExitCode"
        pod = spec["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == 900
        (container,) = pod["containers"]
        assert container["name"] == "pytorch"  # the operator looks for this name
        assert container["args"] == ["selfdistill", "resume", "/data/runs/My_run.1"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted["data"] == "/data"
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
        assert "${" not in str(spec)


def test_one_rank_needs_no_worker_and_no_gpu_is_asked_for_where_none_is_wanted() -> None:
    job = manifest("launcher.gpus=0")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert list(replicas) == ["Master"]
    limits = replicas["Master"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "8", "memory": "64Gi"}


def pod(*command: str) -> subprocess.Popen[bytes]:
    """Start what a pod starts, with another command in it."""
    job = manifest()["spec"]["pytorchReplicaSpecs"]["Master"]
    container = job["template"]["spec"]["containers"][0]
    return subprocess.Popen([*container["command"], *command], start_new_session=True)


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (1, 1), (2, 2), (75, 143), (137, 137)])
def test_a_preempted_pod_is_started_again_and_errors_are_final(code: int, seen: int) -> None:
    assert pod("/bin/sh", "-c", f"exit {code}").wait(20) == seen
    assert (seen >= 128) == (code in (75, 137))  # what `restartPolicy: ExitCode` starts again


def test_a_pod_hands_on_the_signal_and_waits_for_the_checkpoint(tmp_path: Path) -> None:
    script = f"trap 'sleep 1; touch {tmp_path}/saved; exit 75' TERM; touch {tmp_path}/up\n"
    process = pod("/bin/sh", "-c", script + "while true; do sleep 0.1; done")
    end = time.monotonic() + 20
    while not (tmp_path / "up").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)  # as kubelet does: the pod's first process alone
    assert process.wait(20) == 143
    assert (tmp_path / "saved").exists()


def test_the_command_writes_a_run_that_its_pods_continue(tmp_path: Path) -> None:
    own = ["launcher.mount=" + str(tmp_path), f"run.root={tmp_path}/runs"]
    said = run(tmp_path, "train", *SMALL, *WORDS, *own)
    file = tmp_path / "runs/My_run.1/pytorchjob.yaml"
    assert f"written, not applied: kubectl apply -f {file}" in said
    spec = yaml.safe_load(file.read_text())["spec"]["pytorchReplicaSpecs"]["Master"]
    words = spec["template"]["spec"]["containers"][0]["args"]
    said = run(tmp_path, *words[1:])  # what the pod does
    assert (tmp_path / "runs/My_run.1/checkpoints/step_000001").is_dir(), said
    run(tmp_path, "train", *SMALL, *WORDS, *own)  # once more: the same run, written again


def test_a_run_that_pods_could_not_see_is_refused(tmp_path: Path) -> None:
    code, out, err = finish(start(tmp_path, "train", *SMALL, *WORDS))
    assert code == 2
    assert "run.root: got 'runs', which is not below launcher.mount=/data" in out + err
    assert "Traceback" not in out + err
    assert not (tmp_path / "runs").exists()


def test_kubectl_is_called_and_its_refusal_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no command kubectl-of-nobody here"):
        apply("kubectl-of-nobody", tmp_path / "m.yaml")
    good, bad, lost = (tmp_path / name for name in ("good", "bad", "lost"))
    good.write_text('#!/bin/sh\necho "$@"\n')
    bad.write_text("#!/bin/sh\necho 'no such namespace' >&2\nexit 1\n")
    lost.write_text("#!/bin/sh\necho 'Unable to connect to the server: refused' >&2\nexit 1\n")
    for file in (good, bad, lost):
        file.chmod(0o755)
    assert apply(str(good), tmp_path / "m.yaml") == f"apply -f {tmp_path}/m.yaml"
    with pytest.raises(ConfigError, match="no such namespace"):
        apply(str(bad), tmp_path / "m.yaml")
    with pytest.raises(RunError, match="Unable to connect"):
        apply(str(lost), tmp_path / "m.yaml")


@pytest.mark.parametrize(
    ("run_name", "expected"),
    [("gear-code_S0.1", "gear-code-s0-1"), ("7b", "run-7b"), ("a" * 80, "a" * 50)],
)
def test_names_that_kubernetes_takes(run_name: str, expected: str) -> None:
    assert job_name(run_name) == expected
