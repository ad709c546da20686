"""Control groups: found in the text of /proc, and used for real where the machine lets us.

Limits on memory and processes need a hierarchy of version 2 with these controllers switched on
below a group that we may write to. Where there is none, the way in and out of a group is tested
on whatever hierarchy of version 2 there is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selfdistill_cli.sandbox import groups
from selfdistill_cli.sandbox.jobs import CallJob
from selfdistill_cli.sandbox.sandbox import Sandbox

HYBRID = """\
32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTED_PART = "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
BASE = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("mountinfo", "membership", "expected"),
    [
        (UNIFIED, "0::/\n", [BASE]),
        (UNIFIED, "0::/user.slice/a.scope\n", [
            f"{BASE}/user.slice/a.scope", f"{BASE}/user.slice", BASE]),
        (MOUNTED_PART, "0::/docker/abc/leaf\n", [f"{BASE}/leaf", BASE]),
        (MOUNTED_PART, "0::/docker/abc\n", [BASE]),
        (HYBRID, "4:memory:/x\n0::/\n", [f"{BASE}/unified"]),
        (HYBRID.splitlines()[0], "4:memory:/x\n", []),
        (UNIFIED, "4:memory:/x\n", []),
        ("", "", []),
    ],
)  # fmt: skip
def test_groups_above_this_process(mountinfo: str, membership: str, expected: list[str]) -> None:
    assert [str(path) for path in groups.ancestors(mountinfo, membership)] == expected


@pytest.fixture
def below(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A group that takes groups of ours, with no demand on its controllers if it has none."""
    found = groups.parent()
    if found is None:
        monkeypatch.setattr(groups, "CONTROLLERS", ())
        found = groups.parent()
    if found is None:
        pytest.skip("there is no control group of version 2 that can be written to")
    yield found
    assert not list(found.glob(f"{groups.PREFIX}{os.getpid()}-*"))


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_a_fork_server_lives_in_its_group(
    below: Path, make_sandbox: Callable[..., Sandbox], level: str
) -> None:
    box = make_sandbox(level=level)
    assert box.level.endswith(" + cgroup")
    (group,) = below.glob(f"{groups.PREFIX}{os.getpid()}-*")
    worker = box._seats[0].worker
    assert worker is not None
    members = (group / "cgroup.procs").read_text().split()
    assert str(worker._process.pid) in members
    job = CallJob(program="def f(x): return x", entry_point="f", calls=((1,),))
    assert box.run_calls([job])[0].results[0].value == 1
    box.close()
    assert not group.exists()


def test_limits_are_set(below: Path) -> None:
    if not set(groups.CONTROLLERS):
        pytest.skip("no hierarchy with memory and pids controllers can be written to here")
    group = groups.Group(below, groups.limits(64 << 20))
    try:
        assert (group.path / "memory.max").read_text().strip() == str(64 << 20)
        assert (group.path / "pids.max").read_text().strip() == str(groups.MAX_PROCESSES)
    finally:
        group.close()


def test_processes_in_a_group_die_with_it(below: Path) -> None:
    group = groups.Group(below, groups.limits(1 << 30))
    with subprocess.Popen(group.wrap(["/bin/sh", "-c", "sleep 60 & sleep 60"])) as process:
        while len((group.path / "cgroup.procs").read_text().split()) < 2:
            assert process.poll() is None
        group.close()
        assert process.wait(timeout=5) == -9
    assert not group.path.exists()


def test_groups_of_dead_owners_are_swept_away(below: Path) -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(timeout=5)
    left = below / f"{groups.PREFIX}{process.pid}-1"
    left.mkdir()
    groups.Group(below, {}).close()
    assert not left.exists()
