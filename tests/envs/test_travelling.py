"""What an environment gives can travel to another process: tasks and outcomes go to every rank."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from selfdistill_cli.config import catalog
from selfdistill_cli.config.compose import compose

WORDS = {
    "code": ["env.sandbox.workers=1"],
    "gymnasium": ["env.id=guessing:make"],
    "verifiers": ["env.name=verifiers_samples"],
}


@pytest.mark.parametrize("option", catalog.options([catalog.shipped_dir()], "env"))
def test_tasks_and_outcomes_travel(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # where guessing.py is
    if option == "verifiers":
        pytest.importorskip("verifiers", reason="needs verifiers (docs/envs/verifiers.md)")
    env: Any = compose([f"env={option}", *WORDS.get(option, [])]).settings.env.build()
    try:
        task = env.tasks("train")[0]
        result = env.episode(task, 0).step("nothing of use")
    finally:
        env.close()
    assert pickle.loads(pickle.dumps(task)) == task
    assert pickle.loads(pickle.dumps(result)) == result
