"""Where an answer stands in a response, and when two answers are the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfdistill_cli.envs.math.answers import (
    Found,
    boxed,
    find_answer,
    is_calculation,
    number,
    render,
    same,
)

FORMATS = ("hash", "boxed", "tag", "number", "any")
READ = [
    ("hash", "7+5=12\n#### 12", "12"),
    ("hash", "#### 1\n#### 2 \nand so on", "2"),
    ("hash", "####", None),
    ("hash", "12", None),
    ("boxed", "so \\boxed{1}, no: $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
    ("boxed", "\\boxed 7.", "7"),
    ("boxed", "\\fbox{3}", "3"),
    ("boxed", "\\boxed{1} and \\boxed{2", None),
    ("tag", "<answer> a\nb </answer>", "a\nb"),
    ("tag", "<answer>1</answer><answer>2</answer>", "2"),
    ("tag", "<answer>1", None),
    ("number", "there are 3 of 1,234.5 left.", "1,234.5"),
    ("number", "x2 is none", None),
    ("number", "it is -4.", "-4"),
    ("any", "\\boxed{1} #### 2", "1"),
    ("any", "<answer>5</answer>", "5"),
    ("hash", "<think>#### 3</think>\n#### 4", "4"),
    ("hash", "<think>#### 3", None),
    ("hash", "<think>#### 3</think>", None),
]


@pytest.mark.parametrize(("form", "text", "expected"), READ)
def test_the_last_answer_in_the_form_is_read(form, text, expected):
    found = find_answer(text, form)
    assert found.answer == expected
    assert found.formatted == (expected is not None)


def test_a_bare_number_is_an_answer_of_any_form_but_not_a_formatted_one():
    assert find_answer("so 12", "any") == Found("12", False)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("answer", ["12", "-3.5", "1/2"])
def test_what_is_rendered_is_read_back(form, answer):
    assert find_answer(render("7+5=12", answer, form), form).answer == answer


@pytest.mark.parametrize(
    ("expected", "given_text", "verdict"),
    [
        ("1234", "1,234", True),
        ("0.5", ".5", True),
        ("1/2", "\\frac{1}{2}", True),
        ("-1/2", "\\frac{-1}{2}", True),
        ("1000", "1e3", True),
        ("42", "42.0", True),
        ("42", "$42", True),
        ("42", "42.", True),
        ("Yes", "\\text{yes}", True),
        ("42", "43", False),
        ("1234", "1,2,34", None),
        ("42", "42 or 43", None),
        ("42", "4242", False),
        ("42", "٤٢", None),
        ("1", "nan", None),
        ("1", "1e999", None),
        ("1", "1/0", None),
        ("0.3333", "1/3", False),
    ],
)
def test_equal_texts_and_numbers_are_the_same(expected, given_text, verdict):
    assert same(expected, given_text) is verdict


@given(st.text(max_size=200) | st.text(alphabet="\\boxed{}#<answer>/1.,e- \n", max_size=200))
def test_no_text_breaks_the_reading(text):
    for form in FORMATS:
        found = find_answer(text, form)
        assert found.answer is None or found.answer.strip()
    number(text)
    same(text, text[::-1])


def test_long_texts_are_read_in_little_time():
    start = time.monotonic()
    for text in ("\\boxed{" * 40_000, "1" * 300_000, "1," * 150_000, "<answer>" * 40_000):
        for form in FORMATS:
            found = find_answer(text, form)
            number(found.answer or text)
    assert boxed("{" * 300_000) is None
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "text",
    ["83*8", "663+1", "665-1", "665 - 1", "\\sqrt{440896}", "\\frac{1328}{2}+0", "41 = 664", "664!",
     "664 \\approx 41", "\\max(1,664)", "|-664|", "--664", "664^1", "1328/2 cm", "660\\pm 4",
     "83\\times8", "x = 41 = 664"],
)  # fmt: skip
def test_a_calculation_is_no_answer(text):
    assert is_calculation(text)


@pytest.mark.parametrize(
    "text",
    ["664", "-664", "+664 cm", "x=664", "664 km/h", "664^\\circ", "664^{\\circ}", "\\frac12",
     "\\dfrac{1}{2}\\text{ cm}", "6.64 \\times 10^2", "6.64\\cdot10^{-2}",
     "\\$664", "664\\%", "\\{664\\}"],
)  # fmt: skip
def test_units_names_fractions_and_powers_of_ten_are_answers(text):
    assert not is_calculation(text)


def test_a_division_that_is_not_done_is_no_answer():
    assert same("42", "84/2") is False
    assert same("42", "\\frac{84}{2}") is False
    assert same("0.5", "1/2") is same("1/2", "0.5") is same("84/2", "84/2") is True
