"""What each kind of component says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_parts import COMMON, played
from small_classifier import small_classifier
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.types import Task
from selfdistill_cli.rewards import settings as kinds
from selfdistill_cli.rewards.lint import findings
from selfdistill_cli.rewards.outcomes import MASKED
from selfdistill_cli.rewards.similarity import bleu, edit_likeness
from selfdistill_cli.rewards.source import parsed


def values(cls: type, trajectories: Any, **own: Any) -> list[Any]:
    return list(cls(**COMMON, **own).build().values(trajectories))


DENSE = {
    "compile_bonus": 0.1, "per_test": 0.2, "max_tests": 5, "count": "share", "length_coef": 0.01,
    "length_cap": 0.1, "length_budget": 50,
}  # fmt: skip


def dense(passed: int, total: int, tokens: int, compiled: bool = True, **changed: Any) -> float:
    outcome = {"passed": passed, "total": total, "compiled": compiled}
    trajectories = played("x", tokens=tokens, **outcome)
    return values(kinds.CodeDenseComponent, trajectories, **{**DENSE, **changed})[0]


def test_dense_reward_does_not_depend_on_the_number_of_tests() -> None:
    assert dense(2, 4, 0) == dense(10, 20, 0) == pytest.approx(0.1 + 0.5)
    assert dense(20, 20, 0) == pytest.approx(1.1)
    assert dense(0, 4, 0, compiled=False) == 0.0
    assert dense(4, 20, 0, count="number") == pytest.approx(0.1 + 0.8)
    by_number = dense(5, 20, 0, count="number"), dense(20, 20, 0, count="number")
    assert by_number[0] == by_number[1], "why share is the default"


def test_dense_reward_has_a_bounded_price_of_length() -> None:
    base = dense(4, 4, 0)
    assert base - dense(4, 4, 25) == pytest.approx(0.05), "half of the budget, half of the cap"
    assert base - dense(4, 4, 10**6) == pytest.approx(0.1)
    assert base - dense(4, 4, 5, length_budget=None) == pytest.approx(0.05), "0.01 per token"
    assert values(kinds.CodeDenseComponent, played("x"), **DENSE) == [MASKED]


def test_tests() -> None:
    trajectories = [*played("x", passed=3, total=4), *played("x", passed=4, total=4), *played("x")]
    assert values(kinds.TestsComponent, trajectories, mode="fraction") == [0.75, 1.0, MASKED]
    assert values(kinds.TestsComponent, trajectories, mode="all_or_nothing")[:2] == [0.0, 1.0]


def test_syntax_believes_the_sandbox_and_reads_text_without_one() -> None:
    told = [*played("def", compiled=True), *played("x = 1", compiled=False)]
    assert values(kinds.SyntaxComponent, told) == [1.0, 0.0]
    assert values(kinds.SyntaxComponent, played("x = 1", "def")) == [1.0, 0.0]


@pytest.mark.parametrize(
    "text",
    ["x" + "+x" * 9000, "not " * 4000 + "x", "(" * 9000, "a" + ".b" * 9000, "\x00",
     "x = " + "9" * 9000, "[" * 190 + "x for", "\ud800 = 1", "x" * 30_000],
)  # fmt: skip
def test_hostile_text_is_no_program(text: str) -> None:
    assert parsed(text) is None
    assert values(kinds.LintComponent, played(text), most_findings=5) == [0.0]


@pytest.mark.parametrize(
    "text",
    ["lambda:" * 2800 + "x", "if x:pass\n" + "elif x:pass\n" * 1600, "x=" * 9000 + "1",
     "x" + "<x" * 9000, "".join(f"{' ' * i}def f():\n" for i in range(95)) + " " * 95 + "pass",
     "-" * 19_000 + "x", "x" + "[0]" * 6000],
)  # fmt: skip
def test_deep_and_long_text_is_read_without_harm(text: str) -> None:
    assert 0 <= values(kinds.LintComponent, played(text), most_findings=5)[0] <= 1


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def f(xs):\n    return sum(x for x in xs if x > 0)\n", []),
        ("import os\nimport sys\nprint(sys.argv)\n", ["os is imported"]),
        ("def f(x):\n    return x\n    print(x)\n", ["line 3: never reached"]),
        ("def f(x):\n    y = 1\n    return x\n", ["y is never read"]),
        ("def f(x):\n    y = 1\n    def g():\n        return y\n    return g\n", []),
        ("def f():\n    global n\n    n = 1\n", []),
        ("try:\n    f()\nexcept:\n    pass\n", ["except without a class"]),
        ("def f(x=[]):\n    return x\n", ["default that all calls share"]),
        ("def f(x):\n    return x == None\n", ["compared with None"]),
        ("from os import *\n", ["import *"]),
    ],
)
def test_lint(program: str, expected: list[str]) -> None:
    tree = parsed(program)
    assert tree is not None
    found = findings(tree)
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))
    value = values(kinds.LintComponent, played(program), most_findings=5)
    assert value == [1 - len(expected) / 5]


def test_similarity_is_in_0_to_1_and_highest_for_the_reference() -> None:
    task = Task(id="t", messages=(), answer="def f(xs):\n    return sum(xs)")
    near, far = "def f(xs):\n    return max(xs)", "I cannot help with that"
    for measure in ("bleu", "edit"):
        same, close, other, empty = values(
            kinds.SimilarityComponent, played(str(task.answer), near, far, "", task=task),
            measure=measure, max_words=256,
        )  # fmt: skip
        assert same == pytest.approx(1.0)
        assert 1 > close > other >= empty == 0
    assert values(kinds.SimilarityComponent, played("x"), measure="bleu", max_words=9) == [MASKED]


def test_similarity_by_hand() -> None:
    # BLEU: p1 = 3/4, p2 = (1+1)/(3+1), p3 = (0+1)/(2+1), p4 = (0+1)/(1+1), equal lengths.
    expected = (3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25
    assert bleu(["a", "b", "x", "d"], ["a", "b", "c", "d"]) == pytest.approx(expected)
    assert bleu(["a"], ["a", "b"]) == pytest.approx(2.718281828459045 ** (1 - 2))
    assert edit_likeness(list("kitten"), list("sitting")) == pytest.approx(1 - 3 / 7)


def test_overlong_reads_all_turns_against_the_limit() -> None:
    own = {"max_tokens": 100, "cache_fraction": 0.2}
    lengths = (80, 90, 100, 101)
    found = [values(kinds.OverlongComponent, played("x", tokens=n), **own)[0] for n in lengths]
    assert found == [0.0, -0.5, -1.0, -1.0]
    assert values(kinds.OverlongComponent, played("x", tokens=100), max_tokens=100,
                  cache_fraction=0.0) == [0.0]  # fmt: skip


def write(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_recorded_scores_are_of_exactly_these_answers(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rated.jsonl",
        {"task": "t1", "program": "x = 1", "score": 0.25, "note": "by hand"},
        {"task": "t1", "text": "```python\ny\n```", "score": 1},
        {"task": "t1", "sha256": hashlib.sha256(b"z").hexdigest(), "score": -1},
        {"task": "t2", "program": "x = 2", "score": 9},
    )
    answers = played("x = 1", "```python\ny\n```", "z", "x = 1 ", "x = 2")
    masked = values(kinds.RecordedComponent, answers, path=path, unrated=None)
    assert masked == [0.25, 1.0, -1.0, MASKED, MASKED]
    assert values(kinds.RecordedComponent, answers, path=path, unrated=0.5)[3:] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], "holds no line"),
        (["x"], r"rated\.jsonl:1: no JSON object"),
        ([{"task": "t", "program": "x", "score": "high"}], "1: score: found 'high'"),
        ([{"task": "t", "program": "x", "score": float("nan")}], "score: found nan"),
        ([{"task": "t", "program": "x", "scores": 1}], "no field 'scores'; did you mean 'score'"),
        ([{"task": "t", "program": "x", "score": True}], "score: found true, expected a finite"),
        (
            [{"task": "t", "sha256": "2c26b4", "score": 1}],
            r"'2c26b4' \(6 characters\), expected 64",
        ),
        ([{"task": "t", "sha256": "g" * 64, "score": 1}], "expected 64 hexadecimal digits"),
        ([{"task": "t", "score": 1}], "needs task and one of text, program, sha256"),
        (
            [{"task": "t", "program": "x", "score": s} for s in (1, 2)],
            r":2: task t has another score, 1, for the same answer",
        ),
    ],
)
def test_a_wrong_line_of_recorded_scores_is_named(tmp_path, records, expected) -> None:
    path = write(tmp_path / "rated.jsonl", *records)
    with pytest.raises(DataError, match=expected):
        kinds.RecordedComponent(**COMMON, path=path, unrated=None).build()


def test_deep_nesting_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    path.write_text('{"task": "t", "program": "x", "score": 1}\n' + "[" * 100_000)
    with pytest.raises(DataError, match=r"rated\.jsonl:2: no JSON \(maximum recursion"):
        kinds.RecordedComponent(**COMMON, path=str(path), unrated=None).build()


def test_a_text_may_hold_line_separators_and_the_file_a_byte_order_mark(tmp_path: Path) -> None:
    texts = ["a\u2028b", "a\u0085b", "a\x0cb"]
    rows = [{"task": "t1", "program": text, "score": i} for i, text in enumerate(texts)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path = tmp_path / "rated.jsonl"
    path.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    answers = [*played(texts[0]), *played(texts[1]), *played(texts[2])]
    found = values(kinds.RecordedComponent, answers, path=str(path), unrated=None)
    assert found == [0.0, 1.0, 2.0]


LEARNED = {"label": 1, "output": "logit", "max_tokens": 64, "batch_rows": 2, "device": "cpu"}


def test_a_learned_judge_says_what_the_model_says(tmp_path: Path) -> None:
    path = str(small_classifier(tmp_path / "model", num_labels=3))
    texts = ["a", "f(x) = 3", "b" * 500, "", "f(x) = 3"]
    found = values(kinds.LearnedComponent, played(*texts), path=path, **LEARNED)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    for text, value in zip(texts, found, strict=True):
        ids = tokenizer(f"what?\n\n{text}")["input_ids"][-64:]  # the end of a long text is kept
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        assert value == pytest.approx(float(logits[1]), abs=1e-5)
    assert len({round(value, 4) for value in found}) == 4, "the model tells texts apart"
    shares = values(
        kinds.LearnedComponent, played("a"), path=path, **{**LEARNED, "output": "probability"}
    )
    assert 0 < shares[0] < 1


def test_a_folder_without_that_judge_is_told(tmp_path: Path) -> None:
    path = str(small_classifier(tmp_path / "model", num_labels=1))
    for own, expected in (
        ({"path": path}, "label 1, but the model .* has 1; expected 0 to 0"),
        ({"path": str(tmp_path)}, "has no config.json; expected a folder"),
    ):
        with pytest.raises(ConfigError, match=expected):
            kinds.LearnedComponent(**COMMON, **{**LEARNED, **own}).build()
    (tmp_path / "model/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        kinds.LearnedComponent(**COMMON, **{**LEARNED, "label": 0, "path": path}).build()
