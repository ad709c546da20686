"""One search episode: query, read, answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from selfdistill_cli.envs.agents.actions import Action, Malformed, Tool, tool
from selfdistill_cli.envs.agents.world import Reply
from selfdistill_cli.envs.search.answers import exact_match, f1
from selfdistill_cli.envs.search.lexicon import phrases
from selfdistill_cli.envs.search.library import Library
from selfdistill_cli.envs.search.pages import Page
from selfdistill_cli.envs.search.questions import Question
from selfdistill_cli.envs.search.reading import excerpt
from selfdistill_cli.envs.search.settings import SearchSettings

OPEN = Tool(
    name="open",
    description="Reads a page: its number in the last results, or its id.",
    parameters={
        "type": "object",
        "properties": {"page": {"type": ["string", "integer"]}},
        "required": ["page"],
    },
)
TOOLS = (
    tool("search", "Lists the pages that fit a few words best.", query="string"),
    OPEN,
    tool("answer", "Gives the answer, short and exact, and ends.", text="string"),
)
MAX_ANSWERS = 3
MIN_SEARCHES = 3
MAX_QUERY = 400


class SearchWorld:
    """What was searched, seen and opened so far."""

    def __init__(self, library: Library, question: Question, settings: SearchSettings) -> None:
        """Start with nothing seen."""
        self._library, self._question, self._settings = library, question, settings
        self._results: tuple[Page, ...] = ()
        self._queries: list[str] = []
        self._opened: list[Page] = []
        self._answer: str | None = None

    def begin(self) -> str:
        """Nothing stands below the question."""
        return ""

    def tools(self) -> Sequence[Tool]:
        """Return search, open and answer."""
        return TOOLS

    def act(self, action: Action) -> Reply:
        """Search, open or answer; raises Malformed for what cannot be done."""
        if action.name == "search":
            return self._search(action.arguments["query"].strip())
        if action.name == "open":
            return self._open(action.arguments["page"])
        self._answer = action.arguments["text"].strip()
        return Reply(text="answered", done=True)

    def _search(self, query: str) -> Reply:
        if not query:
            raise Malformed("the query is empty; write a few words")
        if len(query) > MAX_QUERY:
            raise Malformed(f"the query has {len(query)} characters; at most {MAX_QUERY} are read")
        self._results = self._library.search(query, self._settings.results)
        self._queries.append(query)
        if self._results and not self._settings.list_results:
            return Reply(text=f"{len(self._results)} pages")
        lines = [self._line(place, page) for place, page in enumerate(self._results, start=1)]
        return Reply(text="\n".join(lines) or "no page has any of these words")

    def _line(self, place: int, page: Page) -> str:
        if not self._settings.snippet:
            return f"{place} {page.title}"
        about = f"{self._queries[-1]} {self._question.text}"
        return (
            f"{place} {page.title} [{page.id}] {excerpt(page.text, about, self._settings.snippet)}"
        )

    def _open(self, which: str | int) -> Reply:
        page = self._page(which)
        if page in self._opened:
            self._opened.remove(page)
        self._opened.append(page)
        about = f"{self._question.text} {' '.join(self._queries[-1:])}"
        room = max(16, self._settings.max_observation - len(page.title) - 1)
        return Reply(text=f"{page.title}\n{excerpt(page.text, about, room)}")

    def _page(self, which: str | int) -> Page:
        text = str(which).strip()
        if text in self._library.pages:
            return self._library.pages[text]
        count = len(self._results)
        if text.isdecimal() and len(text) < 6 and 1 <= int(text) <= count:
            return self._results[int(text) - 1]
        listed = f"a number from 1 to {count}" if count else "search first, then a number"
        raise Malformed(f"there is no page '{text:.60}'; expected {listed}, or a page's id")

    def choices(self) -> Sequence[Action]:
        """Return unopened results, suggested searches, and candidates for the answer."""
        limit = self._settings.max_choices
        opens = [
            Action(name="open", arguments={"page": self._told(page)})
            for page in self._results
            if page not in self._opened
        ]
        answers = list(self._candidates())[: min(MAX_ANSWERS, max(1, limit - MIN_SEARCHES - 1))]
        opens = opens[: max(1, limit - len(answers) - MIN_SEARCHES)]
        queries = list(self._suggestions())[: max(0, limit - len(opens) - len(answers))]
        return [
            *opens,
            *(Action(name="search", arguments={"query": query}) for query in queries),
            *(Action(name="answer", arguments={"text": text}) for text in sorted(answers)),
        ]

    def _told(self, page: Page) -> int | str:
        """Return a result's number where results are listed with numbers, else its id."""
        return self._results.index(page) + 1 if self._settings.list_results else page.id

    def _suggestions(self) -> Iterable[str]:
        """Return queries: names in the question, then on opened pages, new ones first."""
        question = self._question.text
        asked = self._library.lexicon.mentions(question) or phrases(question) or [question]
        names: dict[str, None] = dict.fromkeys(asked)
        for page in reversed(self._opened):
            names[page.subject] = None
            names.update(dict.fromkeys(sorted(self._links(page))))
        new = [name for name in names if name not in self._queries]
        old = [name for name in names if name in self._queries[:-1] and name != self._queries[-1]]
        return (*new, *old) or tuple(asked)

    def _links(self, page: Page) -> Iterator[str]:
        """Yield the subjects of other pages that a page names in what is shown of it."""
        for name in self._library.lexicon.mentions(page.text):
            if self._library.has_subject(name):
                yield name

    def _candidates(self) -> Iterator[str]:
        """Yield names of the kind that is asked for on opened pages, the newest page first."""
        kind, seen = self._question.answer_kind, set[str]()
        for page in reversed(self._opened):
            for text in self._named(page, kind):
                if text not in seen:
                    seen.add(text)
                    yield text

    def _named(self, page: Page, kind: str) -> Iterator[str]:
        if not kind:
            yield from phrases(page.text)
            return
        for name in self._library.lexicon.mentions(page.text):
            meaning = self._library.lexicon.meaning(name, kind)
            if meaning is not None:
                yield meaning

    def facts(self) -> Mapping[str, Any]:
        """Return what rewards and hints read."""
        question, given = self._question, self._answer
        pages = list(dict.fromkeys(step.page for step in question.steps))
        opened = [page.id for page in self._opened]
        right = given is not None and exact_match(given, question.answers)
        return {
            "success": float(right),
            "exact_match": float(right),
            "f1": f1(given, question.answers) if given is not None else 0.0,
            "evidence": sum(page in opened for page in pages) / len(pages) if pages else 0.0,
            "answer": given,
            "opened": opened,
            "searches": len(self._queries),
            "hops": question.hops,
        }

    def expert(self) -> Action | None:
        """Open the pages of the way one after another, then answer."""
        for step in self._question.steps:
            page = self._library.pages[step.page]
            if page in self._opened:
                continue
            if page in self._results:
                return self._listed("open", page=self._told(page))
            if self._queries and self._queries[-1] == step.query:
                return None
            return self._listed("search", query=step.query)
        if not self._question.steps:
            return None
        return self._listed("answer", text=self._question.answers[0])

    def _listed(self, name: str, **arguments: Any) -> Action | None:
        """Return the action; None if only listed ones can be written and it is not listed."""
        action = Action(name=name, arguments=arguments)
        if self._settings.picks and action not in self.choices():
            return None
        return action
