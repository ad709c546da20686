"""Environments of verifiers, played turn by turn. They run where the package is installed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.types import Score, Stop, Trajectory
from selfdistill_cli.envs.packages import VERIFIERS
from selfdistill_cli.envs.verifiers import data
from selfdistill_cli.envs.verifiers.env import VerifiersEnv
from selfdistill_cli.envs.verifiers.messages import calls_in, told
from selfdistill_cli.envs.verifiers.settings import VerifiersSettings
from selfdistill_cli.testing import check_env

try:
    VERIFIERS.require("env.name=x")
    MISSING = False
except ConfigError:
    MISSING = True
needs_package = pytest.mark.skipif(MISSING, reason=f"needs verifiers: {VERIFIERS.install}")
CONF = Path(__file__).parents[2] / "conf/env/verifiers.yaml"


def settings(**changes: Any) -> VerifiersSettings:
    """The shipped values, with some changed."""
    values = yaml.safe_load(CONF.read_text())
    del values["defaults"], values["_target_"]
    return VerifiersSettings(**{**values, "name": "verifiers_samples", **changes})


def sample(kind: str, **changes: Any) -> VerifiersEnv:
    return VerifiersEnv(settings(arguments={"kind": kind}, **changes))


def play(env: VerifiersEnv, replies: list[str], number: int = 0) -> list[Any]:
    task = env.tasks("train")[number]
    episode = env.episode(task, 0)
    return [episode.step(text.replace("ANSWER", str(task.answer))) for text in replies]


def test_without_the_package_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(ConfigError, match=r"env\.name=x: cannot import verifiers.*pip install"):
        VerifiersEnv(settings(name="x")).tasks("train")


@needs_package
@pytest.mark.parametrize("kind", ["single", "turns", "tools", "own_eval"])
def test_it_keeps_the_contract_of_environments(kind):
    check_env(lambda: sample(kind))


@needs_package
def test_one_turn_is_scored_by_the_rubric():
    (right,), (wrong,) = play(sample("single"), ["ANSWER"]), play(sample("single"), ["x" * 30])
    assert right.done
    assert {k: right.outcome[k] for k in ("reward", "success", "right", "short")} == {
        "reward": 1.25, "success": 1.0, "right": 1.0, "short": 1.0
    }  # fmt: skip
    assert (wrong.outcome["reward"], wrong.outcome["success"]) == (0.0, 0.0)
    strict = sample("single", success_reward=1.5)
    assert play(strict, ["ANSWER"])[0].outcome["success"] == 0.0


@needs_package
def test_several_turns_end_where_the_environment_says_so():
    env = sample("turns")
    turns = play(env, ["go"] * (int(env.tasks("train")[0].answer) % 3 + 1))
    assert [turn.done for turn in turns] == [False] * (len(turns) - 1) + [True]
    assert all(" left, dice " in turn.observation[0]["content"] for turn in turns[:-1])
    assert turns[-1].outcome["num_turns"] == len(turns)
    again = play(env, ["go"] * len(turns))
    assert [t.observation for t in again] == [t.observation for t in turns], "own dice by seed"


@needs_package
def test_tools_are_explained_called_and_answered():
    env = sample("tools")
    task = env.tasks("train")[0]
    assert '"name": "increase"' in task.messages[0]["content"]
    number = int(task.answer) - 1
    call = f'<tool_call>{{"name": "increase", "arguments": {{"number": {number}}}}}</tool_call>'
    hidden = f"<think>{call}</think>{task.answer}"
    first, broken, last = play(env, [f"I ask. {call}", "<tool_call>{no</tool_call>", hidden])
    answered = f"<tool_response>\n{task.answer}\n</tool_response>"
    assert first.observation == ({"role": "user", "content": answered},)
    assert "Expecting property name" in broken.observation[0]["content"]
    assert last.done, "a call in a thought is none"
    assert last.outcome["increase_calls"] == 2.0 - 1.0


@needs_package
@pytest.mark.parametrize("reply", ["raise", "bug"])
def test_an_environment_that_fails_ends_its_own_episode(reply):
    env = sample("turns")
    number = next(i for i, t in enumerate(env.tasks("train")) if int(t.answer) % 3)
    with pytest.raises((RuntimeError, ZeroDivisionError), match=r"failed|a bug"):
        play(env, [reply, "go"], number)


@needs_package
def test_an_environment_that_rewrites_the_conversation_is_told():
    env = sample("turns")
    number = next(i for i, t in enumerate(env.tasks("train")) if int(t.answer) % 3 == 2)
    with pytest.raises(ValueError, match="rewrites what was said"):
        play(env, ["rewrite", "go"], number)


@needs_package
def test_splits_share_no_task():
    for kind in ("single", "own_eval"):
        env = sample(kind, validation_fraction=0.3, test_fraction=0.3)
        ids = [{task.id for task in env.tasks(split)} for split in env.splits]
        assert len(set.union(*ids)) == sum(map(len, ids)) == (100 if kind == "own_eval" else 60)
    assert len(sample("own_eval").tasks("train")) == 60
    assert sum(len(sample("single", num_tasks=40).tasks(s)) for s in env.splits) == 40


@needs_package
def test_hints_are_of_the_row_and_of_the_attempts():
    env = sample("single")
    task = env.tasks("train")[0]
    outcomes = [play(env, [text])[0].outcome for text in ("ANSWER", "no")]
    scores = [Score(total=o["reward"], success=o["success"], parts={}) for o in outcomes]
    group = [
        Trajectory(task=task, sibling=i, turns=(), stop=Stop.DONE, outcome=o, policy_version=0)
        for i, o in enumerate(outcomes)
    ]
    texts = {kind: env.hint(kind, task, group, scores, 1, 0) for kind in env.hints}
    said = {kind: hint and hint.text for kind, hint in texts.items()}
    assert said == {"answer": task.answer, "sibling": task.answer, "own_wrong_answer": "no"}


@needs_package
def test_what_cannot_be_played_is_told():
    with pytest.raises(ConfigError, match=r"env\.name=verifiers_samples: its rubric compares"):
        sample("group").tasks("train")
    with pytest.raises(ConfigError, match=r"env\.name=no-such-env: .*no-such-env.*load_environ"):
        VerifiersEnv(settings(name="no-such-env")).tasks("train")
    with pytest.raises(ConfigError, match=r"env\.name=verifiers_samples: .*colour"):
        VerifiersEnv(settings(arguments={"colour": 1})).tasks("train")
    with pytest.raises(DataError, match="no task falls into split 'test'"):
        sample("single", test_fraction=0.0).tasks("test")


@needs_package
def test_the_runs_own_signal_handlers_stay():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    sample("single").tasks("train")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@needs_package
def test_an_episode_that_is_left_ends_its_rollout():
    env = sample("turns")
    episode = env.episode(env.tasks("train")[0], 0)
    rollout = episode._talk._rollout
    del episode
    assert rollout.done()


CALLS = {
    "none": ("hello", "hello", []),
    "two": (
        'a<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g", "arguments": {"x": 1}}'
        "</tool_call>", "a", [("f", "{}"), ("g", '{"x": 1}')],
    ),
    "no JSON": ("<tool_call>f(1)</tool_call>", "", [("", "f(1)")]),
    "a list": ("<tool_call>[1]</tool_call>", "", [("", "[1]")]),
    "in a thought": ('<think><tool_call>{"name": "f"}</tool_call></think>1', None, []),
    "deep": (f"<tool_call>{'[' * 100_000}</tool_call>", "", [("", "[" * 100_000)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_calls_are_found_in_a_reply(case):
    text, said, calls = CALLS[case]
    found, made = calls_in(text)
    assert found == (text if said is None else said)
    assert [(call["name"], call["arguments"]) for call in made] == calls
    assert len({call["id"] for call in made}) == len(made)


def test_messages_that_are_no_text_are_refused():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert told({"role": "user", "content": parts}) == {"role": "user", "content": "ab"}
    with pytest.raises(ValueError, match="no text"):
        told({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})


class Rows:
    """What `data.read_tasks` reads of an environment of verifiers."""

    eval_dataset, tool_defs = None, None

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.dataset = rows

    def build_dataset(self) -> None: ...
    def build_eval_dataset(self) -> None: ...


def test_a_row_that_is_no_task_is_told_with_its_number():
    good = {"prompt": [{"role": "user", "content": "q"}], "answer": "a", "example_id": 0}
    with pytest.raises(DataError, match=r"env\.name=.*, row 2: cannot be a task .*no text"):
        data.read_tasks(Rows(good, {"prompt": [{"role": "user", "content": [{}]}]}), settings())
    with pytest.raises(DataError, match="row 1: found no message of a user"):
        data.read_tasks(Rows({"prompt": [{"role": "system", "content": "s"}]}), settings())
    tasks = data.read_tasks(Rows(good, {**good, "example_id": 1}), settings())
    assert sum(map(len, tasks.values())) == 1, "a row that comes again is left out"
