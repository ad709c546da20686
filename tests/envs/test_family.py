"""The built-in family: fixed splits, true answers, tests that tell programs apart."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code import family

# A change here moves tasks between splits or changes them: every published number is void.
FINGERPRINTS = {
    "train": "8aaa5896f94016fba12a6e6655bf40246dd06a55e1e6911d5bafa3e242901208",
    "validation": "2fbb3ba7fd6740c0c1ecdb9f47b3da2728e4b3b61770336fc845c020859aa00e",
    "test": "1c332945d293e3d504a3bcb64c4756380663f4d5dbf2c9cbac3678d2e7f24993",
    "practice": "957b061dd1a7c1ae1f86c1d1a85c4e4ef6968b14b5f0ae487e68faf6f3b9b7fa",
    "demonstrations": "af11ac04581d1bc132329f0557efa8d7370fd5c56e1e26f01481312cff6f698a",
}


def outputs(program: str, task: Task) -> list[Any]:
    """Run a program of the family (our own text) on the task's tests."""
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return [namespace[task.meta["entry_point"]](*call) for call in task.meta["calls"]]


@pytest.mark.parametrize("split", family.SPLITS)
def test_splits_are_pinned(split: str):
    assert family.fingerprint(split) == FINGERPRINTS[split]


def test_splits_are_disjoint_and_demonstrations_are_part_of_train():
    ids = {split: {task.id for task in family.tasks(split)} for split in family.SPLITS}
    assert {split: len(ids[split]) for split in family.SPLITS} == {
        split: len(family.tasks(split)) for split in family.SPLITS
    }
    assert len(ids["train"] | ids["validation"] | ids["test"]) > 2000
    assert not ids["train"] & ids["validation"]
    assert not ids["train"] & ids["test"]
    assert not ids["validation"] & ids["test"]
    assert ids["demonstrations"] < ids["train"]
    said = [task.messages[0]["content"] for split in ("train", "validation", "test")
            for task in family.tasks(split)]  # fmt: skip
    assert len(set(said)) == len(said)


def test_every_reference_program_gives_the_expected_values():
    for split in ("train", "validation", "test", "practice"):
        for task in family.tasks(split):
            assert outputs(task.answer, task) == task.meta["expected"], task.id
            assert json.loads(json.dumps(task.meta)) == task.meta


def test_programs_of_other_tasks_fail():
    held_out = family.tasks("validation")
    others = family.tasks("train")[::7]
    passed = sum(
        outputs(other.answer, task) == task.meta["expected"]
        for task in held_out[::4]
        for other in others
    )
    assert passed / (len(held_out[::4]) * len(others)) < 0.005


def test_every_component_is_demonstrated():
    names = {task.id.removeprefix("family/") for task in family.tasks("demonstrations")}
    for position, slot in enumerate(family.SLOTS.values()):
        used = {name.split("-")[position].rstrip("0123456789") for name in names}
        assert used == {component.name for component in slot}


def test_practice_says_nothing_and_shares_no_program():
    practice = family.tasks("practice")
    assert {task.messages[0]["content"] for task in practice} == {"Write f(xs)."}
    used = {task.answer for split in ("train", "validation", "test")
            for task in family.tasks(split)}  # fmt: skip
    assert not used & {task.answer for task in practice}
    assert len({task.answer for task in practice}) == len(practice) == 2000


def test_texts_for_the_tokenizer_hold_no_held_out_prompt():
    texts = set(family.texts())
    held_out = {task.messages[0]["content"] for task in family.tasks("test")}
    assert not texts & held_out
    assert any(" returned " in text for text in texts)


def test_wrong_program_is_a_near_miss_that_fails():
    for task in [*family.tasks("validation")[::8], *family.tasks("practice")[::100]]:
        wrong = {family.wrong_program(task, seed) for seed in range(6)}
        assert len(wrong) > 1
        assert wrong == {family.wrong_program(task, seed) for seed in range(6)}
        for program in wrong:
            assert outputs(program, task) != task.meta["expected"]


def test_unknown_split_and_foreign_task_are_user_errors():
    with pytest.raises(UserError, match="did you mean 'validation'"):
        family.tasks("valdation")
    with pytest.raises(UserError, match="built-in family"):
        family.wrong_program(Task(id="mine", messages=()), 0)
    with pytest.raises(UserError, match="built-in family"):
        family.skill(Task(id="mine", messages=()), 0)


def test_made_in_a_second_without_heavy_imports():
    code = (
        "import sys, time; from selfdistill_cli.envs.code import family;"
        "start = time.process_time();"
        "[family.tasks(split) for split in family.SPLITS]; print(time.process_time() - start);"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 5, "generation of the family became slow"
