"""The search environment: experts solve it, chance does not, and no text crashes it."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_envs import FULL, play, search, shared

from selfdistill_cli.core.errors import ConfigError, FieldError
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Score, Stop, Trajectory
from selfdistill_cli.testing import check_env

FORMATS = ("tags", "json", "native", "choices", "words")
SPLITS = ("train", "validation", "test", "demonstrations", "practice")


def sampled(split, count):
    """Tasks from all over a split."""
    tasks = shared().tasks(split)
    return sorted(tasks, key=lambda task: seed_for("sample", task.id))[:count]


@pytest.mark.parametrize(("name", "split"), [("choices", split) for split in SPLITS])
def test_an_expert_solves_every_task(name, split):
    env = shared()
    for task in sampled(split, 200):
        texts = env.expert(task, 0)
        assert texts is not None, task.messages
        assert len(texts) <= 12


@pytest.mark.parametrize("name", FORMATS)
def test_what_the_expert_writes_wins_when_it_is_played(name):
    env = search(**FULL | {"format": name, "show_choices": name in ("choices", "words")})
    for task in env.tasks("test")[:20]:
        texts = env.expert(task, 0)
        outcome = play(env, task, texts)
        assert (outcome["success"], outcome["evidence"], outcome["f1"]) == (1.0, 1.0, 1.0)
        assert outcome["invalid_actions"] == 0


def at_random(task, rng):
    """Success of twelve random choices."""
    world = shared()._search.world(task, 0)
    for _ in range(12):
        choices = world.choices()
        assert 1 <= len(choices) <= 12
        if world.act(rng.choice(choices)).done:
            break
    return world.facts()["success"]


@pytest.mark.parametrize("split", SPLITS)
def test_chance_rarely_finds_an_answer(split):
    rng = random.Random(0)
    solved = [at_random(task, rng) for task in sampled(split, 200)]
    assert sum(solved) / len(solved) < 0.10


def test_observations_are_short_and_ascii():
    env = shared()
    for task in [*sampled("train", 30), *sampled("practice", 30)]:
        episode = env.episode(task, 0)
        for text in env.expert(task, 0)[:-1]:
            seen = episode.step(text).observation[0]["content"]
            assert seen.isascii()
            lines = seen.splitlines()
            assert len(lines) <= 5 + 12
            assert len(seen) < 800


def test_the_sentence_that_counts_is_shown_even_if_the_page_is_cut():
    env = shared()
    for task in sampled("train", 60):
        episode = env.episode(task, 0)
        texts = env.expert(task, 0)
        seen = "\n".join(episode.step(t).observation[0]["content"] for t in texts[:-1])
        last = task.meta["steps"][-1]["fact"]
        assert last in seen, task.messages


def test_what_rewards_read():
    env = search(**FULL)
    task = env.tasks("test")[0]
    answer = task.answer
    page = task.meta["steps"][0]["page"]
    outcome = play(env, task, [f"<action>open {page}</action>", "<action>answer wrong</action>"])
    pages = {step["page"] for step in task.meta["steps"]}
    assert (outcome["success"], outcome["exact_match"], outcome["f1"]) == (0.0, 0.0, 0.0)
    assert outcome["evidence"] == pytest.approx(1 / len(pages))
    assert outcome["answer"] == "wrong"
    outcome = play(env, task, [f"<action>answer the {answer.upper()}!</action>"])
    assert (outcome["success"], outcome["evidence"]) == (1.0, 0.0)
    outcome = play(env, task, [f"<action>answer {answer} surely</action>"])
    assert outcome["success"] == 0.0
    assert 0.5 < outcome["f1"] < 1.0


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("open 3", "search first"),
        ("open nowhere", "there is no page 'nowhere'"),
        ("search", "needs query"),
        ('{"name": "search", "arguments": {"query": "  "}}', "the query is empty"),
        ("search " + "word " * 100, "at most 400"),
        ("find x", "there is no action 'find'"),
    ],
)
def test_what_cannot_be_done_is_told(action, said):
    env = search(**FULL)
    step = env.episode(env.tasks("test")[0], 0).step(f"<action>{action}</action>")
    assert not step.done
    assert step.observation[0]["content"].startswith("Invalid action")
    assert said in step.observation[0]["content"]


@settings(max_examples=150, deadline=None)
@given(
    verb=st.sampled_from(["search", "open", "answer"]),
    text=st.text(max_size=120)
    | st.sampled_from(['" OR', "NEAR(a b)", "title:x", "*", "\x00", "٣"]),
)
def test_no_argument_crashes_an_episode(verb, text):
    env = _free()
    name = {"search": "query", "open": "page", "answer": "text"}[verb]
    call = json.dumps({"name": verb, "arguments": {name: text}})
    episode = env.episode(env.tasks("test")[0], 0)
    result = episode.step(call)
    json.dumps(result.outcome)
    assert result.outcome["success"] in (0.0, 1.0)


def _free(known=[]):  # noqa: B006 (one environment for all examples)
    if not known:
        known.append(search(**FULL | {"format": "json"}))
    return known[0]


def attempts(env, task, *plays):
    """Trajectories and scores of attempts."""
    outcomes = [play(env, task, texts) for texts in plays]
    found = [
        Trajectory(
            task=task, sibling=i, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
        )
        for i, outcome in enumerate(outcomes)
    ]
    return found, [Score(total=0.0, success=o["success"], parts={}) for o in outcomes]


def test_hints_say_different_things():
    env = search(prompt_skills="builtin")
    for task in env.tasks("validation")[:20]:
        right = env.expert(task, 0)
        found, scores = attempts(env, task, right, [*right[:2], "0"])
        texts = {kind: env.hint(kind, task, found, scores, 1, 0) for kind in sorted(env.hints)}
        assert all(texts.values())
        assert len({repr((hint.text, hint.messages)) for hint in texts.values()}) == len(env.hints)
        assert texts["answer"].text == task.answer
        facts = texts["evidence"].text.splitlines()
        assert task.answer in facts[-1]
        assert len(facts) <= 7
        assert "No answer was given. Never opened:" in texts["feedback"].text
        assert texts["own_wrong_answer"].text in texts["feedback"].text


def test_feedback_names_the_missing_page_or_the_wrong_answer():
    env = search(**FULL)
    task = env.tasks("test")[1]
    texts = env.expert(task, 0)
    found, scores = attempts(env, task, [*texts[:-1], "<action>answer x</action>"])
    said = env.hint("feedback", task, found, scores, 0, 0).text
    assert "The answer 'x' is wrong. All pages were opened" in said
    found, scores = attempts(env, task, [*texts[:2], "<action>answer x</action>"])
    said = env.hint("feedback", task, found, scores, 0, 0).text
    missing = next(s for s in task.meta["steps"] if s["page"] not in found[0].outcome["opened"])
    assert f"search '{missing['query']}'" in said


def test_pruned_takes_the_general_skills_alone():
    plain, env = shared().tasks("test")[0], search(prompt_skills="builtin")
    task = env.tasks("test")[0]
    content = task.messages[-1]["content"]
    assert content.endswith(plain.messages[-1]["content"])
    pruned = env.hint("pruned", task, (), (), None, 0).messages[-1]["content"]
    assert "General skills" in content
    assert "General skills" not in pruned
    assert "Skills for this task" in pruned
    assert shared().hint("pruned", plain, (), (), None, 0) is None


def test_hops_choose_tasks():
    env = search(hops=[2])
    assert {task.meta["hops"] for task in env.tasks("train")} == {2}
    assert Counter(task.meta["hops"] for task in shared().tasks("train")).keys() == {2, 3, 4}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hops": [1]}, "hops"),
        ({"hops": []}, "hops"),
        ({"questions": "q.jsonl"}, "corpus"),
        ({"corpus": "c.jsonl"}, "questions"),
        ({"results": 0}, "results"),
        ({"validation_fraction": 0.6, "test_fraction": 0.6}, "test_fraction"),
    ],
)
def test_settings_out_of_range(changes, field):
    with pytest.raises(FieldError) as caught:
        search(**changes)
    assert caught.value.field == field


def test_an_unknown_split_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'practice'"):
        shared().tasks("practise")


@pytest.mark.parametrize("name", FORMATS)
def test_the_contract_of_environments(name):
    check_env(
        lambda: search(format=name, prompt_skills="builtin"),
        actions=("", "1", "12", "<action>search x</action>"),
    )
