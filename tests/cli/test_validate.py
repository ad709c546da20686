"""`selfdistill validate`: what it finds, what it writes, and its exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from selfdistill_cli.cli.main import main
from selfdistill_cli.cli.validate import validate
from selfdistill_cli.core.errors import ConfigError

F = {"prompt": "Write f(x).", "entry_point": "f"}
SAME = "def f(x):\n    return x"
LINES: dict[str, tuple[dict[str, Any], str]] = {
    "good": ({**F, "code": SAME, "test_list": ["assert f(1) == 1"]}, ""),
    "bare": ({**F, "test_list": ["assert f(1) == 1"]}, "no_reference"),
    "wrong": ({**F, "code": SAME, "calls": [{"args": [1], "expected": 2}]}, "reference_fails"),
    "slow": (
        {**F, "code": "def f(x):\n    while True: pass", "test_list": ["assert f(1)"]},
        "reference_fails",
    ),
    "called": ({**F, "code": SAME, "test_list": ["f(1)"]}, "proves_nothing"),
    "broken": (
        {**F, "code": SAME, "test_setup_code": "import nothing", "test_list": ["f(1)"]},
        "tests_fail",
    ),
    "plus": ({**F, "code": "def f(x):\n    return 1 / x", "base_input": [[0]]}, "reference_fails"),
    "whole": (
        {
            "question": "Print it.",
            "solutions": ["print(input())"],
            "input_output": {"inputs": ["1"], "outputs": ["1"]},
        },
        "",
    ),
    "silent": (
        {
            "question": "Print it.",
            "solutions": ["print(input())"],
            "input_output": {"inputs": [""], "outputs": ["\n"]},
        },
        "reference_fails",  # input() at the end of the file
    ),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    rows = [json.dumps({"task_id": name, **fields}) for name, (fields, _) in LINES.items()]
    path.write_text("\n\n".join(rows))
    return path


def test_every_problem_is_found_and_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, good = tmp_path / "new" / "report.json", tmp_path / "good.jsonl.gz"
    words = [f"env.data={file}", "env.sandbox.time_limit_s=0.5"]
    assert main(["validate", "env=code", *words, "--json", str(report), f"--out={good}"]) == 1
    found = json.loads(report.read_text())
    problems = {finding["task_id"]: finding["problem"] for finding in found["findings"]}
    assert problems == {name: problem for name, (_, problem) in LINES.items()}
    assert [finding["line"] for finding in found["findings"]] == list(range(1, 18, 2))
    assert found["counts"] == {
        "good": 2, "no_reference": 1, "proves_nothing": 1, "reference_fails": 4, "tests_fail": 1
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "line 5, task wrong: reference_fails [failed]: f(1) returned 1, expected 2" in said
    assert "line 7, task slow: reference_fails [timeout]" in said
    assert "line 9, task called: proves_nothing" in said
    assert "line 11, task broken: tests_fail [test_error]: the test code failed: Module" in said
    assert "line 13, task plus: reference_fails: the reference gives no result for f(0)" in said
    assert "9 tasks in " in said
    kept = gzip.decompress(good.read_bytes()).decode().splitlines()
    assert [json.loads(line)["task_id"] for line in kept] == ["good", "bare", "whole"]
    assert kept[0] == file.read_text().splitlines()[0]


def test_the_good_lines_are_good(file: Path, tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    main(["validate", f"env.data={file}", "env.sandbox.time_limit_s=0.5", "--out", str(good)])
    assert main(["validate", f"env.data={good}"]) == 0


def test_a_split_of_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"env.data={file}", "env.test_fraction=0.5", "--split", "test"]
    assert main(["validate", *words, "env.sandbox.time_limit_s=0.5"]) in (0, 1)
    first, *_ = capsys.readouterr().out.split(" tasks in ")
    assert 0 < int(first.rsplit("\n", 1)[-1]) < len(LINES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--splt", "x"], "there is no flag --splt; did you mean '--split'?"),
        (["--json"], "--json: expected a value after it, got nothing"),
        (["--json", "--out"], "--json: expected a value after it, got --out"),
        (["--split", "tst"], "env=code has no split 'tst'"),
        (["--out", "x.jsonl"], "--out: the tasks come from no file; expected env.data=FILE"),
        (["env.dat=x"], "did you mean 'data'"),
        (["env.data=nowhere.jsonl"], "env.data=nowhere.jsonl: no such file"),
        (["env.data=humanevl"], "did you mean 'humaneval'?"),
    ],
)
def test_a_wrong_command_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--json", "--out"])
def test_where_nothing_can_be_written_is_said_first(
    flag: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(file)
    for name, message in (
        ("", "is a folder"),
        ("tasks.jsonl/x", "cannot be made in"),
        ("tasks.jsonl", "is env.data itself"),
        ("link.jsonl", "is env.data itself"),
    ):
        assert main(["validate", f"env.data={file}", flag, f"{tmp_path}/{name}"]) == 2
        said = capsys.readouterr()
        assert said.out == "", "before any work"
        assert f"{flag}: " in said.err
        assert message in said.err
    assert file.read_bytes() == before


def test_a_broken_line_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": 1}')
    assert main(["validate", f"env.data={path}"]) == 2
    assert f'{path}, line 1, field "prompt"' in capsys.readouterr().err


def test_a_wrong_split_is_what_training_says_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tasks.jsonl"
    fields, _ = LINES["good"]
    path.write_text(json.dumps({"task_id": "a", "split": "trian", **fields}))
    assert main(["validate", f"env.data={path}"]) == 2
    assert f"{path}, line 1, field \"split\": found 'trian'" in capsys.readouterr().err


def test_help_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--help"]) == 0
    assert "--out FILE" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "selfdistill validate env.data=FILE" in capsys.readouterr().out


class PlainEnv:
    """An environment without the hook."""

    name = "plain"


def test_an_environment_that_cannot_validate() -> None:
    with pytest.raises(ConfigError, match=r"PlainEnv has no method `validate\(split\)`"):
        validate(PlainEnv(), {})


def test_built_in_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--split", "validation"]) == 0
    assert "good" in capsys.readouterr().out
