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
    "train": "f61b5375b2b4ccc2d07f6ae1ee75b6be46f49021630852dbf230af5f84cbc68e",
    "validation": "bbc34575828c7734342cfb3e29ce60f6fbdc769edd65e6089ee1ad1bc7631cff",
    "test": "41e3c4d16e2a3e465fa965170b7a431e5b313168e8f126d1bb8d35d46034d07a",
    "demonstrations": "faf8df174a0956aeb0e2678d0a9996dcad025699f107f687da36fdb40f39f78d",
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
    for split in ("train", "validation", "test"):
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


def test_wrong_program_is_a_near_miss_that_fails():
    for task in family.tasks("validation")[::8]:
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
