"""Families of reasoning-gym (an optional package), with scorers that can be trusted."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.envs.math.answers import MAX_ANSWER
from selfdistill_cli.envs.math.gym_scorers import OWN
from selfdistill_cli.envs.math.problems import Problem, name_of
from selfdistill_cli.envs.math.settings import GYM, MathSettings
from selfdistill_cli.envs.packages import REASONING_GYM

log = logging.getLogger(__name__)

PATIENCE = 50
"""Entries in a row that may repeat known questions before a family is taken to be exhausted."""
RUNS_CODE = "its scorer runs the answer as Python code in the training process"
VARIES = "its problems differ from process to process, so that a resumed run would see others"
REFUSED: dict[str, str] = {
    "polynomial_multiplication": f"{RUNS_CODE}; use polynomial_equations",
    "simple_integration": f"{RUNS_CODE}; use a file of problems with env.verifier=math_verify",
    "intermediate_integration": f"{RUNS_CODE}; use a file with env.verifier=math_verify",
    "game_of_life_halting": "its scorer gives any text full marks; use game_of_life",
    "coin_flip": "its scorer gives '0' full marks; use dice",
    "complex_arithmetic": "its scorer gives 'nan' full marks; use basic_arithmetic",
    "codeio": f"{VARIES}; use list_functions",
    "isomorphic_strings": f"{VARIES}; use circuit_logic",
    "ransom_note": f"{VARIES}; use letter_counting",
    "word_ladder": f"{VARIES}; use letter_jumble",
    "composite": "its parts would escape this table; name one family",
}
GUESSABLE = ("circuit_logic", "course_schedule")
"""Families with two answers: half of all guesses are right."""


class Gym:
    """One family: its problems, and the score of an answer."""

    def __init__(self, settings: MathSettings) -> None:
        """Import the package and make the family; raises ConfigError with the remedy."""
        assert settings.data_family is not None
        self._name, self._settings = settings.data_family, settings
        if self._name in REFUSED:
            raise ConfigError(f"env.data={GYM}{self._name}: refused: {REFUSED[self._name]}")
        self._dataset = self._made()
        self._entries: dict[int, Mapping[str, Any]] = {}
        self._warned = False
        if self._name in GUESSABLE:
            log.warning("env.data=%s%s: half of all guesses are right", GYM, self._name)

    def _made(self) -> Any:
        factory = REASONING_GYM.load(f"env.data={self._settings.data}", "factory")
        if self._name not in factory.DATASETS:
            known = sorted(set(factory.DATASETS) - set(REFUSED))
            near = did_you_mean(self._name, known)
            raise ConfigError(
                f"env.data={GYM}{self._name}: reasoning-gym has no such family{near}; it has: "
                + ", ".join(known)
            )
        options = {**self._level(factory), **self._settings.options}
        size = self._settings.num_tasks * 2 + PATIENCE
        try:
            return factory.create_dataset(
                self._name, **{"size": size, "seed": self._settings.generator_seed, **options}
            )
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(
                f"env.options: reasoning-gym does not take {options} for {self._name}: {error} "
                f"(env.difficulty={self._settings.difficulty} gives what env.options leaves out)"
            ) from None

    def _level(self, factory: Any) -> dict[str, Any]:
        """Return the settings of the curriculum's level, its last one if it has fewer."""
        level = self._settings.difficulty - 1
        if not factory.has_curriculum(self._name):
            if level:
                log.warning("%s has no levels: env.difficulty changes nothing", self._name)
            return {}
        curriculum = factory.create_curriculum(self._name)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        made = vars(curriculum.generate_configuration({}))
        fields = {
            field
            for attribute in curriculum.attributes.values()
            for kind in ("field_name", "lower_field_name", "upper_field_name")
            if (field := getattr(attribute, kind, None)) is not None
        }
        return {name: made[name] for name in fields}

    def problems(self) -> Iterator[Problem]:
        """Yield up to `env.num_tasks` problems with distinct questions."""
        seen: set[str] = set()
        idle = 0
        for index in range(len(self._dataset)):
            entry = self._entry(index)
            name = f"{self._name}/{name_of(entry['question'])}"
            idle = idle + 1 if name in seen else 0
            if idle > PATIENCE or len(seen) >= self._settings.num_tasks:
                return
            if name not in seen:
                seen.add(name)
                answer = entry["answer"]
                yield Problem(
                    id=name,
                    question=entry["question"].strip(),
                    answer=answer.strip() if isinstance(answer, str) else None,
                    kind=self._name,
                    index=index,
                )

    def _entry(self, index: int) -> Mapping[str, Any]:
        """Return an entry; made once, because some families take seconds to make one."""
        if index not in self._entries:
            state = random.getstate()  # list_functions draws from the global stream
            random.seed(f"{self._name}/{self._settings.generator_seed}/{index}")
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # one family prints dots
                    self._entries[index] = self._dataset[index]
            finally:
                random.setstate(state)
        return self._entries[index]

    def score(self, index: int, answer: str) -> tuple[float, bool]:
        """Return the score in [0, 1], and whether the scorer failed (then the score is 0)."""
        if len(answer) > MAX_ANSWER or "\x00" in answer:
            return 0.0, False
        entry = self._entry(index)
        scorer = OWN.get(self._name)
        try:
            if scorer is not None:
                found = scorer(answer, entry)
            else:
                found = float(self._dataset.score_answer(answer, entry))
        except Exception as error:  # a scorer of the package may raise anything at garbage
            self._note(error, answer)
            return 0.0, True
        return (min(max(found, 0.0), 1.0), False) if math.isfinite(found) else (0.0, True)

    def _note(self, error: Exception, answer: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: the scorer of reasoning-gym raised %s at the answer %r; such answers get 0 "
                "and are counted as scorer_errors",
                self._name,
                type(error).__name__,
                answer[:60],
            )
