"""Every part under conf/ keeps its protocol's promises; a new file there is checked too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from small_classifier import small_classifier

from selfdistill_cli import testing
from selfdistill_cli.config import catalog
from selfdistill_cli.config.compose import compose
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.huggingface import read_template
from selfdistill_cli.training.world import World

FOLDERS = [catalog.shipped_dir()]
ENV_OUTCOMES = (
    {"program": "x", "passed": 2, "total": 2, "compiled": True},
    {"program": "x", "passed": 1, "total": 3, "compiled": True},
    {"program": "", "passed": 0, "total": 3, "compiled": False},
)
"""What env=code says, which the shipped rewards score."""

CHECKED: set[str] = set()
"""Groups and settings that have passed, so that a recipe's parts are checked once."""


def once(key: str, run: Callable[[], None]) -> None:
    """Run a check, unless it has passed for an equal key."""
    if key not in CHECKED:
        run()
        CHECKED.add(key)


def check(group: str, method: Any) -> None:
    """Run the suite of one group on a recipe's part, unless equal settings have passed it."""
    settings = getattr(method, group)
    once(f"{group} {settings}", lambda: SUITES[group](settings))


def check_advantage(settings: Any) -> None:
    ranks = getattr(settings, "ranks_siblings", False)
    testing.check_advantage(settings.build, compares_siblings=ranks)


def check_sync(settings: Any) -> None:
    testing.check_sync(settings.build, keeps_copy=settings.keeps_copy)


def check_terms(terms: Any) -> None:
    for name, settings in terms.items():
        once(f"{name} {settings}", lambda n=name, s=settings: check_term(n, s))


def check_term(name: str, settings: Any) -> None:
    testing.check_term(lambda: settings.build(name), name=name)


SUITES: dict[str, Callable[[Any], None]] = {
    "source": lambda settings: testing.check_source(settings.build),
    "advantage": check_advantage,
    "credit": lambda settings: testing.check_credit(settings.build),
    "terms": check_terms,
    "sync": check_sync,
}
PARTS = [(g, option) for g in SUITES for option in catalog.options(FOLDERS, f"method/{g}")]


def test_every_group_of_parts_has_a_suite() -> None:
    found = {group for group in catalog.groups(FOLDERS) if group.startswith("method/")}
    assert found == {f"method/{name}" for name in (*SUITES, "coefficient")}


@pytest.mark.parametrize(("group", "option"), PARTS)
def test_part(group: str, option: str) -> None:
    method: Any = compose([f"method/{group}={option}"]).settings.method
    check(group, method)


@pytest.mark.parametrize("option", catalog.options(FOLDERS, "method/coefficient"))
def test_coefficient(option: str) -> None:
    words = ["method=gear", f"method/coefficient@method.credit.ramp={option}"]
    method: Any = compose(words).settings.method
    testing.check_coefficient(method.credit.ramp.build)


@pytest.mark.parametrize("name", catalog.options(FOLDERS, "method"))
def test_recipe(name: str) -> None:
    """Its parts as the recipe sets them, which a group's own files do not show."""
    method: Any = compose([f"method={name}"]).settings.method
    for group in SUITES:
        check(group, method)


ENV_WORDS = {
    "code": ["env.sandbox.workers=1"],
    "gymnasium": ["env.id=guessing:make"],
    "verifiers": ["env.name=verifiers_samples"],
}


@pytest.mark.parametrize("option", catalog.options(FOLDERS, "env"))
def test_env(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "envs"))  # where those modules are
    if option == "verifiers":
        pytest.importorskip("verifiers", reason="needs verifiers (docs/envs/verifiers.md)")
    env: Any = compose([f"env={option}", *ENV_WORDS.get(option, [])]).settings.env
    testing.check_env(env.build)


@pytest.fixture(scope="module")
def reward_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the rewards read that read a file or a folder."""
    folder = tmp_path_factory.mktemp("rewards")
    small_classifier(folder / "model", num_labels=2)
    rated = folder / "rated.jsonl"
    rated.write_text('{"task": "t", "program": "x", "score": 0.5}\n')
    return {"learned": folder / "model", "recorded": rated}


@pytest.mark.parametrize("option", catalog.options(FOLDERS, "reward"))
def test_reward(option: str, reward_paths: dict[str, Path]) -> None:
    path = reward_paths.get(option)
    words = [] if path is None else [f"reward.components.{option}.path={path}"]
    reward = compose([f"reward={option}", *words]).settings.reward
    testing.check_reward(reward.build, outcomes=ENV_OUTCOMES)


@pytest.mark.parametrize("option", catalog.options(FOLDERS, "reward/component"))
def test_normalized_component(option: str, reward_paths: dict[str, Path]) -> None:
    key = "reward.components.one"
    path = reward_paths.get(option)
    words = [f"+reward/component@{key}={option}", f"{key}.normalize=true"]
    words += [] if path is None else [f"{key}.path={path}"]
    others = [f"~reward.components.{name}" for name in ("tests", "syntax", "lint", "overlong")]
    reward = compose(["reward=composite", *others, *words]).settings.reward
    testing.check_reward(reward.build, outcomes=ENV_OUTCOMES)


@pytest.mark.parametrize("option", catalog.options(FOLDERS, "rollout"))
def test_rollout_engine(option: str) -> None:
    settings: Any = compose([f"rollout={option}"]).settings
    policy = settings.policy.build()
    prompts = [policy.chat.prompt_ids([{"role": "user", "content": text}]) for text in "aba"]
    with contextlib.ExitStack() as stack:
        ranks = (World(),) if getattr(settings.rollout, "knows_ranks", False) else ()
        engine = settings.rollout
        if hasattr(engine, "url"):
            server = stack.enter_context(serving(policy))
            engine = replace(engine, url=server.url, wait_s=1.0)

        def make() -> Any:
            rollout = engine.build(policy, *ranks)
            rollout.load_weights(policy.weights(), version=0)
            return rollout

        testing.check_rollout_engine(make, prompts=prompts, weights=policy.weights)


@pytest.mark.parametrize("template", [None, "plain"])
@pytest.mark.parametrize("words", [["policy=tiny"], ["policy=tiny_agent", "env=math"]])
def test_chat(words: list[str], template: str | None) -> None:
    settings: Any = compose(words).settings
    tokenizer = settings.policy.build().chat.tokenizer
    if template is not None:
        tokenizer.chat_template = read_template(template)
    testing.check_chat(lambda: TemplateChat(tokenizer))
