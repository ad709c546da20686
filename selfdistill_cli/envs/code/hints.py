"""Texts of the hints that are made from a task or from programs, without running anything."""

from __future__ import annotations

import ast
import builtins
import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.code.readers.contests import WHOLE

NUM_FACTS, MAX_FACT = 2, 160
NUM_CONTRASTS, MAX_CONTRAST = 3, 80
CONTEXT_BEFORE, CONTEXT_AFTER = 2, 1
MAX_COMPARED = 200
"""Tokens of each program that are compared: comparing takes cubic time for repetitive ones."""
TOKEN = re.compile(r"\w+|[-+*/%<>=!&|^]+|[^\w\s]")
NAMES = r"(?:[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)?"
ORDERS: dict[str, Callable[[list[Any]], bool]] = {
    "ascending": lambda row: row == sorted(row),
    "descending": lambda row: row == sorted(row, reverse=True),
    "distinct": lambda row: len(row) == len(set(row)),
}
BUILTINS = frozenset(dir(builtins))


def evidence(task: Task, seed: int) -> str | None:
    """Return verified facts from the task's tests, one a line; None if none can be shown.

    Calls become `f([3, -1]) is 9`, two of those with the longest results, which say most, and a
    line about what all results have in common; inputs of whole programs, with what is printed.
    Tests that are code give two of their asserts, without those that need other names than the
    function, builtins and imports. Long facts are left out.
    """
    known = {"calls": _called, "stdin": _printed, "tests": _asserted}
    facts = list(next(known[tests] for tests in known if tests in task.meta)(task))
    facts = [fact for fact in facts if len(fact) <= MAX_FACT and "\n" not in fact]
    if "calls" in task.meta:
        facts.sort(key=lambda fact: -len(fact.rpartition(" is ")[2]))
        facts = facts[: 2 * NUM_FACTS]
    order = sorted(range(len(facts)), key=lambda i: seed_for("evidence", seed, task.id, i))
    lines = [facts[i] for i in sorted(order[:NUM_FACTS])]
    if lines and "calls" in task.meta:
        lines += _common(task.meta["expected"])
    return "\n".join(lines) or None


def _called(task: Task) -> Iterator[str]:
    for call, expected in zip(task.meta["calls"], task.meta["expected"], strict=True):
        yield f"{task.meta['entry_point']}({', '.join(map(repr, call))}) is {expected!r}"


def _printed(task: Task) -> Iterator[str]:
    for given, expected in zip(task.meta["stdin"], task.meta["stdout"], strict=True):
        yield f"input {given!r} prints {expected!r}"


def _common(results: Sequence[Any]) -> list[str]:
    """Return a line about what all results share, such as `all: list, ascending`, if they do."""
    kinds = {type(result) for result in results}
    if len(results) < 2 or len(kinds) > 1:
        return []
    kind = kinds.pop()
    lists = list(results) if kind is list else []
    numbers = [number for row in lists for number in row] if lists else list(results)
    words = [kind.__name__]
    if numbers and all(type(number) in (int, float) for number in numbers):
        if any(len(row) > 1 for row in lists):
            words += [name for name, holds in ORDERS.items() if all(map(holds, lists))]
        words += ["not negative"] if min(numbers) >= 0 else []
        words += ["not positive"] if max(numbers) <= 0 else []
        divisor = math.gcd(*numbers) if {type(number) for number in numbers} == {int} else 1
        words += [f"divisible by {divisor}"] if divisor > 1 else []
    return [f"all: {', '.join(words)}"]


def _asserted(task: Task) -> Iterator[str]:
    entry_point = task.meta["entry_point"]
    trees = [ast.parse(source) for source in (task.meta["setup"], *task.meta["tests"])]
    nodes = [node for tree in trees for node in tree.body]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {alias.asname or alias.name for node in imports for alias in node.names}
    known |= BUILTINS | {entry_point, "candidate"}
    for node in nodes:
        inner = node.body if isinstance(node, ast.FunctionDef) and node.name == "check" else [node]
        for statement in inner:
            if not isinstance(statement, ast.Assert):
                continue
            names = [name for name in ast.walk(statement.test) if isinstance(name, ast.Name)]
            used = {name.id for name in names}
            if used <= known and used & {entry_point, "candidate"}:
                for name in names:
                    name.id = entry_point if name.id == "candidate" else name.id
                yield f"assert {ast.unparse(statement.test)}"


def contrast(good: str, bad: str) -> str | None:
    """Return what a right program does where a wrong one does something else, as two lines.

    The programs are compared token by token; each difference is shown with the two tokens before
    it and the one after it. None if they are the same but for white space. Of long programs what
    both begin with is passed over, and as many tokens are compared as is affordable.
    """
    tokens = _affordable([list(TOKEN.finditer(program)) for program in (good, bad)])
    words = [[token.group() for token in side] for side in tokens]
    spans = _differences(*words)
    if not spans:
        return None
    shown: list[str] = []
    for source, side, column in ((good, tokens[0], 0), (bad, tokens[1], 2)):
        parts = [
            _around(source, side, span[column], span[column + 1]) for span in spans[:NUM_CONTRASTS]
        ]
        shown.append(" ... ".join(part[:MAX_CONTRAST] for part in parts if part))
    return f"Do: {shown[0]}\nNot: {shown[1]}"


def _affordable(tokens: list[list[re.Match[str]]]) -> list[list[re.Match[str]]]:
    """Return both programs' tokens, of long ones those from their first difference on."""
    if max(map(len, tokens)) <= MAX_COMPARED:
        return tokens
    pairs = enumerate(itertools.zip_longest(*tokens))
    differs = (i for i, (one, other) in pairs if not one or not other or one[0] != other[0])
    start = max(0, next(differs, max(map(len, tokens))) - CONTEXT_BEFORE)
    return [side[start : start + MAX_COMPARED] for side in tokens]


def _differences(good: Sequence[str], bad: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return where two lists differ; differences whose contexts would touch are one."""
    spans: list[tuple[int, int, int, int]] = []
    for tag, *span in difflib.SequenceMatcher(None, good, bad, autojunk=False).get_opcodes():
        start, stop, other_start, other_stop = span
        if tag == "equal":
            continue
        if spans and start - spans[-1][1] <= CONTEXT_BEFORE + CONTEXT_AFTER:
            start, _, other_start, _ = spans.pop()
        spans.append((start, stop, other_start, other_stop))
    return spans


def _around(source: str, tokens: Sequence[re.Match[str]], start: int, stop: int) -> str:
    """Return tokens start to stop with their context, on one line."""
    near = tokens[max(0, start - CONTEXT_BEFORE) : stop + CONTEXT_AFTER]
    return " ".join(source[near[0].start() : near[-1].end()].split()) if near else ""


def pruned(task: Task) -> tuple[Message, ...] | None:
    """Return the task's messages with the description taken out; None if nothing is left out.

    What stays of the last user message: the head of the function if the prompt is code; else
    `Write NAME(parameters).` if the prompt says so; else its first line if there are others; else
    `Write NAME.`. A whole program has no name: its first line stays if there are others. Other
    messages (instructions) stay as they are.
    """
    last = max(i for i, message in enumerate(task.messages) if message["role"] == "user")
    content = task.messages[last]["content"]
    short = _without_description(content, task.meta.get("entry_point"), task.meta.get("prefix", ""))
    if short is None or short.strip() == content.strip():
        return None
    messages = list(task.messages)
    messages[last] = Message(role="user", content=short)
    return tuple(messages)


def _without_description(content: str, name: str | None, prefix: str) -> str | None:
    if name is None:
        lines = content.removesuffix(WHOLE).strip().splitlines()
        return f"{lines[0].strip()}\n{WHOLE}" if len(lines) > 1 else None
    head = re.search(rf"^def\s+{re.escape(name)}\b.*?:[ \t]*$", prefix, re.M | re.S)
    call = re.search(rf"\b{re.escape(name)}\({NAMES}\)", content)
    if head or call:
        return head.group() if head else f"Write {call.group() if call else name}."
    named = f"\nName the function {name}."
    lines = content.removesuffix(named).strip().splitlines()
    if len(lines) > 1:
        return lines[0].strip() + ("" if name in lines[0] else named)
    return f"Write {name}."
