"""Settings of the search environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.agents.settings import AgentSettings
from selfdistill_cli.envs.json_lines import FileKind
from selfdistill_cli.envs.splitting import check_shares

PAGES = FileKind(
    key="env.corpus",
    file="a .jsonl or .jsonl.gz file of pages, or null for the built-in ones",
    noun="page",
    record='an object with "id", "title" and "text"',
)
QUESTIONS = FileKind(
    key="env.questions",
    file="a .jsonl or .jsonl.gz file of questions about env.corpus, or null for the built-in ones",
    noun="question",
    record='an object with "question" and "answers"',
)


@dataclass(frozen=True, kw_only=True)
class SearchSettings(AgentSettings):
    """Answer questions by searching a corpus and reading its pages."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.search.env:SearchEnv"

    corpus: str | None
    """File of pages (.jsonl or .jsonl.gz: id, title, text); null: built in."""
    questions: str | None
    """File of questions about `corpus` (.jsonl or .jsonl.gz: question, answer or answers,
    optional id, evidence, split); null: built in."""
    validation_fraction: float
    """Share of `questions` for validation, by a hash of the id; unused where a line names one."""
    test_fraction: float
    """Share of `questions` for the final test, chosen like the validation share."""
    retriever: Literal["fts5", "bm25s"]
    """What ranks pages: SQLite FTS5, or the package bm25s."""
    index: str | None
    """Folder where indexes are kept; null: the user's cache folder."""
    results: int
    """Pages that a search lists; the built-in worlds have five pages a country."""
    list_results: bool
    """Answer a search with the list of its results; false: only how many there are, and they stand
    by their ids among the admissible actions, which makes short prompts."""
    snippet: int
    """Characters of text below each title in a result list; 0 for titles alone."""
    max_choices: int
    """Admissible actions listed at most."""
    hops: list[int]
    """Keep built-in questions with these numbers of hops; from 2 to 4."""
    worlds: Literal["real", "made_up"]
    """What train, validation and test ask about: real countries and elements, or a made-up world
    each. The worlds of practice and demonstrations are always made up."""
    world_size: int
    """Countries in a made-up world, and questions of each kind about them."""
    world_seed: int
    """Another number makes other made-up worlds."""
    prompt_skills: str | None
    """Skills in the agent's own prompt: `builtin`, or a JSON file; null for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self)
        in_range(self, 1, 50, "results")
        in_range(self, 0, 10_000, "snippet")
        in_range(self, 4, 100, "max_choices")
        in_range(self, 12, 2_000, "world_size")
        if not self.list_results and not self.show_choices:
            expected = "true with show_choices=false: nothing else tells the results"
            raise FieldError("list_results", "false", expected)
        if not self.hops or not set(self.hops) <= {2, 3, 4}:
            raise FieldError("hops", self.hops, "a list of some of 2, 3, 4")
        for kind, other in ((PAGES, QUESTIONS), (QUESTIONS, PAGES)):
            name, named = kind.key.partition(".")[2], getattr(self, other.key.partition(".")[2])
            if getattr(self, name) is None and named is not None:
                raise FieldError(
                    name,
                    "null",
                    f"{kind.file}; {other.key}={named} goes with a file of {kind.noun}s of your "
                    f"own: add {kind.key}=FILE, or leave {other.key} out",
                )

    def problem_with_data(self) -> str | None:
        """Return why `corpus` or `questions` cannot be read, found without reading them."""
        if self.corpus is None or self.questions is None:
            return None
        return PAGES.problem(self.corpus) or QUESTIONS.problem(self.questions)
