"""metrics.jsonl: exact, valid, and cut back to a checkpoint without losing anything."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfdistill_cli.core.errors import DataError, RunError
from selfdistill_cli.tracking.metrics_file import MetricsFile, deterministic_view, read


def strict(text):
    """Parse as JSON proper: no NaN, no Infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_line_is_compact_sorted_and_starts_with_the_step(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(3, {"reward/mean": 0.1, "eval/success": 1, "loss/total": 1e-05})
    assert file.path.read_text() == (
        '{"step":3,"eval/success":1,"loss/total":1e-05,"reward/mean":0.1}\n'
    )


@given(value=st.floats())
def test_finite_floats_come_back_exactly_and_others_as_null(value, tmp_path_factory):
    file = MetricsFile(tmp_path_factory.mktemp("m") / "metrics.jsonl")
    file.append(1, {"x": value})
    found = strict(file.path.read_text())["x"]
    assert found == value if np.isfinite(value) else found is None


def test_numpy_scalars_are_numbers(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(1, {"a": np.float32(0.5), "b": np.int64(7), "c": np.float64("nan"), "d": True})
    assert strict(file.path.read_text()) == {"step": 1, "a": 0.5, "b": 7, "c": None, "d": True}


def with_steps(path, steps, tail=b""):
    file = MetricsFile(path)
    for step in steps:
        file.append(step, {"x": step / 7})
    with path.open("ab") as raw:
        raw.write(tail)
    return file


def test_truncate_keeps_earlier_lines_byte_for_byte_and_a_copy_of_all(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with_steps(path, range(4))
    expected = path.read_bytes()
    file = with_steps(path, [4, 5])
    before = path.read_bytes()
    assert file.truncate_after(3) == 2
    assert path.read_bytes() == expected
    assert (tmp_path / "metrics.jsonl.bak-1").read_bytes() == before
    assert file.truncate_after(1) == 2
    assert (tmp_path / "metrics.jsonl.bak-2").read_bytes() == expected


def test_truncate_that_drops_nothing_leaves_no_copy(tmp_path):
    file = with_steps(tmp_path / "metrics.jsonl", range(3))
    assert file.truncate_after(2) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert MetricsFile(tmp_path / "absent.jsonl").truncate_after(2) == 0


def test_truncate_removes_a_torn_line_so_that_the_next_line_is_whole(tmp_path):
    file = with_steps(tmp_path / "metrics.jsonl", range(3), tail=b'{"step":3,"x":0.')
    assert file.truncate_after(9) == 1
    file.append(3, {"x": 1.0})
    assert [line["step"] for line in read(file.path)] == [0, 1, 2, 3]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    file = with_steps(tmp_path / "metrics.jsonl", range(2), tail=b'{"step":2,"x":0.5}')
    assert file.truncate_after(2) == 0
    file.append(3, {"x": 1.0})
    assert [line["step"] for line in read(file.path)] == [0, 1, 2, 3]


def test_every_cut_of_the_file_is_readable(tmp_path):
    file = with_steps(tmp_path / "metrics.jsonl", range(3))
    data = file.path.read_bytes()
    for length in range(len(data) + 1):
        file.path.write_bytes(data[:length])
        steps = [line["step"] for line in read(file.path)]
        assert steps == list(range(len(steps)))
        assert len(steps) >= data[:length].count(b"\n")


@pytest.mark.parametrize("broken", [b"{nonsense\n", b"[1]\n", b'{"x":1}\n', b"\xff\n"])
def test_a_broken_middle_line_is_named(tmp_path, broken):
    path = tmp_path / "metrics.jsonl"
    with_steps(path, [0], tail=broken)
    with_steps(path, [1])
    with pytest.raises(DataError, match=r"metrics\.jsonl line 2: .*Delete that line"):
        read(path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "metrics.jsonl")


def test_deterministic_view_has_no_clock_and_no_machine():
    line = {"step": 1, "time/step_s": 0.3, "memory/peak_rss_mb": 9.0, "timeouts": 2, "loss/a": 1.0}
    assert deterministic_view(line) == {"step": 1, "timeouts": 2, "loss/a": 1.0}


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(1, {"a": 1.0})
    before = file.path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limit[1]))
    try:
        with pytest.raises(RunError, match=r"metrics\.jsonl could not be written: File too large"):
            file.append(2, {f"key{i}": 1.0 for i in range(100)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert file.path.read_bytes() == before
    file.append(2, {"a": 2.0})
    assert [line["step"] for line in read(file.path)] == [1, 2]
