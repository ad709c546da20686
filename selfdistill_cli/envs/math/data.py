"""The user's own problems: JSON lines as in GSM8K, as in MATH, or with a plain answer."""

from __future__ import annotations

import logging
import re

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.envs.json_lines import Line, lines_of
from selfdistill_cli.envs.math.answers import boxed
from selfdistill_cli.envs.math.problems import Problem, name_of
from selfdistill_cli.envs.math.settings import PROBLEMS
from selfdistill_cli.envs.splitting import own_split

log = logging.getLogger(__name__)

CALCULATION = re.compile(r"<<([^<>]*)>>")
"""GSM8K's marks for a calculator, for example `48/2 = <<48/2=24>>24`."""
NAMES = ("task_id", "id", "unique_id")
FORMS = (
    '"answer" (GSM8K: a solution that ends with "#### 42"; or the final answer alone) or '
    '"solution" (MATH: with \\boxed{...})'
)


def read_problems(path: str) -> list[Problem]:
    """Read a file of problems; raises DataError naming file, line and field.

    A line without an id is named by its question; a question that comes again is left out then.
    """
    found: dict[str, Problem] = {}
    lines: dict[str, int] = {}
    again = 0
    for line in lines_of(path, PROBLEMS):
        line.check_texts()
        named, problem = _problem(line)
        if named is None and problem.id in found:
            again += 1
            continue
        line.note_identifier(named or "question", problem.id, lines)
        found[problem.id] = problem
    if again:
        log.warning("%s: %d lines repeat a question and are left out", path, again)
    return list(found.values())


def _problem(line: Line) -> tuple[str | None, Problem]:
    """Return which field names the problem (None: its question does) and the problem."""
    question = line.text("question", "problem", "prompt") or ""
    if not question.strip():
        raise line.error("question", "no words", "the text of the problem")
    named = next((name for name in NAMES if line.record.get(name) is not None), None)
    name = name_of(question) if named is None else line.identifier(named)
    working, answer = _solution(line)
    return named, Problem(
        id=name,
        question=question.strip(),
        answer=answer,
        working=CALCULATION.sub("", working).strip(),
        evidence=_evidence(working, answer),
        skill=line.text("skill", required=False),
        kind=line.text("kind", "type", "subject", required=False) or "",
        split=own_split(line),
    )


def _solution(line: Line) -> tuple[str, str]:
    """Return the working and the final answer."""
    answer = line.record.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        line.record["answer"] = str(answer)
    answer = line.text("answer", required=False)
    solution = line.text("solution", "rationale", required=False) or ""
    if answer is None:
        final = boxed(solution)
        if final is None:
            found = "no \\boxed{...}" if solution else f"none{did_you_mean('answer', line.record)}"
            raise line.error("solution" if solution else "answer", found, FORMS)
        return _without_box(solution), final
    working, marked, final = answer.rpartition("####")
    if not marked:
        working, final = _without_box(solution), boxed(answer) or answer
    if not final.strip():
        raise line.error("answer", "no words" if not marked else "nothing after ####", FORMS)
    return working.strip(), final.strip()


def _without_box(solution: str) -> str:
    """Return a solution whose boxes are opened: the reference has one, of the wanted form."""
    for _ in range(solution.count("\\boxed{")):
        inside = boxed(solution)
        if inside is None or f"\\boxed{{{inside}}}" not in solution:
            return solution
        solution = solution.replace(f"\\boxed{{{inside}}}", inside)
    return solution.strip()


def _evidence(working: str, answer: str) -> tuple[str, ...]:
    """Return the calculations that a solution marks, without those that give the answer."""
    marked = CALCULATION.findall(working)
    return tuple(text for text in marked if text.rpartition("=")[2].strip() != answer)
