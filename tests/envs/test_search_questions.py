"""The built-in questions: many, answerable, not to be guessed, and apart between splits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from search_envs import shared

from selfdistill_cli.envs.search.answers import contains, exact_match, f1, normalised
from selfdistill_cli.envs.search.collection import REAL_ASKING, asked, shipped_questions
from selfdistill_cli.envs.search.facts import real_world
from selfdistill_cli.envs.search.fiction import fictional_world
from selfdistill_cli.envs.search.questions import KINDS, World, ask

PARTS = ("train", "validation", "test")


def library(split="train"):
    return shared()._search.collection(split).library


def test_there_are_enough_of_every_kind():
    questions = shipped_questions()
    assert len(questions) >= 1500
    assert {q.hops for q in questions} == {2, 3, 4}
    for part in PARTS:
        assert {q.kind for q in questions if q.part == part} == set(KINDS)
    common = Counter(q.answers[0] for q in questions).most_common(1)[0][1]
    assert common / len(questions) < 0.05


def test_ids_and_texts_are_unique():
    for questions in (shipped_questions(), asked(fictional_world(0, "practice", 24), 10, 0)):
        assert len({q.id for q in questions}) == len(questions)
        assert len({q.text for q in questions}) == len(questions)


def test_splits_share_no_entity():
    used = {
        part: {name for q in shipped_questions() if q.part == part for name in q.entities}
        for part in PARTS
    }
    assert all(used.values())
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not used[first] & used[second]
    parts = {entity.name: entity.part for entity in real_world()}
    for question in shipped_questions():
        assert {parts[name] for name in question.entities} == {question.part}


def test_made_up_worlds_share_no_name_with_each_other():
    one, other = (fictional_world(0, part, 60) for part in ("practice", "demonstrations"))
    assert len({entity.name for entity in (*one, *other)}) == len(one) + len(other)
    assert one == fictional_world(0, "practice", 60)
    assert one != fictional_world(1, "practice", 60)


def test_a_large_made_up_world_runs_out_of_no_names():
    world = fictional_world(0, "practice", 2000)
    for attribute in ("code", "prefix", "capital"):
        values = [entity.facts[attribute] for entity in world if entity.kind == "country"]
        assert len(set(values)) == 2000


def test_the_question_alone_does_not_find_the_answer():
    for split in (*PARTS, "practice", "demonstrations"):
        found = library(split)
        tasks = shared().tasks(split)[:250]
        leaks = sum(
            any(contains(page.text, task.answer) for page in found.search(task.meta["text"], 5))
            for task in tasks
        )
        assert leaks / len(tasks) < 0.05, split


def test_every_step_is_proved_by_its_page():
    found = library()
    for question in shipped_questions():
        for step in question.steps:
            assert step.fact in found.pages[step.page].text
        assert question.answers[0] in question.steps[-1].fact
        assert not contains(question.text, question.answers[0])


def test_a_clue_fits_one_entity_and_the_rest_of_the_way_is_unique():
    """Two entities with the same value, or two equal borders, make no question."""
    entities = fictional_world(3, "practice", 24)
    first, second, *rest = entities
    twin = replace(second, facts={**second.facts, "anthem": first.facts["anthem"]})
    world = World((first, twin, *rest))
    clues = [found for found in world.clued("country") if found.entity in (first, twin)]
    assert not any("anthem" in found.asks for found in clues)
    level = replace(first, borders=dict.fromkeys(first.borders, 100.0))
    world = World((level, second, *rest))
    start = next(found for found in world.clued("country") if found.entity is level)
    assert world.follow(start, "longest") is None
    assert World(entities).follow(start, "longest") is None or len(first.borders) > 1


def test_comparisons_need_a_clear_difference():
    entities = fictional_world(3, "practice", 24)
    first, second, *rest = entities
    near = replace(second, facts={**second.facts, "area": first.facts["area"] * 1.01})
    world = World((first, near, *rest))
    pair = tuple(
        next(found for found in world.clued("country") if found.entity is entity)
        for entity in (first, near)
    )
    assert world.larger(pair, "area") is None


def test_made_up_questions_are_a_function_of_the_seed():
    world = fictional_world(0, "practice", 24)
    questions = [ask(world, 5, seed, lambda question: True) for seed in (0, 0, 1)]
    assert questions[0] == questions[1]
    assert questions[0] != questions[2]


@pytest.mark.slow
def test_shipped_questions_are_what_the_facts_give():
    assert asked(*REAL_ASKING) == shipped_questions()


@pytest.mark.parametrize(
    ("given", "accepted", "right"),
    [
        ("the Uruguayan Pesos.", "Uruguayan pesos", True),
        ("Yaound\u00e9", "Yaounde", True),
        ("1,591", "1591", True),
        ("uy", ".uy", True),
        ("", "x", False),
        ("...", "x", False),
        ("Montevideo city", "Montevideo", False),
        ("The", "the", True),
        ("5", "-5", False),
        ("3-5", "3.5", False),
        ("3.5 5", "3.5", False),
        ("\N{MINUS SIGN}5", "-5", True),
        ("-3.5 m.", "-3.5 m", True),
        ("Ru\u0430nda", "Ruanda", False),
    ],
)
def test_answers_are_compared_after_normalisation(given, accepted, right):
    assert exact_match(given, [accepted]) is right


def test_f1_counts_words():
    assert f1("Montevideo city", ["Montevideo"]) == pytest.approx(2 / 3)
    assert f1("city", ["Montevideo", "old city"]) == pytest.approx(2 / 3)
    assert f1("x", ["y"]) == 0.0
    assert normalised("An  apple, a day") == "apple day"
