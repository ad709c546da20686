"""`selfdistill validate`: an environment's tasks, checked before a run is built on them."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import replace_file
from selfdistill_cli.core.errors import ConfigError, UserError, did_you_mean
from selfdistill_cli.core.findings import GOOD, MEANINGS, Finding

HELP = """\
usage: selfdistill validate [KEY=VALUE ...] [flags]

Runs every task's reference through the tests, and an answer that does nothing. Says which
references fail, which tests fail by themselves, and which tests prove nothing.

KEY=VALUE as for `selfdistill train`; what counts is the group env:
  env=code env.data=FILE     tasks of a file, or humaneval (default: the built-in tasks)

flags:
  --split NAME               only this split (default: all tasks)
  --json FILE                write what was found as JSON
  --out FILE                 write the good lines of env.data (.jsonl or .jsonl.gz)
  --config-dir DIR           a folder that adds to conf

exit codes: 0 no problem, 1 problems found, 2 the input was wrong

examples:
  selfdistill validate env.data=tasks.jsonl
  selfdistill validate env.data=tasks.jsonl env.sandbox.time_limit_s=5 --out good.jsonl
  selfdistill validate env.data=humaneval --json report.json
"""
FLAGS = ("--split", "--json", "--out", "--config-dir", "--help")


@dataclass(kw_only=True)
class ValidateArguments:
    """A command line of `selfdistill validate`, taken apart."""

    words: list[str] = field(default_factory=list)
    """Overrides, `KEY=VALUE`."""
    flags: dict[str, str] = field(default_factory=dict)
    """Values of the flags, by flag."""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill validate`; return its exit code."""
    if "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0
    arguments = parse(argv)

    from selfdistill_cli.config.compose import compose
    from selfdistill_cli.core.parts import build_part
    from selfdistill_cli.core.protocols import Env

    settings = compose(arguments.words, arguments.flags.get("--config-dir")).settings
    env: Any = build_part("env", settings.env, Env)
    try:
        return validate(env, arguments.flags)
    finally:
        env.close()


def parse(argv: Sequence[str]) -> ValidateArguments:
    """Take a command line apart; raises UserError for an unknown flag or a missing value."""
    found = ValidateArguments()
    rest = iter(argv)
    for word in rest:
        if not word.startswith("-"):
            found.words.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in FLAGS:
            raise UserError(
                f"there is no flag {flag}{did_you_mean(flag, FLAGS)} (selfdistill validate --help "
                "lists them)"
            )
        value = value if equals else next(rest, "")
        if not value or value.startswith("-"):
            raise UserError(f"{flag}: expected a value after it, got {value or 'nothing'}")
        found.flags[flag] = value
    return found


def validate(env: Any, flags: dict[str, str]) -> int:
    """Check the tasks, say what is wrong, write what was asked for; return the exit code."""
    if not hasattr(env, "validate"):
        raise ConfigError(
            f"env: {type(env).__name__} has no method `validate(split)`, which yields a "
            "core.findings.Finding per task; expected an environment that can check its tasks, "
            "such as env=code"
        )
    out = flags.get("--out")
    for flag in ("--json", "--out"):
        if flag in flags:
            _check_target(flag, Path(flags[flag]), getattr(env, "data_path", None))
    lines = list(getattr(env, "data_lines", list)()) if out else []
    if out and not lines:
        raise ConfigError("--out: the tasks come from no file; expected env.data=FILE")
    start, findings = time.monotonic(), []
    for finding in env.validate(flags.get("--split")):
        findings.append(finding)
        if finding.problem not in GOOD:
            print(row(finding), flush=True)
    seconds = time.monotonic() - start
    print("\n".join(summary(findings, seconds)))
    if "--json" in flags:
        replace_file(Path(flags["--json"]), report(findings, seconds))
    if out:
        replace_file(Path(out), good_lines(out, lines, findings))
    return int(any(finding.problem not in GOOD for finding in findings))


def _check_target(flag: str, path: Path, data: str | None) -> None:
    """Raise ConfigError for a file that cannot be written, before the work is done."""
    if path.is_dir():
        raise ConfigError(f"{flag}: {path} is a folder; expected the name of a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{flag}: {path} cannot be made in {folder}; expected a folder to write")
    if data is not None and path.exists() and Path(data).exists() and path.samefile(data):
        raise ConfigError(f"{flag}: {path} is env.data itself; expected another name")


def row(finding: Finding) -> str:
    """One line about a task that has a problem."""
    place = f"line {finding.line}, " if finding.line is not None else ""
    status = f" [{finding.status}]" if finding.status else ""
    message = f": {' '.join(finding.message.split())}" if finding.message else ""
    return f"{place}task {finding.task_id}: {finding.problem}{status}{message}"


def summary(findings: Sequence[Finding], seconds: float) -> Iterator[str]:
    """How many tasks there are of each kind, and how long it took."""
    counts = Counter(finding.problem for finding in findings)
    yield f"{len(findings)} tasks in {seconds:.1f} s"
    for problem, meaning in MEANINGS.items():
        if counts[problem]:
            yield f"  {counts[problem]:5d}  {meaning}"


def report(findings: Sequence[Finding], seconds: float) -> bytes:
    """The findings as JSON."""
    counts = Counter(finding.problem or "good" for finding in findings)
    content = {
        "tasks": len(findings),
        "counts": dict(sorted(counts.items())),
        "seconds": round(seconds, 3),
        "findings": [asdict(finding) for finding in findings],
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def good_lines(out: str, lines: Sequence[tuple[int, str]], findings: Sequence[Finding]) -> bytes:
    """The lines of good tasks as they were, gzipped if the new name says so."""
    good = {finding.line for finding in findings if finding.problem in GOOD}
    text = "".join(text.rstrip("\n") + "\n" for number, text in lines if number in good)
    return gzip.compress(text.encode(), mtime=0) if out.endswith(".gz") else text.encode()
