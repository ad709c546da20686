"""Reads what wandb wrote offline: LevelDB log framing around protobuf records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = 7


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file; a torn end is left out."""
    from wandb.proto import wandb_internal_pb2 as pb

    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, buffer = HEADER, b""
    while position + HEADER <= len(data):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        position += HEADER
        if kind == 0 or position + length > len(data):
            break
        buffer += data[position : position + length]
        position += length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield pb.Record.FromString(buffer)
            buffer = b""


def contents(path: Path) -> dict[str, Any]:
    """Return `history` (list of rows), `config`, `summary`, `run` and `exit_code` of a file."""
    out: dict[str, Any] = {"history": [], "config": {}, "summary": {}, "exit_code": None}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            out["history"].append(_items(record.history.item))
        elif kind == "run":
            out["run"] = record.run
            out["config"].update(_items(record.run.config.update))
        elif kind == "config":
            out["config"].update(_items(record.config.update))
        elif kind == "summary":
            out["summary"].update(_items(record.summary.update))
        elif kind == "exit":
            out["exit_code"] = record.exit.exit_code
    return out


def _items(items: Any) -> dict[str, Any]:
    return {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}
