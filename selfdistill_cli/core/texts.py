"""Text from outside, made fit for files, terminals and tokenizers."""

from __future__ import annotations

import codecs
import re

from selfdistill_cli.core.errors import DataError

SURROGATE = re.compile(r"[\ud800-\udfff]")
UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""First bytes of other encodings of Unicode; the longer ones first."""
PACKED = {
    b"\x1f\x8b": "gzip file (whose name must end in .gz)",
    b"PK\x03\x04": "zip file",
    b"PAR1": "Parquet file",
    b"\x28\xb5\x2f\xfd": "zstandard file",
}
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def readable(text: str) -> str:
    """Return the text with lone surrogates and control characters replaced; keeps \\n and \\t."""
    return UNREADABLE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def encodable(text: str) -> str:
    """Return the text with lone surrogates replaced, so that it has a UTF-8 form."""
    return SURROGATE.sub(REPLACEMENT, text)


def decoded(raw: bytes, where: str, name: str) -> str:
    """Return UTF-8 bytes as text, less a byte order mark. `name`: the file, for the remedy.

    Raises DataError that begins with `where` and says what the bytes look like.
    """
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        found, encoding = _other(raw, error)
    else:
        if "\0" not in text:
            return text
        found, encoding = "zero bytes, as UTF-16 has", "UTF-16"
    if encoding is None:
        raise DataError(f"{where}: {found}; expected text in UTF-8") from None
    raise DataError(
        f"{where}: {found}; expected UTF-8; convert it: iconv -f {encoding} -t UTF-8 {name} > NEW"
    ) from None


def _other(raw: bytes, error: UnicodeDecodeError) -> tuple[str, str | None]:
    """Return what bytes look like that are not UTF-8, and iconv's name for it if it has one."""
    for mark, encoding in MARKS.items():
        if raw.startswith(mark):
            return f"looks like {encoding} (its first bytes)", encoding
    for mark, kind in PACKED.items():
        if raw.startswith(mark):
            return f"looks like a {kind}", None
    bad = f"byte 0x{raw[error.start]:02x} at place {error.start + 1} is not UTF-8"
    return f"{bad}; it may be Windows-1252 (Latin-1)", "WINDOWS-1252"
