"""Displays of a running run: a live one for terminals, one line per step for everything else.

A display never ends a run: when nobody can be written to any more, it falls silent. `message`
may be called from any thread and from a signal handler, even one that interrupts a write.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TextIO

from selfdistill_cli.tracking.readout import (
    TimeLeft,
    cells,
    evaluation_text,
    introduction_lines,
    summary_text,
)

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "make_display", "summary_text"]

REFRESHES_PER_S = 4


class Display(Protocol):
    """What a person sees of a run."""

    def start(self, info: Mapping[str, Any]) -> None:
        """Say what is about to run."""
        ...

    def phase(self, name: str) -> None:
        """Say what is happening now."""
        ...

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show a step that has ended."""
        ...

    def message(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Show what came of the run."""
        ...

    def close(self) -> None:
        """Give the terminal back. May be called twice."""
        ...


def make_display(total_steps: int, stream: TextIO, plain: bool | None) -> Display:
    """Return a live display if `stream` is a capable terminal; `plain` decides otherwise."""
    if plain is None:
        plain = not stream.isatty() or os.environ.get("TERM") == "dumb"
    return PlainDisplay(total_steps, stream) if plain else LiveDisplay(total_steps, stream)


class _Lines:
    """Lines in order, from any thread and from a signal handler that interrupts a write."""

    def __init__(self) -> None:
        self._pending: deque[str] = deque()
        self._writing = threading.Lock()
        self._silent = False

    def say(self, *lines: str) -> None:
        """Write the lines now, or leave them to the write that is going on."""
        self._pending.extend(lines)
        while self._pending and self._writing.acquire(blocking=False):
            try:
                while self._pending:
                    self._say(self._pending.popleft())
            finally:
                self._writing.release()

    def _say(self, line: str) -> None:
        if self._silent:
            return
        try:
            self.write(line)
        except (OSError, ValueError):  # the reader is gone, or the stream is closed
            self._silent = True

    def write(self, line: str) -> None:
        """Put one line on the stream."""
        raise NotImplementedError


class PlainDisplay(_Lines):
    """One line per step."""

    def __init__(self, total_steps: int, stream: TextIO):
        super().__init__()
        self.total_steps = total_steps
        self.stream = stream
        self._left = TimeLeft(total_steps)

    def write(self, line: str) -> None:
        """Write and flush, so that a log file can be followed."""
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def start(self, info: Mapping[str, Any]) -> None:
        """Say what is about to run."""
        self.say(*introduction_lines(info))

    def phase(self, name: str) -> None:
        """Nothing: a log has one line per step."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """`step 12/80  reward 0.512  success 0.391 ... left 1:52`."""
        self._left.note(step)
        parts = [f"step {step}/{self.total_steps}"]
        parts += [f"{word} {number}" for word, number in cells(metrics)]
        if evaluation := evaluation_text(metrics):
            parts.append(f"eval {evaluation}")
        if step > 0:
            parts.append(f"left {self._left.text()}")
        self.say("  ".join(parts))

    def message(self, text: str) -> None:
        """Show a line."""
        self.say(text)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Show what came of the run."""
        self.say(summary_text(summary))

    def close(self) -> None:
        """Nothing to give back."""


class LiveDisplay(_Lines):
    """A few lines at the bottom of the terminal that change in place; messages scroll above."""

    def __init__(self, total_steps: int, stream: TextIO):
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self.console = Console(file=stream, force_terminal=True, highlight=False, emoji=False)
        self.panel = _Panel(total_steps)
        self._live = Live(
            self.panel, console=self.console, refresh_per_second=REFRESHES_PER_S, transient=False
        )

    def write(self, line: str) -> None:
        """Print above the live lines."""
        self.console.print(line, markup=False, soft_wrap=True)

    def start(self, info: Mapping[str, Any]) -> None:
        """Say what is about to run, then draw."""
        self.say(*introduction_lines(info))
        self._live.start()
        # rich hides the cursor; a second Ctrl-C kills at once and could not bring it back.
        self.console.show_cursor(True)

    def phase(self, name: str) -> None:
        """Shown at the next redraw."""
        self.panel.phase = name

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Shown at the next redraw: only one thread draws, so that no signal can cut a frame."""
        self.panel.note(step, metrics)
        self.say()

    def message(self, text: str) -> None:
        """Print above the live lines."""
        self.say(text)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Leave the last frame and print what came of the run below it."""
        self.panel.phase = "finished"
        self.close()
        self.say(summary_text(summary))

    def close(self) -> None:
        """Stop drawing; the last frame stays."""
        self.say()
        self._live.stop()


class _Panel:
    """The live lines: a bar, the numbers of the last step, the last evaluation, the phase."""

    def __init__(self, total_steps: int):
        self.total_steps = total_steps
        self.phase = "starting"
        self._step = 0
        self._cells: list[tuple[str, str]] = []
        self._evaluations: list[tuple[int, str]] = []
        self._left = TimeLeft(total_steps)

    def note(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take over a step that has ended."""
        self._left.note(step)
        self._step = step
        self._cells = cells(metrics) or self._cells
        if evaluation := evaluation_text(metrics):
            self._evaluations.append((step, evaluation))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Draw at the width that the terminal has now."""
        from rich.text import Text

        width = options.max_width
        yield self._bar(width)
        styles = [Text.assemble((word, "dim"), " ", (text, "bold")) for word, text in self._cells]
        yield from _rows(styles, width)
        if self._evaluations:
            step, now = self._evaluations[-1]
            parts = [Text.assemble(("eval", "dim"), " ", (now, "bold green"), f" at step {step}")]
            if len(self._evaluations) > 1:
                first = self._evaluations[0]
                parts.append(Text(f"was {first[1]} at step {first[0]}", "dim"))
            yield from _rows(parts, width)
        yield Text(self.phase, "cyan", no_wrap=True, overflow="ellipsis")

    def _bar(self, width: int) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        count = f"step {self._step}/{self.total_steps}"
        left = f"left {self._left.text()}"
        room = width - len(count) - len(left) - 2
        grid = Table.grid(padding=(0, 1, 0, 0))
        if room < 5:
            grid.add_row(f"{count} {left}")
        else:
            total = max(1, self.total_steps)
            grid.add_row(count, ProgressBar(total, self._step, width=min(room, 60)), left)
        return grid


def _rows(parts: list[Any], width: int) -> Iterator[Any]:
    """Parts on as few rows as fit, none of them broken unless it is wider than the terminal."""
    from rich.text import Text

    row = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        if row and len(row) + 2 + len(part) > width:
            yield row
            row = Text(no_wrap=True, overflow="ellipsis")
        row = Text.assemble(row, "  ", part, no_wrap=True, overflow="ellipsis") if row else part
    if row:
        yield row
