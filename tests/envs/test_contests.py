"""Tasks with the fields of APPS and of LiveCodeBench: whole programs, functions and methods."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from code_envs import make_env

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code.comparing import same_output
from selfdistill_cli.envs.code.env import CodeEnv

APPS: dict[str, Any] = {
    "problem_id": 7,
    "question": "Add numbers.\nThe first line has n, the second n numbers.",
    "solutions": json.dumps(
        ["print input()", "n = int(input())\nprint(sum(map(int, input().split())))\n"]
    ),
    "input_output": json.dumps({"inputs": ["2\n1 2\n", ["3", "4 5 6"]], "outputs": ["3\n", "15"]}),
    "difficulty": "introductory",
    "starter_code": "",
}
SUM = "n = int(input())\nprint(sum(map(int, input().split())))"
CALLED = APPS | {
    "solutions": "",
    "starter_code": "class Solution:\n    def twice(self, xs: List[int]) -> List[int]:\n",
    "input_output": json.dumps(
        {"fn_name": "twice", "inputs": [[[1, 2]], [[]]], "outputs": [[[2, 4]], [[]]]}
    ),
}
STDIN_CASES = [{"input": "2\n1 2\n", "output": "3\n", "testtype": "stdin"}]
LIVE: dict[str, Any] = {
    "question_title": "Sum",
    "question_content": "Add numbers.",
    "platform": "somewhere",
    "question_id": "abc_a",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps(STDIN_CASES),
    "private_test_cases": json.dumps([{"input": "1\n9", "output": "9", "testtype": "stdin"}]),
    "metadata": "{}",
}
FUNCTIONAL = LIVE | {
    "starter_code": "class Solution:\n    def pick(self, xs: List[int], i: int) -> int:\n        ",
    "public_test_cases": json.dumps(
        [{"input": "[3, 4]\n1", "output": "4", "testtype": "functional"}]
    ),
    "private_test_cases": "",
    "metadata": json.dumps({"func_name": "pick"}),
}


def load(tmp_path: Path, *records: dict[str, Any]) -> tuple[CodeEnv, list[Task]]:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    env = make_env(data=str(path))
    return env, list(env.tasks("train"))


def graded(tmp_path: Path, record: dict[str, Any], *programs: str) -> list[dict[str, Any]]:
    env, (task,) = load(tmp_path, record)
    outcomes = env.grade([task] * len(programs), programs)
    env.close()
    return outcomes


def counts(outcomes: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(outcome["passed"], outcome["total"]) for outcome in outcomes]


def test_whole_programs(tmp_path: Path) -> None:
    programs = {
        SUM: 2,
        f"```python\nimport sys\n{SUM}\nsys.exit(0)\n```": 2,
        "print(3)": 1,
        "pass": 0,
        f"{SUM}\nprint()\nprint('  ')": 2,
        f"{SUM}\nprint('more')": 0,
        f"{SUM}\nraise ValueError('late')": 0,
        f"{SUM}\nimport os; os._exit(3)": 0,
        "print(": 0,
        "while True: pass": 0,
    }
    outcomes = graded(tmp_path, APPS, *programs)
    assert counts(outcomes) == [(passed, 2) for passed in programs.values()]
    assert [outcome["compiled"] for outcome in outcomes].index(False) == 8
    assert outcomes[2]["tests"][1] == {
        "name": "input '3\\n4 5 6'",
        "status": "failed",
        "message": "input '3\\n4 5 6' printed '3\\n', expected '15'",
    }
    assert "ValueError: late" in outcomes[6]["tests"][0]["message"]
    assert json.loads(json.dumps(outcomes)) == outcomes


def test_prompts_and_references(tmp_path: Path) -> None:
    env, tasks = load(tmp_path, APPS, CALLED | {"problem_id": 8}, LIVE, FUNCTIONAL | {"task_id": 9})
    assert [task.id for task in tasks] == ["7", "8", "abc_a", "9"]
    prompts = [task.messages[0]["content"] for task in tasks]
    assert prompts[0].endswith("n numbers.\n\nWrite a program that reads standard input and "
                               "prints the answer to standard output.")  # fmt: skip
    assert prompts[1].endswith("def twice(self, xs: List[int]) -> List[int]:")
    assert [task.answer is None for task in tasks] == [False, True, True, True]
    assert tasks[0].answer == SUM + "\n"  # the first one is not Python 3
    facts = [env.hint("evidence", task, (), (), None, 0) for task in tasks]
    assert facts[0] is not None
    assert "input '3\\n4 5 6' prints '15'" in facts[0].text
    assert facts[1] is not None
    assert "twice([1, 2]) is [2, 4]" in facts[1].text
    short = env.hint("pruned", tasks[0], (), (), None, 0)
    assert short is not None
    assert short.messages[0]["content"].startswith("Add numbers.\nWrite a program")
    assert env.hint("pruned", tasks[2], (), (), None, 0) is None


def test_functions_and_methods(tmp_path: Path) -> None:
    programs = {
        "def twice(xs):\n    return [2 * x for x in xs]": 2,
        "class Solution:\n    def twice(self, xs: List):\n        return [2 * x for x in xs]": 2,
        # Results stand in lists of their own, which some answers return too.
        "def twice(xs):\n    return [[2 * x for x in xs]]": 2,
        "class Solution:\n    def twice(self, xs):\n        return xs": 1,
        "class Solution:\n    def other(self, xs):\n        return xs": 0,
        "from __future__ import annotations\ndef twice(xs: L):\n    return [2 * x for x in xs]": 2,
    }
    outcomes = graded(tmp_path, CALLED, *programs)
    assert counts(outcomes) == [(passed, 2) for passed in programs.values()]
    outcomes = graded(
        tmp_path,
        FUNCTIONAL,
        "class Solution:\n    def pick(self, xs: List[int], i: int) -> int:\n        return xs[i]",
        "class Solution:\n    def pick(self, xs, i):\n        return deque(xs)[0]",
    )
    assert counts(outcomes) == [(1, 1), (0, 1)]
    assert outcomes[1]["tests"][0]["message"] == "pick([3, 4], 1) returned 3, expected 4"


def test_results_that_are_no_lists_of_one_are_exact(tmp_path: Path) -> None:
    pairs = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [1, [2]]}
    record = CALLED | {"starter_code": "", "input_output": pairs}
    outcomes = graded(tmp_path, record, "def f(x):\n    return x", "def f(x):\n    return [x]")
    assert counts(outcomes) == [(1, 2), (1, 2)]


def test_livecodebench_on_standard_input(tmp_path: Path) -> None:
    assert counts(graded(tmp_path, LIVE, SUM, "print(9)")) == [(2, 2), (1, 2)]


@pytest.mark.parametrize(
    ("printed", "expected", "verdict"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("1 2 \n3  \n\n\n", "1 2\n3", True),
        ("1  2", "1 2", False),
        (" 1", "1", False),
        ("\n1", "1", False),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("1\n\n2", "1\n2", False),
        ("0.30000000000000004", "0.3", True),
        ("0.5000001", "0.5", False),
        ("a 1e3 b", "a 1000.0 b", True),
        ("5", "5.0", True),
        ("5.0", "5", False),
        ("1000000000000000001", "1000000000000000000", False),
        ("1e18", "1000000000000000000", False),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("inf", "1.0", False),
        ("1_0.0", "10.0", False),
        ("٣.٠", "3.0", False),
        ("Yes", "YES", False),
        ("", "", True),
        ("", "0.0", False),
        ("1e999", "1e999", True),
        ("1e999", "1e998", False),
    ],
)
def test_same_output(printed: str, expected: str, verdict: bool) -> None:
    assert same_output(printed, expected) is verdict


def pairs(**content: Any) -> dict[str, Any]:
    return APPS | {"input_output": json.dumps(content)}


def cases(*content: Any, **changes: Any) -> dict[str, Any]:
    return LIVE | {"public_test_cases": json.dumps(content), **changes}


PICKLED = base64.b64encode(zlib.compress(b"\x80\x04\x8c\x02[]\x94.")).decode()
BROKEN = {
    "JSON in a string": (APPS | {"input_output": "{'inputs'"}, '"input_output": found a string t'),
    "an empty string": (APPS | {"input_output": " "}, '"input_output": found None; expected JSON'),
    "no object": (APPS | {"input_output": "[1]"}, r'"input_output": found \[1\]; expected JSON'),
    "no inputs": (pairs(outputs=["1"]), r'"input_output\.inputs": found None'),
    "no outputs": (pairs(inputs=["1"], outputs=[]), r'"input_output\.outputs": found \[\]'),
    "too few outputs": (pairs(inputs=["1", "2"], outputs=["1"]), "2 inputs and 1 outputs"),
    "input that is no text": (pairs(inputs=[1], outputs=["1"]), "inputs.*found 1; expected a str"),
    "arguments that are no list": (
        pairs(fn_name="f", inputs=[1], outputs=[1]), "input 0.*a list of arguments"),
    "a name that is none": (
        pairs(fn_name="f g", inputs=[[1]], outputs=[1]), "name of the function.*found 'f g'"),
    "solutions that are no JSON": (APPS | {"solutions": "["}, '"solutions": found a string th'),
    "solutions of a wrong type": (APPS | {"solutions": "[1]"}, '"solutions": found'),
    "two kinds of tests": (APPS | {"test_list": ["assert f()"]}, "found also test_list"),
    "both contests": (APPS | {"public_test_cases": "[]"}, "found also public_test_cases"),
    "no question": (APPS | {"question": None}, '"question": found no such field'),
    "no words": (APPS | {"question": " "}, '"question": found no words'),
    "no id": (APPS | {"problem_id": None}, '"problem_id": found None'),
    "cases that are no JSON": (LIVE | {"public_test_cases": "[{"}, "public_test_cases.*not JSON"),
    "cases that are no list": (LIVE | {"public_test_cases": "{}"}, '"public_test_cases": found {}'),
    "no cases": (cases(private_test_cases=""), '"public_test_cases": found no test'),
    "a case of an unknown type": (
        cases({"input": "", "output": "", "testtype": "file"}), r'"public_test_cases\[0\]": found'),
    "a case without output": (cases({"input": "", "testtype": "stdin"}), r"cases\[0\]"),
    "two types": (
        cases({"input": "1", "output": "1", "testtype": "functional"}),
        "functional and stdin tests"),
    "no name": (FUNCTIONAL | {"metadata": "{}"}, '"metadata": found {}; expected JSON with'),
    "metadata that is no JSON": (FUNCTIONAL | {"metadata": "{"}, '"metadata": found a string that'),
    "an argument that is no JSON": (
        FUNCTIONAL | {"public_test_cases": json.dumps(
            [{"input": "[1", "output": "1", "testtype": "functional"}])},
        r"input of test 0: '\[1', not JSON"),
    "encoded cases": (
        LIVE | {"private_test_cases": PICKLED}, "encoded text.*unpickling runs code.*json.loads"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, name: str) -> None:
    record, message = BROKEN[name]
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, record)
    assert f"{tmp_path / 'tasks.jsonl'}, line 1" in str(caught.value)
