"""What Trackio gets; runs in the process of `sink_worker.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Report = Callable[[str, str], None]


def start(first: dict[str, Any], report: Report) -> Copy | None:
    """Return the copy, or None if the package cannot be used."""
    try:
        import trackio
    except ImportError as error:
        report("refused", f"cannot import trackio ({error})")
        return None
    report("ready", "")
    return Copy(trackio, first)


class Copy:
    """The run in Trackio's database, written anew by each attempt."""

    def __init__(self, trackio: Any, first: dict[str, Any]):
        self.trackio = trackio
        self.first = first
        self.run: Any = None

    def begin(self) -> None:
        """Put an empty run in place of what earlier attempts wrote under its name."""
        project, name = self.first["project"], self.first["run_name"]
        with contextlib.suppress(ValueError):  # how Trackio says that there is no such project
            for run in list(self.trackio.Api().runs(project)):
                if run.name == name:
                    run.delete()
        self.run = self.trackio.init(
            project=project,
            name=name,
            group=self.first["group"],
            config=self.first["config"],
            resume="never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def log(self, order: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        """One line."""
        row: dict[str, Any] = dict(order["metrics"])
        if samples:
            row["samples"] = self.trackio.Markdown("\n\n".join(map(_shown, samples)))
        self.run.log(row, step=order["step"])

    def finish(self, status: str) -> None:
        """Wait until everything is in the database."""
        if self.run is not None:
            self.run.finish()


def _shown(sample: dict[str, Any]) -> str:
    head = f"**{sample['task']}** reward {sample['reward']}, success {sample['success']}"
    blocks = [
        "\n".join(f"    {line}" for line in sample[part].splitlines())
        for part in ("prompt", "answer")
    ]
    return "\n\n".join([head, *blocks])
