"""Checked building: every key and value is compared with the settings class that it fills.

Settings classes live in modules that import nothing heavy, so a configuration is checked before
torch is loaded. All problems are collected and reported together.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from selfdistill_cli.config.targets import find_settings_class
from selfdistill_cli.config.wording import (
    describe,
    field_documents,
    is_union,
    literal_choices,
    show,
)
from selfdistill_cli.core.errors import ConfigError, FieldError, did_you_mean
from selfdistill_cli.core.settings import Settings

TARGET = "_target_"
MISSING = "???"

INVALID = object()
"""Stands for a value that could not be built; its problem is on the list."""


def build(container: Any, settings_class: type[Any], key: str = "") -> Any:
    """Return `settings_class` filled with a plain container.

    `key` is where the container stands in the configuration. Raises ConfigError that names every
    problem: unknown and missing keys, wrong types, wrong choices, wrong `_target_`.
    """
    checker = _Checker()
    built = checker.node(settings_class, container, key)
    if checker.problems:
        raise ConfigError("\n".join(checker.problems))
    return built


def check_field(settings_class: type[Any], name: str, value: Any) -> None:
    """Check what would fill one field of a class; raises ConfigError as `build` does."""
    checker = _Checker()
    checker.value(_annotations(settings_class)[name], value, name)
    if checker.problems:
        raise ConfigError("\n".join(checker.problems))


def plain(settings: Any) -> Any:
    """Return settings as a plain container in which every settings node names its class."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        cls = type(settings)
        fields = {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
        return {TARGET: f"{cls.__module__}.{cls.__qualname__}", **fields}
    if isinstance(settings, Mapping):
        return {name: plain(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain(item) for item in settings]
    return settings


class _Checker:
    """One pass over a container; keeps what it finds wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def refuse(self, key: str, problem: str) -> Any:
        self.problems.append(f"{key or 'the configuration'}: {problem}")
        return INVALID

    def value(self, annotation: Any, value: Any, key: str) -> Any:
        """Convert one value to its annotation, or note what is wrong with it."""
        if not _holds_settings(annotation):
            return self.leaf(annotation, value, key)
        if is_union(annotation):
            return self.union(annotation, value, key)
        if isinstance(annotation, type) and not get_args(annotation):
            return self.node(annotation, value, key)
        origin, inner = get_origin(annotation), get_args(annotation)[-1]
        if isinstance(value, Mapping) and issubclass(origin, Mapping):
            return {name: self.value(inner, v, _join(key, name)) for name, v in value.items()}
        if isinstance(value, list) and issubclass(origin, Sequence):
            return [self.value(inner, item, f"{key}[{i}]") for i, item in enumerate(value)]
        return self.refuse(key, f"got {show(value)}, expected {describe(annotation)}")

    def union(self, annotation: Any, value: Any, key: str) -> Any:
        """Convert to the member of a union that the value is meant for."""
        members = get_args(annotation)
        leaves = [member for member in members if not _holds_settings(member)]
        if not isinstance(value, Mapping | list):
            return (
                self.leaf(reduce(or_, leaves), value, key, expected=annotation)
                if leaves
                else (self.refuse(key, f"got {show(value)}, expected {describe(annotation)}"))
            )
        nodes = [member for member in members if _holds_settings(member)]
        if isinstance(value, Mapping) and TARGET in value:
            named = self.target(value[TARGET], _join(key, TARGET), Settings)
            if named is None:
                return INVALID
            nodes = [n for n in nodes if isinstance(n, type) and issubclass(named, n)] or nodes
        return self.value(nodes[0], value, key)

    def leaf(self, annotation: Any, value: Any, key: str, expected: Any = None) -> Any:
        """Check a value strictly: a whole number passes as a float, nothing else is converted."""
        if isinstance(value, list) and get_origin(annotation) in (list, Sequence):
            inner = get_args(annotation)[0]
            return [self.leaf(inner, item, f"{key}[{i}]") for i, item in enumerate(value)]
        try:
            # JSON mode, because YAML has no tuples and no sets: a list stands for them.
            found = _adapter(annotation).validate_json(json.dumps(value), strict=True)
            if _is_finite(found):
                return found
            return self.refuse(key, f"got {show(value)}, expected finite numbers")
        except (ValidationError, TypeError):
            near = did_you_mean(str(value), literal_choices(annotation))
            wanted = describe(annotation if expected is None else expected)
            return self.refuse(key, f"got {show(value)}, expected {wanted}{near}")

    def node(self, expected: type[Any], value: Any, key: str) -> Any:
        """Fill a settings class with a mapping."""
        if not isinstance(value, Mapping):
            return self.refuse(key, f"got {show(value)}, expected {describe(expected)}")
        if TARGET in value:
            cls = self.target(value[TARGET], _join(key, TARGET), expected)
            return INVALID if cls is None else self.fill(cls, value, key)
        if expected is Settings:
            return self.refuse(
                key,
                f"has no {TARGET}; expected the dotted path of the settings class to fill. If a "
                "recipe's part was exchanged, these are the recipe's values for the old one: "
                f"delete them with '~{key}'",
            )
        return self.fill(expected, value, key)

    def target(self, path: Any, key: str, expected: type[Any]) -> type[Any] | None:
        """The class that `_target_` names, or None with its problem noted."""
        try:
            return find_settings_class(path, expected)
        except ConfigError as error:
            self.refuse(key, str(error))
            return None

    def fill(self, cls: type[Any], value: Mapping[str, Any], key: str) -> Any:
        """Compare keys with fields, convert every value and construct."""
        before = len(self.problems)
        fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
        for name in value:
            if name not in fields and name != TARGET:
                self.refuse(_join(key, name), _unknown(cls, str(name), list(fields)))
        arguments: dict[str, Any] = {}
        for name, annotation in _annotations(cls).items():
            where = _join(key, name)
            if name in fields and value.get(name, MISSING) != MISSING:
                arguments[name] = self.value(annotation, value[name], where)
            elif name in fields and (name in value or _required(fields[name])):
                self.refuse(where, _no_value(cls, name, annotation, where, name in value))
        if len(self.problems) > before:
            return INVALID
        try:
            return cls(**arguments)
        except FieldError as error:
            return self.refuse(_join(key, error.field), str(error))
        except ValueError as error:
            return self.refuse(key, str(error))


def _unknown(cls: type[Any], name: str, known: list[str]) -> str:
    listed = ", ".join(known) if known else "none"
    return f"{cls.__name__} has no such setting{did_you_mean(name, known)} (known: {listed})"


def _no_value(cls: type[Any], name: str, annotation: Any, key: str, declared: bool) -> str:
    meaning = field_documents(cls).get(name)
    about = f" Its meaning: {meaning}" if meaning else ""
    if declared:
        return f"has no default; type {key}=VALUE, expected {describe(annotation)}.{about}"
    return f"is missing; {cls.__name__} expects {describe(annotation)}.{about}"


def _holds_settings(annotation: Any) -> bool:
    """Whether a settings class occurs in an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation is Settings or dataclasses.is_dataclass(annotation)
    return any(_holds_settings(part) for part in get_args(annotation))


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_finite(value: Any) -> bool:
    """Whether there is no nan and no infinity: YAML knows them, and no setting means them."""
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _join(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


@cache
def _annotations(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)
