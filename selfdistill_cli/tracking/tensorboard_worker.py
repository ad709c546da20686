"""What TensorBoard gets; runs in the process of `sink_worker.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[str, str], None]


def start(first: dict[str, Any], report: Report) -> Copy | None:
    """Return the copy, or None if the package cannot be used."""
    try:
        # Not torch's SummaryWriter: this process would hold all of torch for it.
        import tensorboard.summary.writer.event_file_writer  # noqa: F401
    except ImportError as error:
        report("refused", f"cannot import tensorboard ({error})")
        return None
    report("ready", "")
    return Copy(first)


class Copy:
    """The event file of one attempt, which holds the lines of the earlier ones too."""

    def __init__(self, first: dict[str, Any]):
        self.folder = Path(first["folder"])
        self.config = first["config"]
        self.writer: Any = None

    def begin(self) -> None:
        """Put an empty file in place of those of earlier attempts."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        old = list(self.folder.glob("events.out.tfevents.*"))
        self.writer = EventFileWriter(str(self.folder), flush_secs=5)
        for path in old:
            path.unlink(missing_ok=True)
        text = json.dumps(self.config, indent=2)
        self._write(0, [_text("config", f"```\n{text}\n```")])

    def log(self, order: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        """One line."""
        self._write(order["step"], [*_scalars(order["metrics"]), *_texts(samples)])

    def finish(self, status: str) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()

    def _write(self, step: int, values: list[Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        summary = summary_pb2.Summary(value=values)
        self.writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))


def _scalars(metrics: dict[str, float]) -> list[Any]:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return [
        Summary.Value(tag=key, simple_value=float(value))
        for key, value in metrics.items()
        if isinstance(value, int | float)
    ]


def _texts(samples: list[dict[str, Any]]) -> list[Any]:
    """One text with all samples of a step."""
    blocks = [
        "\n".join(
            [
                f"**{sample['task']}** reward {sample['reward']}, success {sample['success']}, "
                f"{sample['stop']}",
                *(_fenced(sample[part]) for part in ("prompt", "answer")),
            ]
        )
        for sample in samples
    ]
    return [_text("samples", "\n\n".join(blocks))] if blocks else []


def _fenced(text: str) -> str:
    """A text as a block that shows it as it is, also if it holds a fence itself."""
    return "\n" + "\n".join(f"    {line}" for line in text.splitlines()) + "\n"


def _text(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    raw = text.encode(errors="backslashreplace")
    return Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=tag, description=""),
        tensor=TensorProto(dtype=DT_STRING, string_val=[raw], tensor_shape=shape),
    )
