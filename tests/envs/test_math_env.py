"""Mathematics: built-in problems, grading, splits, hints, several attempts."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from math_envs import attempts, math_env, math_settings
from running import numbers, run

from selfdistill_cli.core.errors import ConfigError, DataError, FieldError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.math import arithmetic
from selfdistill_cli.envs.math.env import SPLITS
from selfdistill_cli.envs.math.hints import wrong_calculations
from selfdistill_cli.envs.math.settings import KINDS
from selfdistill_cli.testing import check_env

ENV = math_env()
COLUMNS = math_env(kinds=["columns"], num_tasks=400)


def task_of(first: int, second: int) -> Task:
    low, high = sorted((first, second))
    split = [t for name in SPLITS[:3] for t in COLUMNS.tasks(name)]
    return next(task for task in split if task.id == f"columns/{low}+{high}")


def some_task() -> Task:
    return COLUMNS.tasks("train")[0]


@pytest.mark.parametrize("form", ["hash", "boxed", "tag", "number", "any"])
def test_the_environment_keeps_its_contract(form):
    check_env(lambda: math_env(num_tasks=40, answer_format=form), actions=("", "#### 1", "\x00é"))


def test_several_attempts_keep_the_contract():
    check_env(lambda: math_env(num_tasks=40, attempts=3), actions=("", "#### 1"))


@pytest.mark.parametrize("level", [1, 3, 5])
def test_every_working_is_right_and_leads_to_its_answer(level):
    for problem in arithmetic.problems(KINDS, level, 350, 0):
        assert not list(wrong_calculations(problem.working)), problem
        last = problem.working.rpartition("=")[2]
        if problem.kind == "columns":  # the answer is read off: last digits, upwards
            results = [line.rpartition("=")[2] for line in problem.working.splitlines()]
            digits = results[-1] + "".join(result[-1] for result in reversed(results[:-1]))
            assert int(digits) == int(problem.answer)
        else:
            assert last == problem.answer


def by_hand(question: str) -> int:
    """The answer to a built-in question, found another way."""
    if found := re.fullmatch(r"(\d+) mod (\d+)=\?", question):
        return int(found[1]) % int(found[2])
    if found := re.fullmatch(r"sum of the digits of (\d+)=\?", question):
        return sum(map(int, found[1]))
    if found := re.fullmatch(r"(\d+)\*x\+(\d+)=(-?\d+), x=\?", question):
        a, b, c = map(int, found.groups())
        return next(x for x in range(-10_000, 10_000) if a * x + b == c)
    if question.endswith("together?"):
        counts: dict[str, int] = {}
        for told in question.split(". ")[:-1]:
            name, number, other = re.fullmatch(
                r"(\w+) has (\d+) (?:\w+|[a-z ]+ (\w+))", told
            ).groups()
            count = int(number)
            if "more than" in told:
                count = counts[other] + count
            elif "fewer than" in told:
                count = counts[other] - count
            elif "times as many" in told:
                count = counts[other] * count
            counts[name] = count
        return sum(counts.values())
    return eval(question.removesuffix("=?"))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_answers_agree_with_another_way_to_find_them(level):
    for problem in arithmetic.problems(KINDS, level, 140, 3):
        assert by_hand(problem.question) == int(problem.answer), problem


@pytest.mark.parametrize("form", ["hash", "boxed", "tag"])
def test_references_solve_every_task_and_guesses_few(form):
    env = math_env(num_tasks=600, answer_format=form)
    tasks = env.tasks("train")
    assert len(tasks) >= 400
    graded = [env.grade(task, task.answer) for task in tasks]
    assert all(o["success"] == o["exact"] == o["format"] == 1.0 for o in graded)
    others = [env.grade(task, other.answer) for task, other in itertools.pairwise(tasks)]
    assert sum(o["success"] for o in others) / len(others) < 0.05
    assert not any(env.grade(task, task.messages[-1]["content"])["success"] for task in tasks)


def test_splits_share_nothing_and_stay():
    few, many = math_env(num_tasks=200), math_env(num_tasks=900, generator_seed=1)
    where = {task.id: split for split in SPLITS[:3] for task in many.tasks(split)}
    assert len(where) == 900
    again = {task.id: split for split in SPLITS[:3] for task in few.tasks(split)}
    common = where.keys() & again.keys()
    assert len(common) > 10
    assert all(where[name] == again[name] for name in common)
    assert {t.id for t in few.tasks("demonstrations")} == {t.id for t in few.tasks("train")}
    assert few.fingerprint() == math_env(num_tasks=200).fingerprint() != many.fingerprint()


def test_a_sum_is_in_one_split_whichever_number_comes_first():
    ids = [task.id for split in SPLITS[:3] for task in COLUMNS.tasks(split)]
    assert len(set(ids)) == len(ids)
    assert all(a <= b for a, b in (map(int, i.split("/")[1].split("+")) for i in ids))


def test_a_small_kind_ends_before_its_number_is_reached():
    assert 500 < len(list(arithmetic.problems(["remainders"], 1, 5000, 0))) <= 630


def test_the_built_in_problems_are_the_same_as_ever():
    known = [problem.question for problem in arithmetic.problems(KINDS, 1, 7, 0)]
    assert known == KNOWN


KNOWN = [
    "54+29=?",
    "35-2-4=?",
    "83*8=?",
    "24 mod 4=?",
    "sum of the digits of 9707=?",
    "6*x+19=31, x=?",
    "Gus has 26 pens. Ida has 6 fewer than Gus. How many pens together?",
]


def test_hints_are_given_and_differ():
    env, task = ENV, next(t for t in ENV.tasks("train") if t.meta["kind"] == "products")
    wrong = task.answer.rpartition("####")[0] + "#### 1"
    siblings, scores = attempts(env, task, [wrong, task.answer + " ", "no"])
    texts = {}
    for kind in sorted(env.hints):
        found = env.hint(kind, task, siblings, scores, 0, seed=1)
        assert found is not None, kind
        texts[kind] = found.text
    assert texts["answer"] == texts["sibling"] == task.answer
    assert len({text for kind, text in texts.items() if kind != "sibling"}) == len(texts) - 1
    assert env.hint("own_wrong_answer", task, siblings, scores, 1, seed=1) is None
    assert env.hint("feedback", task, siblings, scores, 1, seed=1) is None
    assert env.hint("pruned", task, (), (), None, seed=1) is None
    assert env.hint("sibling", task, (), (), None, seed=1).text == task.answer
    final = task.meta["final"]
    assert final not in texts["evidence"].split("=")


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("4+9=13\n5+2+1=9\n#### 93", "This step is wrong: 5+2+1=9"),
        ("4+9=13\n#### 93", "The answer 93 is wrong."),
        ("it is 83", "There is no answer in the form that was asked for."),
        ("#### " + "1" * 5000, "The answer is too long to be one."),
    ],
)
def test_feedback_says_what_was_wrong_and_never_the_answer(response, said):
    task = some_task()
    final = task.meta["final"]
    response = response.replace("83", "seven")
    siblings, scores = attempts(COLUMNS, task, [response])
    hint = COLUMNS.hint("feedback", task, siblings, scores, 0, seed=1)
    assert hint.text.removeprefix(response.strip()).strip() == said
    assert final not in said.replace("93", "").replace("5+2+1=9", "")


@pytest.mark.parametrize(
    "text",
    ["7+5=12", "2 * 3 + 4 = 10", "2 x 3 + 4 = 10", "(2+3)*4=20", "10/3=3.33", "1,000-1=999",
     "10% of 50 + 5 = 10", "a+3=7", "3+4=7+2=9", "-3+5=2", "2^3+1=9", "7/2=3.5", "5-8=-3"],
)  # fmt: skip
def test_right_calculations_and_what_is_none_pass(text):
    assert list(wrong_calculations(text)) == []


def test_a_calculation_that_is_cut_is_not_read():
    assert list(wrong_calculations("17+5=22\n" * 1000)) == []


@pytest.mark.parametrize("text", ["7+5=13", "so: 2*3+4=14", "9/2=4.1", "5-8=3", "1+1 = 3\n2+2=4"])
def test_wrong_calculations_are_found(text):
    assert len(list(wrong_calculations(text))) == 1


def test_several_attempts_go_on_until_one_is_right():
    env = math_env(attempts=3, kinds=["columns"])
    task = env.tasks("train")[0]
    episode = env.episode(task, 0)
    first = episode.step("#### 1000")
    assert not first.done
    assert first.outcome["success"] == 0.0
    assert first.observation[0]["content"] == "The answer 1000 is wrong. Try again."
    second = episode.step(task.answer)
    assert (second.done, second.outcome["success"], second.outcome["attempts"]) == (True, 1.0, 2)
    episode = env.episode(task, 0)
    assert [episode.step("").done for _ in range(3)] == [False, False, True]


def test_key_spans_are_results_and_the_answer():
    text = "4+9=13\n5+2+1=8\n#### 83"
    spans = ENV.key_spans(some_task(), text)
    assert [text[a:b] for a, b in spans] == ["13", "8", "83"]


@given(st.text(max_size=300) | st.text(alphabet="0123456789+-*/=.,# \\boxed{}\n", max_size=300))
def test_no_response_breaks_an_episode(text):
    task = some_task()
    siblings, scores = attempts(COLUMNS, task, [text, "#### " + text])
    for kind in COLUMNS.hints:
        COLUMNS.hint(kind, task, siblings, scores, 0, seed=0)
    COLUMNS.key_spans(task, text)


def test_the_request_and_the_instructions_are_told():
    env = math_env(ask_for_format=True, instructions="Be brief.", answer_format="boxed")
    messages = env.tasks("test")[0].messages
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[1]["content"].endswith("\nEnd with the answer in \\boxed{}.")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kinds": ["column"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"difficulty": 6}, "difficulty"),
        ({"test_fraction": 0.95}, "test_fraction"),
        ({"options": {"a": 1}}, "options"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_settings_out_of_range_are_refused(changes, field):
    with pytest.raises(FieldError) as caught:
        math_settings(**changes)
    assert caught.value.field == field


def test_unknown_and_empty_splits_are_told():
    with pytest.raises(ConfigError, match="did you mean 'validation'"):
        ENV.tasks("validaton")
    with pytest.raises(DataError, match=r"env\.num_tasks"):
        math_env(num_tasks=3, test_fraction=0.0).tasks("test")


@pytest.mark.parametrize("method", ["gear_paper", pytest.param("sft", marks=pytest.mark.slow)])
def test_a_run_trains_on_it(tmp_path, method):
    small = (
        "batch.tasks_per_step=4",
        "eval.num_tasks=4",
        "eval.samples_per_task=1",
        "eval.every=2",
    )
    words = ("run.max_steps=2", "run.name=r", "tracker=none", "env.num_tasks=200", *small)
    run(tmp_path, "train", f"method={method}", "env=math", *words)
    lines = numbers(tmp_path / "runs" / "r")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert "loss/total" in lines[-1]
    if method == "gear_paper":
        assert lines[-1]["reward/scorer_errors"] == 0.0
        assert lines[-1]["teacher/informed_fraction"] == 1.0
