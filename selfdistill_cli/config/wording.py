"""How annotations and values are called in messages for people."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from selfdistill_cli.core.settings import Settings

NAMES: dict[Any, str] = {
    str: "text (str)",
    int: "a whole number (int)",
    float: "a number (float)",
    bool: "true or false (bool)",
    type(None): "null",
    Settings: "a mapping with a _target_",
    Any: "anything",
}


def is_union(annotation: Any) -> bool:
    """Whether an annotation is `A | B` or `Union[A, B]`."""
    return get_origin(annotation) in (Union, types.UnionType)


def describe(annotation: Any) -> str:
    """Say what an annotation accepts, for example `a whole number (int) or null`."""
    if annotation in NAMES:
        return NAMES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if is_union(annotation):
        return " or ".join(describe(part) for part in arguments)
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin in (list, tuple, set, frozenset, Sequence):
        return f"a list of {describe(arguments[0])}" if arguments else "a list"
    if origin in (dict, Mapping):
        return f"a mapping of names to {describe(arguments[1])}"
    name = getattr(annotation, "__name__", str(annotation))
    return f"a mapping with the settings of {name}" if is_dataclass(annotation) else name


def literal_choices(annotation: Any) -> list[str]:
    """All texts that a `Literal`, or a union that contains one, admits."""
    if get_origin(annotation) is Literal:
        return [choice for choice in get_args(annotation) if isinstance(choice, str)]
    if is_union(annotation):
        return [c for part in get_args(annotation) for c in literal_choices(part)]
    return []


def show(value: Any) -> str:
    """Show a found value with its type, shortened."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(str, value)) or 'no keys'}"
    if isinstance(value, list):
        return "a list" if len(value) > 4 else f"the list {value}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def field_documents(settings_class: type) -> dict[str, str]:
    """The docstring under each field of a settings class, inherited fields included.

    Parses the source, so it is meant for help and error messages only.
    """
    documents: dict[str, str] = {}
    for owner in reversed(settings_class.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                documents[field.target.id] = " ".join(text.value.value.split())
    return documents
