"""Key tokens of a program, found in its syntax tree."""

from __future__ import annotations

from selfdistill_cli.envs.code.key_spans import key_spans

PROGRAM = """def f(x):
    total = "ä for"; return_value = 0
    for i in x:
        while i: i -= 1
    def inner(): return [y for y in x if y]
    return total
"""


def words(answer: str, prefix: str = "") -> list[str]:
    return [answer[a:b] for a, b in key_spans(answer, prefix)]


def test_names_loops_and_returns():
    expected = ["f", "for", "while", "inner", "return", "for", "return"]
    assert words(PROGRAM) == expected
    assert key_spans(PROGRAM, "")[0] == (4, 5)
    second = key_spans(PROGRAM, "")[1]
    assert PROGRAM[: second[0]].endswith("0\n    ")


def test_a_fenced_program_inside_an_answer():
    answer = f"for you, I return this:\n```python\n{PROGRAM}```\nand return\n"
    assert words(answer) == words(PROGRAM)
    assert key_spans(answer, "")[0][0] == answer.index("def f") + 4


def test_an_answer_that_continues_the_prompt():
    prefix = 'def f(x):\n    """Return x for all."""\n'
    answer = "    for i in x:\n        return i\n"
    assert words(answer, prefix) == ["for", "return"]
    assert key_spans(answer, prefix)[0] == (4, 7)


def test_what_is_not_python_has_none():
    for answer in ("", "no program", "def f(:", "def f(x):\n\0", "(" * 10_000):
        assert key_spans(answer, "") == []


def places(answer: str) -> list[int]:
    return [start for start, _ in key_spans(answer, "")]


def test_a_comment_within_a_comprehension_has_no_key_words():
    answer = (
        "x = [(a)  # for us\n"
        "     for  # for what\n"
        "     (a) in b if a  # for all\n"
        "     for c in {d: e async for d in e}]\n"
    )
    marked = [answer.index("     for  #") + 5, answer.index("for c"), answer.index("for d")]
    assert places(answer) == marked
    assert words(answer) == ["for"] * 3


def test_names_of_all_alphabets_are_their_own():
    answer = "def \u2118(): pass\ndef f(): pass\ndef \ufb01x(): pass\nasync def \\\n g(): pass\n"
    assert words(answer) == ["\u2118", "f", "\ufb01x", "g"]
    assert words("@d\ndef f(): return lambda: [x for x in y]\n") == ["f", "return", "for"]


def test_a_huge_answer_has_none():
    assert key_spans("def f(): pass\n" * 5000, "") == []


def test_odd_line_ends_do_not_move_the_spans():
    assert words("x = 1\x0c\r\ndef f(x):\r\n    return x\r\n") == ["f", "return"]
    assert words("async def f(x):\n    async for y in x: pass\n") == ["f", "async"]
