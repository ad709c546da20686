"""What a program could change about a file that it may not write: times, length, mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attacking import body, run

from selfdistill_cli.sandbox.inside import confine, seccomp
from selfdistill_cli.sandbox.sandbox import Sandbox

CHANGES = {
    "times": "os.utime(path, (5, 5))",
    "length": "os.truncate(path, 0)",
    "length, opened": "os.open(path, os.O_RDONLY | os.O_TRUNC)",
    "mode": "os.chmod(path, 0o777)",
    "owner": "os.chown(path, 0, 0)",
    "attribute": "os.setxattr(path, 'user.x', b'1')",
}
# utime, utimes, utimensat, futimesat, truncate, chmod, fchmod, fchmodat, chown, fchown, lchown,
# fchownat, setxattr, lsetxattr, fsetxattr, removexattr, mknod, link, symlink, fallocate, fchmodat2
BY_PATH = {
    "x86_64": (132, 235, 280, 261, 76, 90, 91, 268, 92, 93, 94, 260, 188, 189, 190, 197, 133, 86,
               88, 285, 452),
    "aarch64": (88, 45, 52, 53, 54, 55, 5, 6, 7, 14, 33, 37, 36, 47, 452),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_files_and_devices_keep_their_metadata(sandbox: Sandbox, name: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    paths = [str(victim), "/dev/null", "."]
    program = body(
        "import os\nfound = []\n"
        f"for path in {paths!r}:\n    try:\n        {CHANGES[name]}\n"
        "        found.append(path)\n    except OSError: pass\nreturn found"
    )
    before = os.stat(victim), os.stat("/dev/null")
    changed = run(sandbox, program, 1).results[0].value
    after = os.stat(victim), os.stat("/dev/null")
    # /dev/null may be opened for writing, and has no length to lose.
    assert changed in ([], ["/dev/null"] if name == "length, opened" else [])
    assert victim.read_text() == "mine"
    for old, new in zip(before, after, strict=True):
        assert (old.st_mtime_ns, old.st_ctime_ns, old.st_mode, old.st_uid) == (
            new.st_mtime_ns, new.st_ctime_ns, new.st_mode, new.st_uid,
        )  # fmt: skip


@pytest.mark.parametrize("sandbox", ["bubblewrap"], indirect=True)
def test_the_scratch_folder_tells_the_next_program_nothing(sandbox: Sandbox) -> None:
    look = body("import os\ns = os.stat('.')\nreturn [s.st_mtime_ns, s.st_ctime_ns, s.st_ino]")
    leave = body(
        "import os, time\nopen('a', 'w').close()\nos.unlink('a')\n"
        "s = os.stat('.')\nreturn [s.st_mtime_ns, s.st_ctime_ns]"
    )
    left = run(sandbox, leave, 1).results[0].value
    seen = run(sandbox, look, 1).results[0].value
    assert seen[0] != left[0]
    assert seen[1] != left[1]


def test_a_program_may_still_shorten_a_file_of_its_own(sandbox: Sandbox) -> None:
    if not sandbox.level.startswith("bubblewrap"):
        pytest.skip("no scratch folder")
    program = body(
        "import pathlib, shutil, tempfile\n"
        "with tempfile.TemporaryDirectory(dir='.') as folder:\n"
        "    p = pathlib.Path(folder) / 'a'\n    p.write_text('abc')\n    p.touch()\n"
        "    with p.open('r+') as file: file.truncate(1)\n"
        "    shutil.copyfile(p, p.with_name('b'))\n"
        "    return p.with_name('b').read_text()"
    )
    assert run(sandbox, program, 1).results[0].value == "a"


@pytest.mark.parametrize("column", ["x86_64", "aarch64"])
def test_no_call_that_changes_metadata_is_listed(column: str) -> None:
    index = ("x86_64", "aarch64").index(column)
    listed = {numbers[index] for numbers in seccomp.ALLOWED.values()}
    assert not listed & set(BY_PATH[column])


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_landlock_is_refused(version: int) -> None:
    with pytest.raises(OSError, match=r"emptying files; version 3, of Linux 6\.2"):
        confine.file_rights(version)


def test_a_landlock_that_stops_truncation_is_taken_whole() -> None:
    assert [confine.file_rights(v).bit_length() for v in (3, 4, 5, 7)] == [15, 15, 16, 16]
