"""What the tests of methods in real runs share."""

from __future__ import annotations

import pytest
from assembled import environment


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs of this module lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def env(folder):
    """The code environment, started once."""
    with environment(folder) as env:
        yield env
