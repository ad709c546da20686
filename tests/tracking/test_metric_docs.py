"""Every logged metric is explained in docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path

from metric_docs import undocumented

ROOT = Path(__file__).parents[2]
GROUPS = "reward|eval|loss|policy|teacher|credit|rollout|health|tokens|time|memory"
KEY = re.compile(rf'f?"((?:{GROUPS})/[\w{{}}]+)"')

DOCUMENT = """
Prose about `loss/prose` explains nothing.
| key | meaning |
|---|---|
| `loss/total` | the sum |
| `time/<phase>_s` | seconds |
| `reward/empty` | |
"""


def test_only_table_rows_with_a_meaning_count_and_names_are_wildcards():
    keys = ["step", "loss/total", "loss/prose", "time/act_s", "time/act", "time/a/b_s"]
    keys += ["reward/empty", "loss/totals", "loss/prose"]
    assert undocumented(keys, DOCUMENT) == [
        "loss/prose",
        "loss/totals",
        "reward/empty",
        "time/a/b_s",
        "time/act",
    ]


def test_every_key_written_in_the_source_is_documented():
    sources = (ROOT / "selfdistill_cli").rglob("*.py")
    found = {key for path in sources for key in KEY.findall(path.read_text(encoding="utf-8"))}
    assert {"reward/mean", "loss/total", "policy/grad_norm", "loss/{name}"} <= found
    keys = {re.sub(r"\{\w+\}", "x", key) for key in found}
    assert undocumented(keys, (ROOT / "docs/metrics.md").read_text(encoding="utf-8")) == []
