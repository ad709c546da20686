"""Files of JSON lines, whichever environment reads them: what their errors say."""

from __future__ import annotations

import gzip
import json

import pytest

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.json_lines import FileKind, Line, lines_of

THINGS = FileKind(
    key="env.things",
    file="a .jsonl file of things, or null",
    names=("builtin",),
    noun="thing",
    record='an object with "name"',
)


def read(path):
    return list(lines_of(str(path), THINGS))


def test_lines_are_read_zipped_or_not(tmp_path):
    plain, zipped = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    text = '\ufeff{"name": "x"}\n\n  \n{"name": 2}\n'
    plain.write_text(text, encoding="utf-8")
    zipped.write_bytes(gzip.compress(text.encode()))
    for path in (plain, zipped):
        found = read(path)
        assert [line.number for line in found] == [1, 4]
        assert [line.identifier("name") for line in found] == ["x", "2"]
        assert found[1].where == f"env.things={path}, line 4"


BROKEN = {
    "no JSON": (b'{"a": 1}\n{', "line 2: not JSON.*expected one JSON object per line"),
    "no object": (b"3", 'line 1: found a JSON int; expected an object with "name"'),
    "too deep": (b"[" * 100_000, "line 1: not JSON"),
    "nothing": (b"\n \n", "found no thing; expected one JSON object per line"),
    "no UTF-8": (b'{}\n{"a": "\xff"}', "line 2: byte 0xff at place 8 is not UTF-8.*iconv"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_told_with_its_key(tmp_path, case):
    content, said = BROKEN[case]
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(f"env.things={path}")


def test_the_nearest_file_or_name_is_told(tmp_path):
    (tmp_path / "things.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"no such file; expected a \.jsonl.*'things\.jsonl'"):
        read(tmp_path / "thigns.jsonl")
    with pytest.raises(DataError, match="did you mean 'builtin'"):
        read("biultin")
    with pytest.raises(DataError, match="is a folder; expected"):
        read(tmp_path)
    said = THINGS.problem("biultin")
    assert said is not None
    assert said.startswith("env.things: got 'biultin', no such file; expected a .jsonl file")
    assert THINGS.problem(str(tmp_path / "things.jsonl")) is None


@pytest.mark.parametrize("value", [None, True, "", 1.5, ["a"]])
def test_what_cannot_name_a_line(value):
    with pytest.raises(DataError, match=r'field "id": found .*expected a string or a whole'):
        Line("env.things=a, line 1", 1, {"id": value}).identifier("id")


def test_an_identifier_that_comes_again_is_told_with_both_lines():
    known: dict[str, int] = {}
    Line("a, line 1", 1, {}).note_identifier("id", "x", known)
    Line("a, line 2", 2, {}).note_identifier("id", "y", known)
    with pytest.raises(DataError, match=r"a, line 3, .*'x', also on line 1; expected an id"):
        Line("a, line 3", 3, {}).note_identifier("id", "x", known)


def test_half_a_character_is_found_wherever_it_stands():
    line = Line("a, line 1", 1, json.loads('{"a": [{"\\ud800": 1}]}'))
    with pytest.raises(DataError, match='field "a": found the lone surrogate'):
        line.check_texts()
