"""Settings of the rewards: the unit tests alone, and sums of named components."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import Settings, in_range

RESERVED = ("mean", "std", "success", "errors", "reward", "rank_concordance", "rank_pairs")
"""Names that metrics.jsonl and the counters of errors use themselves."""


@dataclass(frozen=True, kw_only=True)
class UnitTestsSettings(Settings):
    """The tests that a program passed."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.unit_tests:UnitTests"

    mode: Literal["fraction", "all_or_nothing"]
    """Reward the fraction of tests passed, or 1 only if all passed."""


@dataclass(frozen=True, kw_only=True)
class OutcomeSettings(Settings):
    """What the environment says at the end: success, progress, well-formed actions."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.outcome:Outcome"

    weights: dict[str, float]
    """Weight of each number of the outcome in the total."""


def _unless(there: bool, path: str, expected: str) -> str | None:
    """Return what stands at a path instead of what is expected there; None if it is there."""
    found = "nothing is there"
    if Path(path).exists():
        found = "that is a folder" if Path(path).is_dir() else "that is a file"
    return None if there else f"got '{path}', {found}; expected {expected}"


@dataclass(frozen=True, kw_only=True)
class ComponentSettings(Settings):
    """How a component enters the sum: weight * clip(scale * value)."""

    weight: float
    """Factor applied last; 0 logs the component without rewarding it."""
    scale: float
    """Factor applied after normalising and before clipping."""
    clip: list[float] | None
    """[lowest, highest] of the scaled value, null = no bounds."""
    normalize: bool
    """Subtract the running mean and divide by the running standard deviation."""
    on_error: Literal["mask", "zero", "retry", "abort"]
    """A value that fails: no value, the value 0, ask again and then no value, or stop the run."""
    retries: int
    """How often on_error=retry asks again."""
    error_budget: int
    """Failures of this component that a run endures; one more stops it."""

    def __post_init__(self) -> None:
        in_range(self, 0, 100, "retries")
        in_range(self, 0, 10**9, "error_budget")
        clip = self.clip
        if clip is not None and (len(clip) != 2 or clip[0] >= clip[1]):
            raise FieldError("clip", clip, "[lowest, highest] or null")


@dataclass(frozen=True, kw_only=True)
class CompositeSettings(Settings):
    """A weighted sum of named components."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.composite:Composite"

    components: dict[str, ComponentSettings]
    """Settings by name; the name stands in metrics as reward/NAME."""

    def __post_init__(self) -> None:
        if not self.components:
            expected = (
                "at least one, for example +reward/component@reward.components.tests=unit_tests"
            )
            raise FieldError("components", "none", expected)
        for name in self.components:
            taken = name in RESERVED or name.endswith("_std")
            if taken or not re.fullmatch(r"[A-Za-z]\w*", name):
                expected = f"letters, digits and _, not *_std nor one of {', '.join(RESERVED)}"
                raise FieldError("components", f"the name '{name}'", expected)


@dataclass(frozen=True, kw_only=True)
class TestsComponent(ComponentSettings):
    """The tests that a program passed."""

    __test__: ClassVar[bool] = False  # the name is none of pytest's business
    implementation: ClassVar[str] = "selfdistill_cli.rewards.kinds:Tests"

    mode: Literal["fraction", "all_or_nothing"]
    """The fraction of tests passed, or 1 only if all passed."""


@dataclass(frozen=True, kw_only=True)
class CodeDenseComponent(ComponentSettings):
    """A bonus for compiling, something for every passed test, a small cost of length."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.kinds:CodeDense"

    compile_bonus: float
    """For a program that compiles; one that does not gets nothing for tests either."""
    per_test: float
    """For each passed test."""
    max_tests: int
    """Tests that count: at most `per_test * max_tests`."""
    count: Literal["share", "number"]
    """share: the share passed times max_tests, whatever a task's number of tests; number: as
    many as passed, so that tasks with more tests than max_tests cannot tell solved from nearly."""
    length_coef: float
    """Cost of one sampled token."""
    length_cap: float
    """Largest cost of length."""
    length_budget: int | None
    """Tokens at which the cost reaches its cap at the earliest; null = no such limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, inf, "per_test", "length_coef", "length_cap")
        in_range(self, 1, 10**6, "max_tests")
        in_range(self, 1, inf, "length_budget")


@dataclass(frozen=True, kw_only=True)
class SyntaxComponent(ComponentSettings):
    """1 for a program that compiles, 0 for another."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.kinds:Syntax"


@dataclass(frozen=True, kw_only=True)
class LintComponent(ComponentSettings):
    """1 for a program without findings of a small linter, less for each finding."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.lint:Lint"

    most_findings: int
    """Findings at which the value is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 1, 1000, "most_findings")


@dataclass(frozen=True, kw_only=True)
class SimilarityComponent(ComponentSettings):
    """Likeness of the program and the reference answer, in [0, 1]."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.similarity:Similarity"

    measure: Literal["bleu", "edit"]
    """Shared n-grams of words up to four, or 1 minus the edit distance over the longer length."""
    max_words: int
    """Words and signs of each text that are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 1, 1000, "max_words")


@dataclass(frozen=True, kw_only=True)
class OverlongComponent(ComponentSettings):
    """The soft overlong penalty of DAPO, in [-1, 0]."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.kinds:Overlong"

    max_tokens: int
    """Sampled tokens of a trajectory from which the penalty is -1."""
    cache_fraction: float
    """Share of max_tokens before it over which the penalty grows from 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 1, inf, "max_tokens")
        in_range(self, 0, 1, "cache_fraction")


@dataclass(frozen=True, kw_only=True)
class LearnedComponent(ComponentSettings):
    """A sequence classifier of Hugging Face's format, read from a folder."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.learned:Learned"

    path: str
    """Folder with config.json, weights and tokenizer."""
    label: int
    """Which of the model's outputs."""
    output: Literal["logit", "probability"]
    """The output itself, or its share of the softmax (with one output: its sigmoid)."""
    max_tokens: int
    """Longest input; the beginning of a longer one is cut off."""
    batch_rows: int
    """Inputs in one forward pass."""
    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes a GPU if torch sees one."""

    @property
    def problem_with_path(self) -> str | None:
        """Why `path` is no folder of a model, found without reading it; None if it is."""
        return _unless(Path(self.path).is_dir(), self.path, "the folder of a model")

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 10**6, "label")
        in_range(self, 1, inf, "max_tokens", "batch_rows")


@dataclass(frozen=True, kw_only=True)
class RecordedComponent(ComponentSettings):
    """Scores of people, or of anything else that was run before, from a file."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.recorded:Recorded"

    path: str
    """JSON lines: task, score, and text, program or sha256 (docs/rewards.md)."""
    unrated: float | None
    """Value of an answer that the file does not have; null = no value."""

    @property
    def problem_with_path(self) -> str | None:
        """Why `path` is no file that could be read, found without reading it; None if it is."""
        return _unless(Path(self.path).is_file(), self.path, "the file of scores")
