"""What a person sees: nothing is lost, nothing breaks, and a display never ends a run."""

from __future__ import annotations

import io
import os
import signal
import threading

import pytest
from rich.console import Console

from selfdistill_cli.tracking.progress import (
    LiveDisplay,
    PlainDisplay,
    _Panel,
    make_display,
    summary_text,
)
from selfdistill_cli.tracking.readout import TimeLeft, cells, duration, introduction_lines

STEP = {
    "reward/mean": 0.512,
    "reward/success": 0.391,
    "policy/approx_kl": 0.0031,
    "policy/entropy": 0.412,
    "time/tokens_per_s": 4100.2,
    "loss/total": 0.02,
}
EVALUATION = {"eval/success": 0.412, "eval/success_low": 0.36, "eval/success_high": 0.47}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def plain_lines(*steps, total=80):
    stream = io.StringIO()
    display = make_display(total, stream, plain=None)
    for step, metrics in steps:
        display.phase("acting")
        display.step(step, metrics)
    return stream.getvalue().splitlines()


def test_output_that_is_no_terminal_gets_a_line_per_step():
    lines = plain_lines((11, STEP), (12, {**STEP, **EVALUATION}))
    assert lines[0] == (
        "step 11/80  reward 0.512  success 0.391  kl 0.0031  entropy 0.412  tok/s 4100  left -"
    )
    assert lines[1].startswith("step 12/80  reward 0.512")
    assert "  eval 0.412 [0.360, 0.470]  left 0:0" in lines[1]


def test_without_a_reward_the_loss_is_shown_and_absent_metrics_are_left_out():
    sft = {"loss/total": 1.25, "policy/entropy": 0.4}
    assert plain_lines((1, sft)) == ["step 1/80  loss 1.2500  entropy 0.400  left -"]
    assert plain_lines((0, EVALUATION)) == ["step 0/80  eval 0.412 [0.360, 0.470]"]
    assert plain_lines((1, {})) == ["step 1/80  left -"]


@pytest.mark.parametrize(("value", "shown"), [(None, "-"), (float("nan"), "nan")])
def test_a_number_that_is_none_or_not_finite_is_shown_as_such(value, shown):
    assert cells({"reward/mean": value}) == [("reward", shown)]


def test_time_left_is_taken_from_the_newest_steps():
    left = TimeLeft(total_steps=100)
    assert left.text(now=0) == "-"
    for step in range(50):
        left.note(step, now=100.0 * step)
    for step in range(50, 80):
        left.note(step, now=5000 + 2.0 * step)
    assert left.text(now=5000 + 2.0 * 79) == "0:42"
    assert left.text(now=5000 + 2.0 * 79 + 10) == "0:32"
    assert left.text(now=1e6) == "0:00"
    assert (duration(112), duration(7387)) == ("1:52", "2:03:07")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_a_dumb_terminal_and_a_file_are_plain(stream, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(5, stream, plain=None), PlainDisplay)
    monkeypatch.setenv("TERM", "xterm")
    wanted = LiveDisplay if stream.isatty() else PlainDisplay
    assert isinstance(make_display(5, stream, plain=None), wanted)
    assert isinstance(make_display(5, stream, plain=True), PlainDisplay)


@pytest.mark.parametrize("width", [80, 60, 30, 12])
def test_live_lines_fit_the_terminal_and_keep_words_with_their_numbers(width):
    panel = _Panel(total_steps=80)
    panel.note(0, EVALUATION)
    panel.note(12, {**STEP, **EVALUATION})
    stream = io.StringIO()
    Console(file=stream, width=width, no_color=True).print(panel)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    if width >= 30:
        for pair in ("step 12/80", "reward 0.512", "success 0.391", "kl 0.0031", "tok/s 4100"):
            assert sum(pair in line for line in lines) == 1, pair


def test_live_display_keeps_messages_and_ends_with_the_last_step_and_the_summary(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    display = make_display(3, stream, plain=None)
    display.start({"run": "r", "method": "gear", "directory": "runs/r"})
    for step in (1, 2, 3):
        display.phase("learning")
        display.step(step, STEP)
        display.message(f"note {step} [red]as it is[/red]")
    display.finish({"directory": "runs/r"})
    display.close()
    text = stream.getvalue()
    for step in (1, 2, 3):
        assert text.count(f"note {step} [red]as it is[/red]") == 1
    assert "step 3/3" in text[text.rindex("note 3") :]
    assert text.rindex("results: runs/r") > text.rindex("step 3/3")
    assert "\x1b[31m" not in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor must be visible"


class InterruptedStream(io.StringIO):
    """Raises a signal in the middle of its first write, as Ctrl-C may."""

    def __init__(self):
        super().__init__()
        self.fresh = True

    def write(self, text):
        if self.fresh:
            self.fresh = False
            signal.raise_signal(signal.SIGUSR1)
        return super().write(text)


def test_a_message_from_a_signal_handler_during_a_write_comes_after_it():
    stream = InterruptedStream()
    display = PlainDisplay(5, stream)
    before = signal.signal(signal.SIGUSR1, lambda *_: display.message("stopping after this step"))
    try:
        display.message("checkpoint saved")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stream.getvalue() == "checkpoint saved\nstopping after this step\n"


def test_messages_from_many_threads_are_whole_and_all_there():
    stream = io.StringIO()
    display = PlainDisplay(5, stream)
    lines = [f"{i:03d} " + "x" * 50 for i in range(200)]
    threads = [
        threading.Thread(target=lambda part=lines[i::4]: [display.message(m) for m in part])
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(stream.getvalue().splitlines()) == lines


def test_a_reader_that_went_away_does_not_end_the_run():
    receiving, sending = os.pipe()
    os.close(receiving)
    with open(sending, "w") as stream:
        display = PlainDisplay(5, stream)
        for step in range(5):
            display.step(step, STEP)
        display.finish({})
        display.close()
        assert display._silent
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_the_summary_tells_start_end_and_whether_it_rose():
    summary = {
        "directory": "runs/r",
        "panel_tasks": 128,
        "start": {"success": 0.312, "low": 0.27, "high": 0.36},
        "end": {"success": 0.5, "low": 0.44, "high": 0.55},
        "improvement": {"difference": 0.188, "low": 0.131, "high": 0.241},
    }
    text = summary_text(summary)
    assert "on 128 panel tasks" in text
    assert "  start   0.312 [0.270, 0.360]" in text
    assert "  end     0.500 [0.440, 0.550]" in text
    assert "  change  +0.188 [+0.131, +0.241], paired: it rose" in text
    assert "  selfdistill eval runs/r" in text
    unsure = {**summary, "improvement": {"difference": 0.01, "low": -0.02, "high": 0.04}}
    assert "no change is shown" in summary_text(unsure)


def test_a_summary_without_evaluations_still_says_where_things_are():
    assert "success" not in summary_text({"directory": "runs/r"})
    assert "results: runs/r" in summary_text({"directory": "runs/r"})
    assert summary_text({"next": ["a command"]}).splitlines() == ["", "next:", "  a command"]


def test_the_introduction_shows_what_it_knows():
    lines = introduction_lines(
        {"run": "r", "method": "gear", "parameters": 851234, "device": "cpu"}
    )
    assert lines == ["run r", "method gear, 851.23 k parameters, on cpu"]
    assert introduction_lines({}) == []
