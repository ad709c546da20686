"""Reading a hostile text takes no longer than reading a friendly one of its length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from selfdistill_cli.core.texts import readable
from selfdistill_cli.envs.agents.actions import Malformed
from selfdistill_cli.envs.agents.formats import FORMATS
from selfdistill_cli.envs.code.comparing import same_output
from selfdistill_cli.envs.code.hints import contrast
from selfdistill_cli.envs.code.programs import extract_program
from selfdistill_cli.sandbox.dialogue import clean

SIZE = 64 * 1024
UNITS = {
    "digits": "9", "exponents": "1e", "points": ".", "spaces": " ", "lines": "\n", "signs": "+",
    "words": "1.5 ", "addresses": "0x0x", "fences": "```", "fence lines": "```\n",
    "thoughts": "<think>", "actions": "<action>", "calls": "<tool_call>", "braces": "{",
    "separators": "\u2028", "letters": "a",
}  # fmt: skip
TEXTS = {name: unit * (SIZE // len(unit)) + "x" for name, unit in UNITS.items()}
TEXTS["open fence"] = "```" + "a" * SIZE
TEXTS["open fence and spaces"] = "```" + " " * SIZE


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of a call: other work on the machine does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("expected", ["1.5", "1e5", "1.5 " * 20_000, "", None])
def test_outputs_are_compared_in_linear_time(name: str, expected: str | None) -> None:
    text = TEXTS[name]
    other = text[:-1] + ".5" if expected is None else expected
    assert seconds(lambda: same_output(text, other)) < 0.2
    assert seconds(lambda: same_output(other, text)) < 0.2


@pytest.mark.parametrize("name", TEXTS)
def test_programs_and_messages_are_read_in_linear_time(name: str) -> None:
    assert seconds(lambda: extract_program(TEXTS[name])) < 0.2
    assert seconds(lambda: clean(TEXTS[name])) < 0.2
    assert seconds(lambda: readable(TEXTS[name])) < 0.2


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", TEXTS)
def test_actions_are_read_in_linear_time(form: str, name: str) -> None:
    def read() -> None:
        with pytest.raises(Malformed):
            FORMATS[form].parse(TEXTS[name], [], [])

    assert seconds(read) < 0.2


def test_long_words_are_no_numbers_and_short_ones_are() -> None:
    assert same_output("1" + "0" * 300, "1e300")
    assert not same_output("1." + "0" * 500, "1.0")
    assert same_output("1." + "0" * 500, "1." + "0" * 500)


def test_repetitive_programs_are_contrasted_in_a_moment() -> None:
    def compare() -> None:
        assert contrast("x = a\n" * 2000 + "return 1", "x = x\n" * 1500)
        assert contrast("a " * 3000, "a b " * 1500)

    assert seconds(compare) < 2


def test_long_programs_are_contrasted_from_their_first_difference_on() -> None:
    same = "".join(f"x{i} = {i}\n" for i in range(500))
    found = contrast(f"{same}return a + b", f"{same}return a - b")
    assert found == "Do: return a + b\nNot: return a - b"
    assert contrast(same, same + "\n") is None
    assert contrast(same, same + "end") == "Do: = 499\nNot: = 499 end"
