"""`selfdistill doctor` says what is there, what is missing, and ends accordingly."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from attacking import processes

from selfdistill_cli.cli import checks, doctor
from selfdistill_cli.cli.main import main
from selfdistill_cli.core.errors import SandboxError, UserError
from selfdistill_cli.sandbox import levels
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings

SANDBOX = SandboxSettings(
    level="auto", workers=1, time_limit_s=1.0, memory_mb=64, max_file_mb=1, max_output_kb=64
)


@pytest.fixture
def isolated() -> None:
    """Skip where no level of isolation works."""
    box = Sandbox(SANDBOX)
    try:
        box.start()
    except SandboxError as error:
        pytest.skip(str(error))
    finally:
        box.close()


def state(text: str, name: str) -> str:
    """The state that is printed for a name."""
    found = re.search(rf"^(\w+) +{re.escape(name)} ", text, re.MULTILINE)
    assert found, text
    return found[1]


@pytest.mark.usefixtures("isolated")
def test_it_looks_at_everything_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, start = processes(), time.monotonic()
    assert main(["doctor", f"run.root={tmp_path}/runs", "tracker=none"]) == 0
    assert time.monotonic() - start < 15
    assert processes() <= before
    assert list(tmp_path.iterdir()) == []
    text = capsys.readouterr().out
    for name in ("python", "torch", "transformers", "cores", "memory", "disk", "tracker"):
        assert state(text, name) == "ok"
    for name in ("deepspeed", "vllm", "wandb", "gpu", "bubblewrap", "landlock", "process"):
        assert state(text, name) in ("ok", "note")
    assert state(text, "process") == "note"
    assert state(text, "sandbox") == "ok"
    assert re.search(r"env.sandbox=auto takes (bubblewrap|landlock)", text)
    milliseconds = re.search(r"cold start (\d+) ms; then ([\d.]+) ms per program", text)
    assert milliseconds
    assert float(milliseconds[2]) > 0
    assert "training can start: selfdistill train run.root=" in text


def test_without_isolation_training_cannot_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "python", lambda: "/bin/false")
    assert main(["doctor"]) == 1
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "env.sandbox=auto: programs cannot be isolated here" in text
    assert "to do: bubblewrap needs unprivileged user namespaces" in text
    assert "to do: Landlock needs Linux 6.2" in text
    assert "training cannot start: sandbox" in text


def test_no_isolation_can_be_chosen_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "env.sandbox=process"]) == 0
    text = capsys.readouterr().out
    assert state(text, "sandbox") == "note"
    assert "WITHOUT ISOLATION" in text


def test_a_folder_that_cannot_be_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "run.root=/proc/runs"]) == 1
    text = capsys.readouterr().out
    assert state(text, "disk") == "failed"
    assert "run.root=FOLDER" in text


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "NEEDED", ("no_such_package",))
    found = {f.name: f for f in checks.libraries(None)}  # type: ignore[arg-type]
    assert found["no_such_package"].state == "failed"
    assert found["no_such_package"].remedy


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--halp"], "did you mean '--help'?"),
        (["RUN"], "doctor takes KEY=VALUE, got 'RUN'"),
        (["--config-dir"], "expected a folder after it"),
    ],
)
def test_wrong_words(words: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=re.escape(expected)):
        doctor.parse(words)


def test_a_wrong_setting_is_the_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "env.sandbox=landlok"]) == 2
    assert "did you mean 'landlock'" in capsys.readouterr().err
