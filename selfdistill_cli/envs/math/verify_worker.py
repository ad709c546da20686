"""A process that compares expressions with math-verify; killed by its kernel if it takes long.

`python -m selfdistill_cli.envs.math.verify_worker MEMORY_MB`: reads one JSON line `[expected,
given, seconds]` at a time and answers with one of `equal`, `different`, `error`. A comparison
that uses more CPU seconds ends the process by SIGPROF, which no Python code can put off.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable


def main(memory_mb: int) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a package prints is no answer
    os.dup2(1, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    compare = loaded()
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        expected, given, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            said = "equal" if compare(expected, given) else "different"
        except Exception:  # whatever sympy makes of a model's expression
            said = "error"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(said, file=answers, flush=True)


def loaded() -> Callable[[str, str], bool]:
    """Import math-verify; return whether two LaTeX expressions are equal.

    Both stand alone in a box: without an anchor math-verify takes any number of a text, so that
    `9^{9}` would equal 9.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    form = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]

    def compare(expected: str, given: str) -> bool:
        sides = [
            parse(
                f"\\boxed{{{text}}}",
                form,
                fallback_mode="no_fallback",
                extraction_mode="first_match",
                parsing_timeout=None,
            )
            for text in (expected, given)
        ]
        return all(sides) and bool(verify(*sides, timeout_seconds=None))

    compare("\\frac{1}{2}", "0.5")  # the first call builds tables
    return compare


if __name__ == "__main__":
    main(int(sys.argv[1]))
