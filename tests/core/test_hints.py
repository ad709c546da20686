"""Where hints stand in a prompt."""

from __future__ import annotations

from selfdistill_cli.core.hints import Hint, with_hints
from selfdistill_cli.core.types import Message

SYSTEM = Message(role="system", content="Be brief.")
TASK = (SYSTEM, Message(role="user", content="Write f(xs): return the sum."))
SHORT = Hint(
    kind="pruned", text="", messages=(SYSTEM, Message(role="user", content="Write f(xs)."))
)
SKILL = Hint(kind="skill", text="the sum: sum(...)")
ANSWER = Hint(kind="answer", text="def f(xs): return sum(xs)")


def test_text_is_appended_to_the_last_user_message_in_order() -> None:
    system, user = with_hints(TASK, [SKILL, ANSWER])
    assert system == SYSTEM
    assert user["content"] == (
        f"{TASK[1]['content']}\nSkill:\n{SKILL.text}\nAnswer:\n{ANSWER.text}"
    )
    assert with_hints(TASK, []) == TASK


def test_a_replaced_prompt_takes_the_other_hints_in_any_order() -> None:
    assert with_hints(TASK, [SHORT]) == SHORT.messages
    expected = f"Write f(xs).\nSkill:\n{SKILL.text}"
    for order in ([SHORT, SKILL], [SKILL, SHORT]):
        assert with_hints(TASK, order) == (SYSTEM, Message(role="user", content=expected))


def test_of_several_replacements_the_last_counts() -> None:
    other = Hint(kind="pruned", text="", messages=(Message(role="user", content="Write f."),))
    assert with_hints(TASK, [SHORT, other]) == other.messages
