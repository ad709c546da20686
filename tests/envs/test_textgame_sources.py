"""Games of optional packages; each test runs where the package is installed."""

from __future__ import annotations

import importlib.util

import pytest
from text_games import play, text_game

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.envs.packages import GEM, TEXTARENA, TEXTWORLD
from selfdistill_cli.testing import check_env

FEW = {"train_tasks": 4, "held_out_tasks": 1}
INSTALL = {package.module: package.install for package in (TEXTWORLD, TEXTARENA, GEM)}


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}: {INSTALL[package]}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An environment of TextWorld games that are made once for this module."""
    folder = tmp_path_factory.mktemp("games")
    size = {"rooms": 3, "containers": 1, "objects": 1, "quest": 2}
    return lambda **more: text_game(size, source="textworld", cache=str(folder), **FEW, **more)


@needs("textworld")
def test_textworlds_plan_solves_its_games_and_files_are_made_once(made):
    env = made()
    tasks = env.tasks("train")
    files = sorted((p, p.stat().st_mtime_ns) for p in env._domain._folder.rglob("game.z8"))
    assert len(files) == 4
    for task in tasks:
        outcome = play(env, task, env.expert(task, 0)).outcome
        assert (outcome["success"], outcome["progress"], outcome["invalid_actions"]) == (1, 1, 0)
        answer = env.hint("answer", task, (), (), None, 0).text
        assert answer.count("do ") == outcome["steps"]
    again = made(format="choices")
    assert play(again, tasks[0], again.expert(tasks[0], 0)).outcome["success"] == 1.0
    assert files == sorted((p, p.stat().st_mtime_ns) for p in env._domain._folder.rglob("game.z8"))


@needs("textworld")
def test_textworld_keeps_the_contract(made):
    check_env(lambda: made(max_steps=3), actions=("", "<action>do look</action>"), num_tasks=2)


ARENA = ["GuessTheNumber-v0", "TowerOfHanoi-v0", "FrozenLake-v0", "Sudoku-v0"]
GEM = ["game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy", "game:Mastermind-v0-easy"]


@needs("textarena")
@pytest.mark.parametrize("game", ARENA)
def test_textarena_keeps_the_contract(game):
    texts = ("", "<action>do [1]</action>", "<action>do [A C]</action>")
    check_env(lambda: text_game(source=f"textarena:{game}", max_steps=4, **FEW), actions=texts)


@needs("textarena")
def test_a_won_game_of_textarena_is_solved():
    env = text_game(source="textarena:GuessTheNumber-v0", **FEW)
    task = env.tasks("train")[0]
    outcomes = [play(env, task, [f"<action>do [{n}]</action>"] * 12).outcome for n in range(1, 21)]
    assert sorted(o["success"] for o in outcomes) == [0.0] * 19 + [1.0]


@needs("textarena")
@pytest.mark.parametrize(
    ("game", "said"),
    [("GuessTheNumbr-v0", "did you mean"), ("Wordle-v0", "cannot"), ("TicTacToe-v0", "one player")],
)
def test_games_that_cannot_be_played_are_told(game, said):
    with pytest.raises(ConfigError, match=said):
        text_game(source=f"textarena:{game}", **FEW).tasks("train")


@needs("gem")
@pytest.mark.parametrize("game", GEM)
def test_gem_keeps_the_contract(game):
    texts = ("", "<action>do \\boxed{1}</action>", "<action>do \\boxed{A C}</action>")
    check_env(lambda: text_game(source=f"gem:{game}", max_steps=4, **FEW), actions=texts)


@needs("gem")
def test_a_won_game_of_gem_is_solved():
    env = text_game(source="gem:game:GuessTheNumber-v0-easy", **FEW)
    task = env.tasks("train")[0]
    outcomes = [play(env, task, [f"<action>do \\boxed{{{n}}}</action>"]).outcome
                for n in range(1, 11)]  # fmt: skip
    assert sorted(o["success"] for o in outcomes) == [0.0] * 9 + [1.0]
    with pytest.raises(ConfigError, match="did you mean"):
        text_game(source="gem:game:GuessTheNumber-v0-esy", **FEW).tasks("train")
