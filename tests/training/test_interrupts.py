"""Signals and time limits: what is asked for, when, and what a grace does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from selfdistill_cli.training.interrupts import (
    GivenUp,
    Interrupts,
    is_unattended,
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    said = []
    with Interrupts(said.append) as interrupts:
        os.kill(os.getpid(), number)
        assert interrupts.requested
    assert signal.getsignal(number) is before
    assert said == ["stopping after this step, with a checkpoint (again: stop at once)"]


def test_sigusr1_may_come_twice():
    with Interrupts(lambda text: None) as interrupts:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupts.requested


def test_stop_before_a_step_that_would_end_too_late():
    said = []
    with Interrupts(said.append, stop_after_s=100.0) as interrupts:
        interrupts.step_ended(10.0)
        assert not interrupts.requested
        interrupts.step_ended(101.0)
        assert interrupts.requested
    assert said == ["run.stop_after is nearly over: stopping with a checkpoint"]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_limit_counts_the_longest_step_not_the_last():
    with Interrupts(lambda text: None, stop_after_s=100.0) as interrupts:
        interrupts.step_ended(99.0)
        interrupts.step_ended(0.1)
        assert not interrupts.requested
        interrupts._start -= 2
        interrupts._end -= 2
        interrupts.step_ended(0.1)
        assert interrupts.requested


def test_a_step_is_given_up_when_the_grace_ends_inside_the_block():
    began = time.monotonic()
    with Interrupts(lambda text: None, grace_s=0.2) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(GivenUp), interrupts.may_give_up():
            time.sleep(30)
    assert time.monotonic() - began < 10


def test_nothing_is_given_up_outside_the_block():
    with Interrupts(lambda text: None, grace_s=0.1) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.4)
        with pytest.raises(GivenUp), interrupts.may_give_up():
            raise AssertionError("the grace was over before")


def test_a_time_limit_inside_a_long_step_starts_the_grace():
    said = []
    with Interrupts(said.append, stop_after_s=0.1, grace_s=0.1) as interrupts:
        with pytest.raises(GivenUp), interrupts.may_give_up():
            time.sleep(30)
        assert interrupts.requested
    assert said == ["run.stop_after is over: stopping after this step, with a checkpoint"]


def test_a_job_of_slurm_bears_a_second_sigterm(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert is_unattended()
    said = []
    with Interrupts(said.append, insisting=False) as interrupts:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
    assert said == ["stopping after this step, with a checkpoint"]
    monkeypatch.delenv("SLURM_JOB_ID")
    assert not is_unattended()


def test_what_comes_before_training_is_heard_when_it_begins():
    """In a process of its own: a signal finds any thread that does not hold it back."""
    program = textwrap.dedent("""
        import os, signal
        from selfdistill_cli.training.interrupts import Interrupts, hold_back

        before = signal.getsignal(signal.SIGTERM)
        said = []
        hold_back()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert said == []
        with Interrupts(said.append, insisting=False) as interrupts:
            assert interrupts.requested
        assert len(said) == 1
        assert signal.getsignal(signal.SIGTERM) is before
    """)
    done = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True)
    assert done.returncode == 0, done.stderr
