"""Environments of verifiers, as a user's module has them; imported where the package is there."""

from __future__ import annotations

import random
from typing import Any

import verifiers as vf
from datasets import Dataset

ROWS = [{"question": f"{n}+1=?", "answer": str(n + 1)} for n in range(60)]


def right(completion: Any, answer: str) -> float:
    """Whether the last message holds the answer alone."""
    return float(completion[-1]["content"].strip() == answer)


async def short(completion: Any) -> float:
    """Whether the last message is short; asynchronous, as a reward function may be."""
    return float(len(completion[-1]["content"]) < 20)


def failing(completion: Any) -> float:
    """A reward function with a mistake in it."""
    raise KeyError("no such thing")


def increase(number: int) -> int:
    """Add one.

    Args:
        number: what to add to
    """
    return number + 1


class Countdown(vf.MultiTurnEnv):
    """Say one less than was said, until zero."""

    async def setup_state(self, state: Any) -> Any:
        state["left"] = int(state["answer"]) % 3 + 1
        state["dice"] = random.random()
        return state

    async def get_prompt_messages(self, state: Any) -> Any:
        found = await super().get_prompt_messages(state)
        rewritten = any(message["content"] == "rewrite" for message in found)
        return [{"role": "user", "content": "other"}] if rewritten else found

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        said = messages[-1]["content"]
        if said == "raise":
            raise vf.ToolError("broken")
        if said == "bug":
            raise ZeroDivisionError("a bug")
        state["left"] -= 1
        if state["left"] <= 0:
            state["final_env_response"] = [{"role": "user", "content": "over"}]
        return [{"role": "user", "content": f"{state['left']} left, dice {state['dice']:.6f}"}]


def load_environment(kind: str = "single", rows: int = 60) -> Any:
    """Return one of the samples."""
    data = Dataset.from_list(ROWS[:rows])
    rubric = vf.Rubric(funcs=[right, short], weights=[1.0, 0.25])
    if kind == "single":
        return vf.SingleTurnEnv(dataset=data, rubric=rubric, system_prompt="Be short.")
    if kind == "own_eval":
        return vf.SingleTurnEnv(
            dataset=data,
            eval_dataset=Dataset.from_list(
                [{"question": f"{n}-1=?", "answer": str(n - 1)} for n in range(40)]
            ),
            rubric=rubric,
        )
    if kind == "failing":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[failing]))
    if kind == "group":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[of_group]))
    if kind == "tools":
        return vf.ToolEnv(tools=[increase], dataset=data, rubric=rubric, max_turns=4)
    return Countdown(dataset=data, rubric=rubric)


def of_group(completions: Any) -> list[float]:
    """A reward that compares attempts."""
    return [0.0] * len(completions)
