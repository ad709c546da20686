"""Two machines, as network namespaces joined by a cable: one run by the script for several."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import running
from starting import CHECKOUT


def ip(*words: str) -> None:
    """Call `ip`, or raise with what it said."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Names of two namespaces with the addresses 10.99.0.1 and 10.99.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("making network namespaces takes `ip` and root")
    names = [f"machine{os.getpid()}{letter}" for letter in "ab"]
    cables = [f"veth{os.getpid()}{letter}"[-15:] for letter in "ab"]
    made: list[str] = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "link", "set", cable, "name", "eth0")
            ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.slow
def test_two_machines_train_one_run(tmp_path: Path, machines: list[str]) -> None:
    words = ["method=grpo", *running.SMALL, "run.name=r", "eval.every=0", "run.max_steps=1"]
    script = str(CHECKOUT / "launch/local/torchrun.sh")
    shared = {
        "NODES": "2", "HEAD": "10.99.0.1", "PROCESSES": "1", "PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
    }  # fmt: skip
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, script, *words, "zero=zero2"],
            env={**os.environ, **shared, "NODE_RANK": str(number)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, name in enumerate(machines)
    ]
    for process in started:
        code, out, err = running.finish(process, 300)
        assert code == 0, out + err
    assert [line["step"] for line in running.numbers(tmp_path / "runs/r")] == [1]
    assert (tmp_path / "runs/r/ranks/rank_1.log").is_file()
