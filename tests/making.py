"""Small real objects for tests: those that the conformance suites use."""

from selfdistill_cli.testing.material import HIDDEN, make_group, make_sample

__all__ = ["HIDDEN", "make_group", "make_sample"]
