"""Keys and passwords: what is recorded beside a run, or sent elsewhere, holds none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

NAMES = (
    r"(?:api_?key|private_?key|password|passwd|secret|credential|authorization"
    r"|(?:access|auth|hub|api|hf|bearer)_?token)s?"
)
SECRET_NAME = re.compile(rf"{NAMES}$", re.I)
TYPED = re.compile(rf"({NAMES}['\"]?\s*[:=]\s*)[^,}}\s]+", re.I)
"""A setting as it is typed: `KEY=VALUE`, or inside `{KEY: VALUE}`."""
WHOLE = re.compile(rf"^([^={{]*{NAMES}=).*", re.I | re.S)
"""A word whose value is a secret, commas and blanks included."""
IN_ADDRESS = re.compile(r"(://)[^/\s@]+(@)")
"""User and password in front of a host."""
SHORTEST = 8
"""A shorter value of the environment is no secret that could be told from a word."""
REDACTED = "<removed>"

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_ERROR_REPORTING": "false",
}
"""Variables of the environment that keep libraries from reporting to their makers."""


def without_secrets(value: Any, name: str = "") -> Any:
    """Replace values whose key names a secret; in all texts, secrets of the environment and
    what stands in front of the host of an address.
    """  # fmt: skip
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item, name) for item in value]
    if not isinstance(value, str):
        return value
    return REDACTED if SECRET_NAME.search(name) else masked(value)


def masked(text: str) -> str:
    """A text without secrets of the environment and without credentials in addresses."""
    for secret in _secrets_of_environment():
        text = text.replace(secret, REDACTED)
    return IN_ADDRESS.sub(rf"\1{REDACTED}\2", text)


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets."""
    inside = [TYPED.sub(rf"\1{REDACTED}", word) for word in words]
    return [masked(WHOLE.sub(rf"\1{REDACTED}", word)) for word in inside]


def _secrets_of_environment() -> list[str]:
    """Values of variables with telling names, the longest first: one may hold another."""
    found = {v for k, v in os.environ.items() if SECRET_NAME.search(k) and len(v) >= SHORTEST}
    return sorted(found, key=len, reverse=True)
