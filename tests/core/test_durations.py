"""Lengths of time as people type them."""

from __future__ import annotations

import pytest

from selfdistill_cli.core.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3h50m", 13800), ("90s", 90), ("1d12h", 129600), ("45m", 2700), ("1.5h", 5400), (90, 90),
     ("0.5", 0.5), (" 2H ", 7200)],
)  # fmt: skip
def test_seconds(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "3 hours", "h", "3x", "-3h", "3h50"])
def test_no_length_of_time(text):
    with pytest.raises(ValueError, match="expected a length of time such as 3h50m"):
        seconds_of(text)
