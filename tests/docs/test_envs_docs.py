"""Every command of the pages of environments composes and breaks no rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import ROOT, commands, words

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose

PAGES = sorted((ROOT / "docs/envs").glob("*.md"))
COMMANDS = {
    f"{page.stem}: {command}": words(command)[1:]
    for page in PAGES
    for command in commands(page.read_text(encoding="utf-8"))
    if words(command)[0] == "train"
}
FILES = ("FILE", "pages.jsonl", "questions.jsonl", "gsm8k.jsonl")
"""What a page calls files that a reader has."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_composes(name: str, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    for file in (own, tmp_path / "own.py"):
        file.touch()

    def filled(word: str) -> str:
        word = word.replace("FILE.py", str(tmp_path / "own.py")).replace("FILE.jsonl", str(own))
        for file in FILES:
            word = word.replace(f"={file}", f"={own}")
        return word.replace("=DIR", f"={tmp_path}")

    settings = compose([filled(word) for word in COMMANDS[name]]).settings
    assert rules.violations(settings) == []


def test_there_are_commands_on_every_page() -> None:
    assert {name.partition(":")[0] for name in COMMANDS} == {page.stem for page in PAGES}
