"""The built-in text games: solvable from everywhere, apart by split, and told honestly."""

from __future__ import annotations

import json
import random
import time
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_games import KINDS, play, score, text_game, wander

from selfdistill_cli.core.errors import ConfigError, DataError, FieldError
from selfdistill_cli.envs.agents.actions import Action, Malformed
from selfdistill_cli.envs.agents.formats import FORMATS
from selfdistill_cli.envs.textgame import rules
from selfdistill_cli.envs.textgame.game import Command, State
from selfdistill_cli.envs.textgame.planner import next_command, walkthrough
from selfdistill_cli.testing import check_env

SIZES = {
    "default": {},
    "smallest": {"rooms": 2, "containers": 1, "objects": 0, "quest": 1},
    "large": {"rooms": 12, "containers": 6, "objects": 8, "quest": 5},
}


def game_of(env, task):
    return env._domain.world(task, 0).state.game


@pytest.mark.parametrize(
    ("size", "split"),
    [("default", "train"), ("default", "test"), ("smallest", "train"), ("large", "test")],
)
def test_experts_solve_every_game(size, split):
    longest = 150 if size == "large" else 24
    env = text_game(SIZES[size], max_steps=longest, train_tasks=200)
    for task in env.tasks(split)[:200]:
        texts = env.expert(task, 0)
        assert texts is not None, task
        outcome = play(env, task, texts).outcome
        assert outcome["success"] == outcome["progress"] == 1.0
        assert outcome["invalid_actions"] == 0
        assert outcome["missing"] == []


@pytest.mark.parametrize("name", FORMATS)
def test_experts_write_every_format(name):
    env = text_game(format=name)
    for task in env.tasks("validation")[:8]:
        assert play(env, task, env.expert(task, 0)).outcome["success"] == 1.0


def test_the_plan_works_from_any_state_that_is_not_lost():
    env, dice = text_game({"rooms": 6, "quest": 3}), random.Random(0)
    lost = 0
    for task in env.tasks("train")[:200]:
        state = State(game_of(env, task))
        for _ in range(dice.randrange(40)):
            if state.lost or state.solved():
                break
            rules.do(state, dice.choice(rules.commands(state)))
        lost += state.lost
        if state.lost:
            assert next_command(state) is None
        else:
            walkthrough(state, limit=200)
            assert state.solved(), task
    assert 0 < lost < 60


def key_of(state):
    where = tuple(sorted(state.places.items()))
    return (state.room, where, frozenset(state.open), tuple(sorted(state.cooked.items())))


def shortest(game):
    """Length of the shortest solution, by breadth-first search over the states."""
    queue, seen = deque([()]), set()
    while queue:
        path = queue.popleft()
        state = State(game)
        for command in path:
            rules.do(state, command)
        if state.solved():
            return len(path)
        if state.lost or key_of(state) in seen:
            continue
        seen.add(key_of(state))
        queue.extend((*path, command) for command in rules.commands(state))
    raise AssertionError("no solution")


@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_small_games_are_hardly_longer_than_the_shortest(kind):
    env = text_game({"rooms": 3, "containers": 1, "objects": 0, "quest": 1}, kinds=[kind])
    games = [game_of(env, task) for task in env.tasks("train")[:12]]
    pairs = [(len(walkthrough(State(game))), shortest(game)) for game in games]
    assert all(best <= found for found, best in pairs)
    assert sum(found for found, _ in pairs) <= 1.2 * sum(best for _, best in pairs)


def test_a_random_agent_rarely_wins():
    env = text_game(max_steps=24)
    outcomes = [wander(env, task, i) for i, task in enumerate(env.tasks("train")[:400])]
    wins = {kind: [o["success"] for o in outcomes if o["kind"] == kind] for kind in KINDS}
    assert {kind: len(found) for kind, found in wins.items()} == dict.fromkeys(KINDS, 100)
    assert all(sum(found) <= 20 for found in wins.values()), wins
    assert all(0 <= o["progress"] <= 1 for o in outcomes)
    assert any(0 < o["progress"] < 1 and o["success"] == 0 for o in outcomes)


def test_splits_share_no_word_and_no_game():
    env = text_game()
    named, ids = {}, {}
    for split in ("train", "validation", "test"):
        games = [game_of(env, task) for task in env.tasks(split)]
        things = [n for g in games for n in (*g.exits, *g.items, *g.containers, *g.trades)]
        named[split] = {name.split()[0] for name in things}
        ids[split] = {task.id for task in env.tasks(split)}
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not named[first] & named[second]
        assert not ids[first] & ids[second]
    assert len({str(game_of(env, task)) for task in env.tasks("train")}) == 400
    demonstrated = [task.id for task in env.tasks("demonstrations")]
    assert demonstrated == [task.id for task in env.tasks("train")][:100]
    with pytest.raises(ConfigError, match="did you mean 'test'"):
        env.tasks("tset")


def test_sizes_are_what_was_asked_for():
    size = {"rooms": 7, "containers": 3, "objects": 4, "quest": 3}
    env = text_game(size)
    goals = {"fetch": 6, "keys": 4, "recipe": 4, "trade": 4}
    for task in env.tasks("train")[:40]:
        game = game_of(env, task)
        assert len(game.exits) == 7
        assert len(game.containers) == 3
        assert len(game.goals) == goals[game.kind]
        assert len(game.items) == 4 + {"fetch": 3, "keys": 4, "recipe": 3, "trade": 4}[game.kind]
        assert max(map(len, game.exits.values())) <= 3


def test_settings_out_of_range_are_told():
    for change, field in (
        ({"rooms": 1}, "rooms"),
        ({"quest": 4}, "quest"),
        ({"containers": 5}, "containers"),
    ):
        with pytest.raises(FieldError) as caught:
            text_game(change)
        assert caught.value.field == field
    with pytest.raises(FieldError, match="did you mean 'textworld'"):
        text_game(source="textwrld")
    with pytest.raises(FieldError, match="at least one kind"):
        text_game(kinds=[])


def test_each_hint_is_another_text_and_says_what_it_promises():
    env = text_game(prompt_skills="builtin")
    for task in env.tasks("train")[:4]:
        good = play(env, task, ["<action>look</action>", *env.expert(task, 0)])
        bad = play(env, task, ["<action>look</action>", "nothing"])
        group, scores = [good, bad], [score(good), score(bad)]
        found = {kind: env.hint(kind, task, group, scores, 1, 0) for kind in env.hints}
        assert all(found.values())
        texts = [hint.text for hint in found.values() if hint.kind != "pruned"]
        assert len(set(texts)) == len(texts) >= 7
        words = found["answer"].text.split("; ")
        assert play(env, task, [f"<action>{w}</action>" for w in words]).outcome["success"] == 1
        assert found["sibling"].text == f"look; {found['answer'].text}"
        game = game_of(env, task)
        assert game.goals[-1].what in found["feedback"].text
        assert all(g.what in found["evidence"].text for g in game.goals if g.what in game.items)
    skills = {env.hint("skill", task, (), (), None, 0).text for task in env.tasks("train")[:4]}
    assert len(skills) == 4


def test_skills_stand_in_the_prompt_and_the_general_ones_are_pruned(tmp_path):
    env = text_game(prompt_skills="builtin")
    plain = text_game()
    assert "pruned" in env.hints
    assert "pruned" not in plain.hints
    for task, bare in zip(env.tasks("train")[:4], plain.tasks("train")[:4], strict=True):
        shown = task.messages[-1]["content"]
        pruned = env.hint("pruned", task, (), (), None, 0).messages[-1]["content"]
        skill = env.hint("skill", task, (), (), None, 0).text
        assert shown.startswith("General skills:\n- ")
        assert pruned == f"Skills for this task:\n- {skill}\n{bare.messages[-1]['content']}"
        assert shown.endswith(pruned)
        assert plain.hint("pruned", bare, (), (), None, 0) is None
    file = tmp_path / "skills.json"
    file.write_text(json.dumps({"general": ["Be quick."], "task": {"keys": ["Use keys."]}}))
    own = text_game(prompt_skills=str(file)).tasks("train")
    assert "- Be quick." in own[0].messages[-1]["content"]
    assert ["- Use keys." in t.messages[-1]["content"] for t in own[:4]] == [
        False,
        True,
        False,
        False,
    ]
    file.write_text(json.dumps({"task": {"kes": ["x"]}}))
    with pytest.raises(DataError, match="did you mean 'keys'"):
        text_game(prompt_skills=str(file)).tasks("train")
    with pytest.raises(FieldError, match="expected null with env"):
        text_game(prompt_skills="builtin", source="textworld")


def test_a_wrong_appliance_spoils_the_dish_and_feedback_says_so():
    env = text_game(kinds=["recipe"])
    task = env.tasks("train")[0]
    state = State(game_of(env, task))
    item, right = next(iter(state.game.recipe.items()))
    wrong = "oven" if right == "stove" else "stove"
    state.places[item], state.room = "you", state.game.kitchen
    assert "You lost" in rules.do(state, Command("cook", item, wrong))
    assert next_command(state) is None
    outcome = {"lost": 1.0, "missing": state.missing(), "success": 0.0, "actions": ["x"]}
    assert "spoiled" in env._domain.feedback(task, outcome)


def test_what_cannot_be_done_is_told_and_changes_nothing():
    env = text_game(kinds=["keys"])
    state = State(game_of(env, env.tasks("train")[0]))
    before = key_of(state)
    for name, text, said in (
        ("go", "up", "no exit"),
        ("take", "moon", "no 'moon' to take"),
        ("put", "moon in box", "do not carry"),
        ("open", "sesame", "to open here"),
    ):
        argument = "direction" if name == "go" else "what"
        command = rules.as_command(Action(name=name, arguments={argument: text}))
        with pytest.raises(Malformed, match=said):
            rules.do(state, command)
    assert key_of(state) == before
    assert rules.do(state, Command("inventory", "")) == "You carry: nothing."


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"what": "the Lamp in Box"}, ("put", "lamp", "box")),
        ({"what": "lamp into box"}, ("put", "lamp", "box")),
        ({"what": "lamp", "in": "the box"}, ("put", "lamp", "box")),
        ({"in": "box", "what": "lamp"}, ("put", "lamp", "box")),
        ({"what": "lamp"}, ("put", "lamp", "")),
    ],
)
def test_commands_are_read_in_several_spellings(arguments, command):
    assert tuple(rules.as_command(Action(name="put", arguments=arguments))) == command


HOSTILE = text_game(train_tasks=4)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(("go", "take", "put", "open", "cook", "make", "give", "look")),
    what=st.text(max_size=40),
    other=st.one_of(st.none(), st.text(max_size=20)),
    kind=st.integers(0, 3),
)
def test_no_command_crashes_a_game(name, what, other, kind):
    env = HOSTILE
    call = {"name": name, "arguments": {"direction" if name == "go" else "what": what}}
    link = rules.LINKS.get(name)
    if other is not None and link:
        call["arguments"][link] = other
    episode = env.episode(env.tasks("train")[kind], 0)
    for _ in range(2):
        result = episode.step(f"<action>{json.dumps(call)}</action>")
        json.dumps(result.outcome)


@pytest.mark.parametrize("name", FORMATS)
def test_the_contract_of_environments(name):
    texts = ("", "1", "99", "<action>look</action>", '{"name": "take", "arguments": {"what": ""}}')
    check_env(lambda: text_game(format=name), actions=texts)


def test_thousands_of_steps_a_second():
    env, dice, steps = text_game(), random.Random(0), 0
    tasks = env.tasks("train")[:100]
    start = time.process_time()
    for task in tasks:
        state = State(game_of(env, task))
        for _ in range(30):
            rules.do(state, dice.choice(rules.commands(state)))
            steps += 1
    assert steps / (time.process_time() - start) > 3000
