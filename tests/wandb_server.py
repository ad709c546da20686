"""A stand-in for the W&B server on the loopback interface, as much of it as a run needs.

It answers GraphQL (login, create, resume), takes file streams and uploads, and can misbehave:
`mode` is "work", "error" (500 to everything), "hang" (no answer while it is so) or "deny" (401).
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "a" * 40
ENTITY = "someone"


@dataclass
class ServedRun:
    """What the server knows of one run."""

    project: str
    fields: dict[str, Any] = field(default_factory=dict)
    """Variables of the latest UpsertBucket that were not null."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the history, by place."""
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration without W&B's own entries."""
        given = json.loads(self.fields["config"])
        return {key: item["value"] for key, item in given.items() if key != "_wandb"}


class WandbServer(ThreadingHTTPServer):
    """Listens on a free port; `runs` are by id."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mode = "work"
        self.runs: dict[str, ServedRun] = {}
        self.unknown: list[str] = []
        self.guard = threading.Lock()
        self.closing = threading.Event()

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find this server and to be let in."""
        return {
            "WANDB_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}",
            "WANDB_API_KEY": KEY,
        }


class Handler(BaseHTTPRequestHandler):
    server: WandbServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the console."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._misbehaves():
            return
        if self.path.endswith("/graphql"):
            with self.server.guard:
                self._answer({"data": self._graphql(json.loads(body))})
        elif stream := re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", self.path):
            with self.server.guard:
                _take(self.server.runs[stream.group(3)], json.loads(body))
            self._answer({})
        else:
            self._answer({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._misbehaves():
            self._answer({})

    def do_GET(self) -> None:
        if not self._misbehaves():
            self._answer({})

    def _misbehaves(self) -> bool:
        while self.server.mode == "hang" and not self.server.closing.wait(0.02):
            pass
        mode = self.server.mode
        given = self.headers.get("Authorization", "")
        if mode == "error" or mode == "deny" or not _is_key(given):
            self._answer({"errors": ["no"]}, 500 if mode == "error" else 401)
            return True
        return False

    def _answer(self, value: Any, code: int = 200) -> None:
        data = json.dumps(value).encode()
        with contextlib.suppress(OSError):  # the client went away
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _graphql(self, asked: dict[str, Any]) -> dict[str, Any]:
        query, values = asked["query"], asked.get("variables") or {}
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)
        operation = name.group(1) if name else ""
        if operation == "UpsertBucket":
            return self._upsert(values)
        if operation == "RunResumeStatus":
            return self._resume_status(values)
        if operation == "Viewer" or "viewer" in query:
            teams = {"edges": [{"node": {"id": "t", "name": ENTITY, "isTeam": False}}]}
            return {"viewer": {"id": "v", "entity": ENTITY, "username": ENTITY, "flags": "{}",
                               "teams": teams}}  # fmt: skip
        if operation == "CreateRunFiles":
            root = self.server.environment["WANDB_BASE_URL"]
            files = [{"name": f, "uploadUrl": f"{root}/upload/{f}"} for f in values["files"]]
            made = {"runID": "r", "uploadHeaders": [], "files": files}
            return {"createRunFiles": made}
        self.server.unknown.append(operation)
        return {}

    def _upsert(self, values: dict[str, Any]) -> dict[str, Any]:
        run_id, project = values["name"], values.get("project") or "uncategorized"
        fresh = run_id not in self.server.runs
        run = self.server.runs.setdefault(run_id, ServedRun(project))
        run.fields |= {key: value for key, value in values.items() if value is not None}
        return {
            "upsertBucket": {
                "bucket": {
                    "id": f"bucket_{run_id}",
                    "name": run_id,
                    "displayName": run.fields.get("displayName"),
                    "description": None,
                    "config": run.fields.get("config", "{}"),
                    "sweepName": None,
                    "historyLineCount": len(run.lines),
                    "project": {
                        "id": "p",
                        "name": project,
                        "entity": {"id": "e", "name": ENTITY},
                    },
                },
                "inserted": fresh,
            }
        }

    def _resume_status(self, values: dict[str, Any]) -> dict[str, Any]:
        run = self.server.runs.get(values["name"])
        project = {"id": "p", "name": values.get("project"), "entity": {"name": ENTITY}}
        if run is None:
            return {"model": {**project, "bucket": None}}
        bucket = {
            "name": values["name"],
            "displayName": run.fields.get("displayName"),
            "summaryMetrics": json.dumps(run.summary),
            "logLineCount": 0,
            "historyLineCount": len(run.lines),
            "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(line) for line in run.lines[-1:]]),
            "eventsTail": "[]",
            "config": run.fields.get("config", "{}"),
            "tags": run.fields.get("tags", []),
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"model": {**project, "bucket": bucket}}


def _take(run: ServedRun, body: dict[str, Any]) -> None:
    files = body.get("files") or {}
    history = files.get("wandb-history.jsonl")
    if history is not None:
        start = history["offset"]
        rows = [json.loads(row) for row in history["content"]]
        run.lines[start : start + len(rows)] = rows
    summary = files.get("wandb-summary.json")
    if summary is not None:
        run.summary = json.loads(summary["content"][-1])
    if body.get("complete"):
        run.exit_code = body.get("exitcode")


def _is_key(authorization: str) -> bool:
    kind, _, value = authorization.partition(" ")
    if kind == "Basic":
        return base64.b64decode(value).decode().partition(":")[2] == KEY
    return kind == "Bearer" and value == KEY


@contextlib.contextmanager
def serving() -> Iterator[WandbServer]:
    """A server in a thread; it is gone after the block."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
