"""Hints of the code environment: before and after attempts, built-in and user's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from code_envs import FIXTURE, attempt, make_env, task_of, user_task

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.hints import HintKind, with_hints
from selfdistill_cli.core.types import Message, Score, Stop, Task, Trajectory
from selfdistill_cli.envs.code import family, hints
from selfdistill_cli.envs.code.env import CodeEnv

TEXT_KINDS = [kind for kind in get_args(HintKind) if kind != "pruned"]
Attempts = tuple[Sequence[Trajectory], Sequence[Score]]


@pytest.fixture(scope="module")
def built_in() -> Iterator[CodeEnv]:
    env = make_env()
    yield env
    env.close()


@pytest.fixture(scope="module")
def users() -> Iterator[CodeEnv]:
    env = make_env(data=FIXTURE)
    yield env
    env.close()


def text_of(
    env: CodeEnv,
    kind: HintKind,
    task: Task,
    group: Attempts = ((), ()),
    index: int | None = None,
    seed: int = 0,
) -> str | None:
    hint = env.hint(kind, task, *group, index, seed)
    assert hint is None or (hint.kind, hint.messages) == (kind, None)
    return None if hint is None else hint.text


def built_in_task(task_id: str) -> Task:
    return next(task for task in family.tasks("train") if task.id == task_id)


def test_hints_before_any_attempt(built_in: CodeEnv) -> None:
    task = built_in.tasks("train")[0]
    texts = {kind: text_of(built_in, kind, task, seed=7) for kind in TEXT_KINDS}
    wrong = family.wrong_program(task, 7)
    assert texts["answer"] == texts["sibling"] == task.answer
    assert texts["own_wrong_answer"] == wrong
    assert texts["feedback"].startswith(f"{wrong}\nf(")
    assert ", expected " in texts["feedback"]
    assert len(set(texts.values())) == len(texts) - 1
    for kind, text in texts.items():
        assert text_of(built_in, kind, task, seed=7) == text


def test_hints_after_attempts(users: CodeEnv) -> None:
    task = task_of(users, "own/4")
    right, wrong = "def double(x): return x * 2", "def double(x): return x"
    group = attempt(users, task, right, wrong, "def double(x): return 2 * x")
    failed = users.hint("own_wrong_answer", task, *group, 1, 0)
    assert failed is not None
    assert failed.text == wrong
    feedback = users.hint("feedback", task, *group, 1, 0)
    assert feedback is not None
    assert feedback.text == f"{wrong}\ndouble(2) returned 2, expected 4"
    for kind in ("own_wrong_answer", "feedback"):
        assert users.hint(kind, task, *group, 0, 0) is None  # it did not fail
    seen = {users.hint("sibling", task, *group, 0, seed) for seed in range(5)}
    assert {hint.text for hint in seen if hint} == {"def double(x): return 2 * x"}
    chosen = {users.hint("sibling", task, *group, 1, seed) for seed in range(20)}
    assert len(chosen) == 2
    assert users.hint("answer", task, *group, 1, 0) is None  # the line has none


def test_no_sibling_hint_without_a_success(users: CodeEnv) -> None:
    task = task_of(users, "Mini/1")
    group = attempt(users, task, "    return 1", "    return n")
    assert users.hint("sibling", task, *group, 0, 0) is None


def test_users_tasks_have_no_made_wrong_programs(users: CodeEnv) -> None:
    task = task_of(users, "Mini/1")
    for kind in ("own_wrong_answer", "feedback"):
        assert users.hint(kind, task, (), (), None, 0) is None
    answer = users.hint("answer", task, (), (), None, 0)
    assert answer is not None
    assert answer.text.endswith("return n % 2 == 0")


def test_evidence_is_true_and_says_no_program(built_in: CodeEnv) -> None:
    for task in built_in.tasks("train")[::150]:
        namespace: dict[str, Any] = {}
        exec(task.answer, namespace)  # the family's own text
        seen = {text_of(built_in, "evidence", task, seed=seed) for seed in range(6)}
        assert len(seen) > 1
        for text in seen:
            *facts, common = (text or "").splitlines()
            assert len(set(facts)) == 2
            assert common.startswith(f"all: {type(task.meta['expected'][0]).__name__}")
            for fact in facts:
                call, expected = fact.split(" is ")
                assert eval(call, namespace) == eval(expected)


def test_evidence_is_the_same_kind_of_text_after_attempts(built_in: CodeEnv) -> None:
    task = built_in.tasks("train")[0]
    group = attempt(built_in, task, family.wrong_program(task, 0), task.answer)
    for index in (0, 1):
        assert text_of(built_in, "evidence", task, group, index) == text_of(
            built_in, "evidence", task
        )


@pytest.mark.parametrize(
    ("task_id", "evidence"),
    [
        # Every assert of Mini/0 needs helpers of the test itself.
        ("Mini/0", None),
        (
            "Mini/1",
            {"assert is_even(2) is True", "assert is_even(3) is False", "assert is_even(0)"},
        ),
        ("Mini/2", {"assert divide(1, 2) == 0.5"}),
        (
            "3",
            {
                "assert set(shared((3, 4, 5, 6), (5, 7, 4, 10))) == set((4, 5))",
                "assert shared((1, 2), (3, 4)) == ()",
                "assert shared((1, 1), (1,)) == (1,)",
            },
        ),
        # Its results are of different types, so they have nothing in common.
        ("own/4", {"double(2) is 4", "double([1]) is [1, 1]", "double(0.1) is 0.2"}),
    ],
)
def test_evidence_of_users_tasks(users: CodeEnv, task_id: str, evidence: set[str] | None) -> None:
    task = task_of(users, task_id)
    texts = [text_of(users, "evidence", task, seed=seed) for seed in range(20)]
    if evidence is None:
        assert texts == [None] * 20
        return
    found = [(text or "").splitlines() for text in texts]
    assert {len(facts) for facts in found} == {min(2, len(evidence))}
    assert {fact for facts in found for fact in facts} == evidence


def test_skill_tells_one_part_of_the_program(built_in: CodeEnv) -> None:
    task = built_in_task("family/far2-rest5-reversed")
    texts = {text_of(built_in, "skill", task, seed=seed) for seed in range(60)}
    assert texts == {
        "keep numbers with size above 2: for x in xs if abs(x) > 2",
        "take those further than 2 from zero: for x in xs if abs(x) > 2",
        "take each modulo 5: x % 5 for x in xs",
        "find each remainder by 5: x % 5 for x in xs",
        "the reversed list: [...][::-1]",
        "them from last to first: [...][::-1]",
    }
    group = attempt(built_in, task, "def f(xs): return xs")
    assert text_of(built_in, "skill", task, group, 0) in texts
    for other in [*family.tasks("train")[::50], *family.tasks("practice")[::50]]:
        text = text_of(built_in, "skill", other) or ""
        assert ": " in text
        assert other.answer.split("return ")[1] not in text


def test_skill_of_a_users_task_is_its_field(users: CodeEnv, tmp_path: Path) -> None:
    assert text_of(users, "skill", task_of(users, "Mini/1")) is None
    line = {"prompt": "Write f.", "calls": [{"args": [], "expected": 0}]}
    env = make_env(data=FIXTURE)
    task = user_task(tmp_path, skill="Use the modulo operator.", **line)
    assert text_of(env, "skill", task) == "Use the modulo operator."
    with pytest.raises(DataError, match='line 1, field "skill": found int 3'):
        user_task(tmp_path, skill=3, **line)


def test_meta_skill_before_any_attempt_contrasts_a_made_wrong_program(built_in: CodeEnv) -> None:
    task = built_in.tasks("train")[3]
    texts = {text_of(built_in, "meta_skill", task, seed=seed) for seed in range(8)}
    expected = {hints.contrast(task.answer, family.wrong_program(task, s)) for s in range(8)}
    assert texts == expected
    assert len(texts) > 1
    assert None not in texts


def test_meta_skill_after_attempts_contrasts_them(users: CodeEnv) -> None:
    task = task_of(users, "own/4")
    right, wrong, worse = (f"def double(x): return {e}" for e in ("x * 2", "x", "x + x + x"))
    also_right = "def double(x): return 2 * x"
    group = attempt(users, task, right, wrong, also_right, worse)
    for index, bad in ((1, wrong), (3, worse)):
        seen = {text_of(users, "meta_skill", task, group, index, seed) for seed in range(20)}
        assert seen == {hints.contrast(right, bad), hints.contrast(also_right, bad)}
    # A correct attempt is not shown itself while there is another one.
    seen = {text_of(users, "meta_skill", task, group, 0, seed) for seed in range(20)}
    assert seen == {hints.contrast(also_right, wrong), hints.contrast(also_right, worse)}
    only = attempt(users, task, right, wrong)
    assert text_of(users, "meta_skill", task, only, 0) == hints.contrast(right, wrong)


def test_without_a_contrast_there_is_no_meta_skill(users: CodeEnv, built_in: CodeEnv) -> None:
    task = task_of(users, "own/4")
    right, wrong = "def double(x): return x * 2", "def double(x): return x"
    for program in (right, wrong):
        group = attempt(users, task, program, program)
        assert text_of(users, "meta_skill", task, group, 0) is None
    assert text_of(users, "meta_skill", task) is None
    easy = built_in.tasks("train")[0]
    group = attempt(built_in, easy, easy.answer)
    assert text_of(built_in, "meta_skill", easy, group, 0) is None


def test_an_attempt_that_was_cut_off_has_no_program_to_show(users: CodeEnv) -> None:
    task = task_of(users, "own/4")
    (right,), (good,) = attempt(users, task, "def double(x): return x * 2")
    cut = Trajectory(
        task=task, sibling=1, turns=(), stop=Stop.MAX_TOKENS, outcome={}, policy_version=0
    )
    group = ((right, cut), (good, Score(total=0.0, success=0.0, parts={})))
    for kind in ("own_wrong_answer", "feedback", "meta_skill"):
        assert text_of(users, kind, task, group, 1) is None


@pytest.mark.parametrize(
    ("task_id", "prompt"),
    [
        ("Mini/0", "def root(coefficients: List[float]) -> float:"),
        ("Mini/1", "def is_even(n):"),
        ("3", "Write shared."),
        ("own/4", None),
    ],
)
def test_pruned_prompts_of_users_tasks(users: CodeEnv, task_id: str, prompt: str | None) -> None:
    task = task_of(users, task_id)
    hint = users.hint("pruned", task, (), (), None, 0)
    if prompt is None:  # there is nothing but the head of the function
        assert hint is None
        return
    assert hint is not None
    assert with_hints(task.messages, [hint]) == (Message(role="user", content=prompt),)


def test_pruned_prompt_of_built_in_tasks_keeps_instructions_and_takes_hints() -> None:
    env = make_env(instructions="Answer with code only.")
    task = env.tasks("train")[0]
    pruned = env.hint("pruned", task, (), (), None, 0)
    answer = env.hint("answer", task, (), (), None, 0)
    assert pruned is not None
    assert answer is not None
    for order in ([pruned, answer], [answer, pruned]):
        assert with_hints(task.messages, order) == (
            Message(role="system", content="Answer with code only."),
            Message(role="user", content=f"Write f(xs).\nAnswer:\n{task.answer}"),
        )
    practice = family.tasks("practice")[0]
    assert with_hints(task.messages, [pruned])[1:] == practice.messages
    assert with_hints(task.messages, []) == task.messages
