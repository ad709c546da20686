"""What test code may do: large calls, calls by keyword."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attacking import body, run

from selfdistill_cli.sandbox import dialogue
from selfdistill_cli.sandbox.jobs import CallJob, ProgramJob, ProgramReport
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.showing import MAX_PARTS, show_call


def examine(box: Sandbox, program: str, *tests: str) -> ProgramReport:
    job = ProgramJob(program=program, entry_point="f", setup="", tests=tests)
    return box.run_programs([job])[0]


def test_test_code_may_put_large_calls(sandbox: Sandbox) -> None:
    program = "def f(x, y=0): return len(x) + y"
    report = examine(
        sandbox,
        program,
        "assert f('a' * 70_000) == 70_000",
        "assert f(list(range(30_000))) == 30_000",
        "assert f('a' * 70_000, y=1) == 0",
        "assert f(list(range(30_000))) == 0",
    )
    assert [result.status for result in report.results] == ["passed", "passed", "failed", "failed"]
    assert report.results[3].message.endswith("f(...) returned 30000")
    assert "aaa..." in report.results[2].message
    assert "y=1) returned 70001" in report.results[2].message


def test_calls_beyond_its_own_limit_are_the_fault_of_the_test_code(
    make_sandbox: Callable[..., Sandbox],
) -> None:
    box = make_sandbox(memory_mb=512, time_limit_s=5.0)
    text = f"f('a' * {dialogue.TESTER_BYTES})"
    report = examine(box, "def f(x): return x", text)
    assert report.status == "test_error"
    assert report.message == "the test code sent more than 16 MiB in one call"


def test_a_result_that_is_too_large_names_the_setting(sandbox: Sandbox) -> None:
    result = run(sandbox, "def f(x): return 'a' * x", 70_000).results[0]
    assert result.status == "bad_value"
    assert result.message == "the value is larger than env.sandbox.max_output_kb=64"
    forged = body("import os\nos.write(3, (1 << 24).to_bytes(4, 'big') + b'x' * 9)")
    report = run(sandbox, forged, 1)
    assert report.status == "crashed"
    assert report.message == "it sent an answer larger than env.sandbox.max_output_kb"


def test_calls_by_keyword(sandbox: Sandbox) -> None:
    report = examine(
        sandbox,
        "def f(x, *rest, step=1, **more): return x + step + sum(rest) + sum(more.values())",
        "assert f(x=1) == 2",
        "assert f(1, step=4) == 5",
        "assert f(1, 2, step=3, y=4, self=5) == 15",
        "assert f(**{'x': 1}) == 3",
        "assert f(1, step={1: 2}) == 3",
    )
    statuses = [result.status for result in report.results]
    assert statuses == ["passed", "passed", "passed", "failed", "raised"]
    assert report.results[3].message.endswith("f(x=1) returned 2")
    assert "f(1, step={1: 2}) raised TypeError" in report.results[4].message


@pytest.mark.parametrize("named", ["[]", "{'x': ['nothing', 1]}"])
def test_strange_keywords_pass_nothing(sandbox: Sandbox, named: str) -> None:
    """Test code that does not keep to the protocol is ended; the candidate gains nothing by it."""
    test = (
        "import os, json\n"
        f"b = json.dumps({{'call': [1], 'named': {named}}}).encode()\n"
        "os.write(3, len(b).to_bytes(4, 'big') + b)\nassert f(1) == 2"
    )
    report = examine(sandbox, "def f(x): return x", test)
    assert report.results[0].status != "passed"


def test_only_small_arguments_are_shown() -> None:
    many: Any = ["list", [0] * MAX_PARTS]
    assert show_call("f", [1, "a"], {"b": ["tuple", [2]]}) == "f(1, 'a', b=(2,))"
    assert show_call("f", [many], {"b": ["unknown", 1]}) == "f(..., b=...)"


def test_arguments_of_a_call_job_may_be_large(sandbox: Sandbox) -> None:
    large = {(i, i) for i in range(3000)}
    job = CallJob(program="def f(x): return len(x)", entry_point="f", calls=((large,),))
    assert sandbox.run_calls([job])[0].results[0].value == 3000
