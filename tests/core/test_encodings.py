"""Files in another encoding: which one it looks like, and how it is converted."""

from __future__ import annotations

import gzip

import pytest

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.texts import decoded

TEXT = '{"name": "Zoë"}\n'
OTHER = {
    "utf-16": (TEXT.encode("utf-16"), "looks like UTF-16.*iconv -f UTF-16 -t UTF-8 my.jsonl > NEW"),
    "utf-16-be": ("\ufeff".encode("utf-16-be") + TEXT.encode("utf-16-be"), "looks like UTF-16"),
    "utf-32": (TEXT.encode("utf-32"), "looks like UTF-32.*iconv -f UTF-32"),
    "utf-16 without mark": ('{"a": 1}'.encode("utf-16-le"), "zero bytes.*iconv -f UTF-16"),
    "latin-1": (TEXT.encode("latin-1"), "byte 0xeb at place 13 .*iconv -f WINDOWS-1252"),
    "gzip": (gzip.compress(TEXT.encode()), "looks like a gzip file .*must end in .gz"),
    "zip": (b"PK\x03\x04\xff\xff", "looks like a zip file"),
}


@pytest.mark.parametrize("case", OTHER)
def test_another_encoding_is_named_with_its_remedy(case):
    raw, said = OTHER[case]
    with pytest.raises(DataError, match=rf"^env\.data=my\.jsonl, line 1: .*{said}"):
        decoded(raw, "env.data=my.jsonl, line 1", "my.jsonl")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_utf_8_is_read_with_and_without_a_mark(mark):
    assert decoded(mark + TEXT.encode(), "x", "x") == TEXT
