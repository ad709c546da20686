"""Settings of the mathematics environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from selfdistill_cli.core.errors import FieldError, did_you_mean
from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.envs.json_lines import FileKind
from selfdistill_cli.envs.splitting import check_shares

GYM = "reasoning_gym:"
"""What `env.data` starts with where it names a family of that package."""
PROBLEMS = FileKind(
    key="env.data",
    file=f"a .jsonl or .jsonl.gz file of problems, {GYM}NAME, or null for the built-in ones",
    noun="problem",
    record='an object with "question" and "answer"',
)
Kind = Literal[
    "columns", "sums", "products", "remainders", "digit_sums", "equations", "comparisons"
]
KINDS: tuple[str, ...] = get_args(Kind)
MAX_DIFFICULTY = 5
AnswerFormat = Literal["hash", "boxed", "tag", "number", "any"]


@dataclass(frozen=True, kw_only=True)
class MathSettings(Settings):
    """Answer a question; the last answer in the required form counts."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.math.env:MathEnv"

    data: str | None
    """File of problems (.jsonl or .jsonl.gz, as in GSM8K or MATH), `reasoning_gym:NAME` (a family
    of that package), or null: built-in arithmetic."""
    kinds: list[str]
    """Kinds of built-in problems, in equal shares; unused with `data`."""
    difficulty: int
    """1 (easiest) to 5, of built-in problems and of the curricula of reasoning-gym."""
    options: dict[str, Any]
    """Settings of the reasoning-gym family by its own names; they win over `difficulty`."""
    num_tasks: int
    """Distinct problems that are generated, all splits together; unused with a file."""
    generator_seed: int
    """Chooses the generated problems; never the run's `seed`, so that runs share their tasks."""
    answer_format: AnswerFormat
    """Where the answer stands: after `####`, in `\\boxed{}`, in `<answer></answer>`, the last
    number, or `any` of these, the first of that order that is there."""
    ask_for_format: bool
    """Add one line to every question that says how to write the answer."""
    instructions: str | None
    """System message put before every task, or null for none."""
    verifier: Literal["exact", "math_verify"]
    """`exact`: equal text or equal numbers. `math_verify`: also equal expressions, by the package
    math-verify in a process that can be killed. A family of reasoning-gym is scored by its own
    rule instead."""
    time_limit_s: float
    """CPU seconds that `math_verify` may take for one answer; longer is wrong and counted."""
    attempts: int
    """Answers that one episode may give; after a wrong one the agent is told so and tries again."""
    validation_fraction: float
    """Share of the problems for validation, by a hash of the problem, unless its line names a
    split."""
    test_fraction: float
    """Share of the problems for the final test, chosen like the validation share."""

    def __post_init__(self) -> None:
        check_shares(self)
        in_range(self, 1, MAX_DIFFICULTY, "difficulty")
        in_range(self, 1, 1_000_000, "num_tasks")
        in_range(self, 0.05, 600, "time_limit_s")
        in_range(self, 1, 100, "attempts")
        self._check_kinds()
        if self.options and self.data_family is None:
            expected = "{}: only a family of reasoning-gym (env.data=reasoning_gym:NAME) has any"
            raise FieldError("options", self.options, expected)

    def _check_kinds(self) -> None:
        known = ", ".join(KINDS)
        for kind in self.kinds:
            if kind not in KINDS:
                raise FieldError("kinds", f"'{kind}'", f"any of {known}{did_you_mean(kind, KINDS)}")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise FieldError("kinds", self.kinds, f"at least one of {known}, each once")

    @property
    def data_family(self) -> str | None:
        """The family of reasoning-gym that `data` names, None if it names none."""
        named = self.data is not None and self.data.startswith(GYM)
        return self.data.removeprefix(GYM) if self.data is not None and named else None

    def problem_with_data(self) -> str | None:
        """Return why `data` cannot be read, found without reading it, or None."""
        if self.data is None or self.data_family is not None:
            return None
        return PROBLEMS.problem(self.data)
