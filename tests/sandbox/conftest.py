"""Sandboxes at every level that this machine offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attacking import RIGHT, excess, footprint, resident_kb, run, server

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox.jobs import ProgramJob
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings

DEFAULTS: dict[str, Any] = {
    "level": "auto",
    "workers": 1,
    "time_limit_s": 1.0,
    "memory_mb": 128,
    "max_file_mb": 2,
    "max_output_kb": 64,
}


@pytest.fixture
def make_sandbox() -> Iterator[Callable[..., Sandbox]]:
    """Make sandboxes with settings changed by keyword; they are closed afterwards."""
    made: list[Sandbox] = []

    def make(**changes: Any) -> Sandbox:
        made.append(Sandbox(SandboxSettings(**{**DEFAULTS, **changes})))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A started sandbox at each isolating level; skipped where the machine has no such level."""
    box = Sandbox(SandboxSettings(**{**DEFAULTS, "level": request.param}))
    try:
        box.start()
    except SandboxError as error:
        pytest.skip(str(error))
    yield box
    box.close()


@pytest.fixture
def survival(sandbox: Sandbox) -> Iterator[None]:
    """After every attack: the next program runs, and nothing is left on the machine."""
    job = ProgramJob(program=RIGHT, entry_point="f", setup="", tests=("assert f(1) == 2",))
    assert sandbox.run_programs([job])[0].results[0].status == "passed"
    before, first = footprint(), server(sandbox)
    memory = resident_kb(first)
    yield
    report = run(sandbox, RIGHT)
    assert [result.value for result in report.results] == [2, 3]
    assert not excess(before)
    if server(sandbox) == first:  # else it was replaced, which leaves nothing either
        assert resident_kb(first) < memory + 4096
