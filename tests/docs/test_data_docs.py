"""The example lines of docs/data.md are tasks whose references pass."""

from __future__ import annotations

import json
from pathlib import Path

from documents import BLOCK, ROOT

from selfdistill_cli.cli.main import main
from selfdistill_cli.envs.code.data import read_tasks

PAGE = (ROOT / "docs/data.md").read_text(encoding="utf-8")
LINES = [line for _, block in BLOCK.findall(PAGE) for line in block.splitlines() if line[:1] == "{"]


def test_the_lines_of_the_page_are_good(tmp_path: Path) -> None:
    assert len(LINES) == 6
    path, report = tmp_path / "lines.jsonl", tmp_path / "report.json"
    path.write_text("\n".join(LINES))
    kinds = [set(task.meta) & {"tests", "calls", "stdin"}
             for task in read_tasks(str(path), 0.0, 0.0)["train"]]  # fmt: skip
    expected = ["tests", "tests", "calls", "calls", "stdin", "calls"]
    assert kinds == [{kind} for kind in expected]
    assert main(["validate", f"env.data={path}", "--json", str(report)]) == 0
    counts = json.loads(report.read_text())["counts"]
    assert counts == {"good": 4, "no_reference": 2}
