"""Composing: what is typed wins, mistakes are named, values know where they came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from selfdistill_cli.config import catalog
from selfdistill_cli.config.compose import compose
from selfdistill_cli.config.resolved import load_resolved
from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.training.settings import TrainSettings


def message(*words: str, config_dir: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(words, None if config_dir is None else str(config_dir))
    return str(caught.value)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A configuration folder of a user, with a module beside it."""
    (tmp_path / "my_reward.py").write_text(
        "from dataclasses import dataclass\n"
        "from selfdistill_cli.core.settings import Settings\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class LengthSettings(Settings):\n"
        "    target: int\n"
    )
    folder = tmp_path / "settings"
    for group in ("reward", "method", "experiment"):
        (folder / group).mkdir(parents=True)
    (folder / "reward/length.yaml").write_text("_target_: my_reward.LengthSettings\ntarget: 20\n")
    (folder / "method/mine.yaml").write_text(
        "defaults: [gear, _self_]\nname: mine\ncredit: {temprature: 2.0}\n"
    )
    (folder / "experiment/long.yaml").write_text(
        "# @package _global_\ndefaults: [override /method: ppo, _self_]\nrun: {max_steps: 500}\n"
    )
    return folder


def test_the_defaults_are_complete() -> None:
    composed = compose([])
    assert isinstance(composed.settings, TrainSettings)
    chosen = {name: composed.choices[name] for name in ("policy", "env", "method", "teacher")}
    assert chosen == {"policy": "tiny", "env": "code", "method": "gear", "teacher": "none"}
    assert composed.container["zero"]["_target_"].endswith("TorchEngineSettings")


@pytest.mark.parametrize("method", catalog.options([catalog.shipped_dir()], "method"))
def test_every_method_composes_and_is_checked(method: str) -> None:
    assert compose([f"method={method}"]).settings.method.name == method  # type: ignore[attr-defined]


@pytest.mark.parametrize("group", ["experiment", "debug", "teacher", "resume", "tracker", "optim"])
def test_every_option_composes_and_is_checked(group: str) -> None:
    asked = {  # have no default
        "heuristic": ["teacher.function=math:sqrt"],
        "vllm_server": ["teacher.url=http://host:8001"],
    }
    full_size = ("tools_gear_paper", "search_sspo")  # a model is the user's to name
    asked |= {name: ["policy.path=."] for name in full_size}
    for option in catalog.options([catalog.shipped_dir()], group):
        words = [f"{group}={option}", *asked.get(option, [])]
        words += ["policy.path=DIR"] if group == "experiment" else []  # some name a model to bring
        assert compose(words).choices[group] == option


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["method=geer"],
            "method: there is no option 'geer'; did you mean 'gear'? (options: a2c,",
        ),
        (["+method=geer"], "method: there is no option 'geer'; did you mean 'gear'?"),
        (
            ["methd=gear"],
            "methd: there is no such group or setting; did you mean 'method'? (known:",
        ),
        (
            ["optim.lrr=1"],
            "optim.lrr: optim has no setting 'lrr'; did you mean 'lr'? (known: lr, value_lr,",
        ),
        (
            ["method.credit.temprature=3"],
            "method.credit.temprature: method.credit has no setting 'temprature'; did you mean "
            "'temperature'?",
        ),
        (["policy.path.x=1"], "policy.path.x: policy.path is null here and has no settings of its"),
        (["+typo=3"], "typo: TrainSettings has no such setting (known: seed, run,"),
        (
            ["+method.credit.temprature=3"],
            "method.credit.temprature: ValueGapSettings has no such setting; did you mean "
            "'temperature'? (known: form, temperature,",
        ),
        (["++optim.lrr=1"], "optim.lrr: OptimSettings has no such setting; did you mean 'lr'?"),
        (["optim.lr=abc"], "optim.lr: got 'abc' (str), expected a number (float)"),
        (["seed=true"], "seed: got True (bool), expected a whole number (int)"),
        (["method.advantage=gae"], "method.advantage: is a group; choose it with a slash: method/"),
        (["method=gear,grpo"], "method: 'method=gear,grpo' names several options; add -m to run"),
        (["gear"], "'gear' cannot be read; expected KEY=VALUE"),
        (["eval.hints=[answer"], "'eval.hints=[answer' cannot be read; expected KEY=VALUE, quoted"),
        (
            ["optim.lr=${optim.rate}"],
            "optim.lr: cannot be resolved: Interpolation key 'optim.rate' not found; expected",
        ),
        *(
            (["optim." + word], f"optim.{word.partition('=')[0]}: got")
            for word in (
                "lr=-1",
                "lr=nan",
                "lr=inf",
                "value_lr=-1",
                "beta1=1",
                "beta2=2",
                "epsilon=0",
                "weight_decay=-1",
                "max_grad_norm=0",
                "warmup_steps=-1",
                "min_lr_ratio=2",
            )
        ),
        (["optim.lr=inf"], "optim.lr: got inf (float), expected finite numbers"),
        (["+method.source.hints={answer: .inf}", "method=sft"], "method.source.hints"),
        (["run.max_steps=0"], "run.max_steps: got 0, expected a number from 1 to 1e+09"),
        (["run.max_steps=99999999999"], "run.max_steps: got 99999999999, expected a number"),
        (["run.num_threads=100000"], "run.num_threads: got 100000, expected a number from 1"),
        (["method.credit.clip_low=3"], "method.credit.clip_high: got 2.0, expected at least 3"),
        *(
            (["env.sandbox." + word], f"env.sandbox.{word.partition('=')[0]}: got")
            for word in (
                "workers=0",
                "time_limit_s=0",
                "memory_mb=1",
                "max_output_kb=0",
                "max_file_mb=0",
            )
        ),
        (["env.validation_fraction=2"], "env.validation_fraction: got 2.0, expected a number"),
        (
            ["env.validation_fraction=0.7", "env.test_fraction=0.7"],
            "env.test_fraction: got 0.7, expected at most 0.3",
        ),
        (["optim=null"], "optim: got null, expected one of the options adamw, adamw_8bit"),
        (["method=null"], "method: got null, expected one of the options"),
        (["teacher=null"], "teacher: got null, expected one of the options"),
        (["method/credit=null"], "method/credit: got null, expected one of the options"),
        (["guards=null"], "guards: got null"),
        (["debug=null"], "debug: got null, expected one of the options fast; for the default"),
        (["optim=3"], "optim: there is no option '3'"),
        (["optim={a: 1}"], "optim: there is no option"),
        (["=3"], "'=3' has no key; expected KEY=VALUE"),
        (
            ["policy=hf"],
            "policy.path: has no default; type policy.path=VALUE, expected text (str).",
        ),
    ],
)
def test_a_mistake_that_was_typed_is_named(words: list[str], expected: str) -> None:
    assert message(*words).startswith(expected)


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("env.sandbox=process", "process"),
        ("env.sandbox=landlock", "landlock"),
        ("env.sandbox.level=bubblewrap", "bubblewrap"),
        ("env.sandbox={level: landlock}", "landlock"),
        ("env.sandbox.workers=3", "auto"),
    ],
)
def test_a_sandbox_is_chosen_by_its_level(word: str, level: str) -> None:
    composed = compose([word])
    assert composed.container["env"]["sandbox"]["level"] == level
    if level != "auto":
        assert composed.origins["env.sandbox.level"] == "command line"


@pytest.mark.parametrize("word", ["proces", "", "null", "[auto]"])
def test_an_unknown_level_of_the_sandbox_is_named(word: str) -> None:
    text = message(f"env.sandbox={word}")
    assert text.startswith("env.sandbox.level: got ")
    assert "expected one of 'auto', 'bubblewrap', 'landlock', 'process'" in text
    assert ("did you mean 'process'" in text) == (word == "proces")


def test_mistakes_in_two_groups_are_reported_together() -> None:
    assert message("method=geer", "env=cod").count("did you mean") == 2


def test_a_typo_in_a_file_names_key_and_file(own: Path) -> None:
    said = message("method=mine", config_dir=own)
    assert said.startswith("method.credit.temprature: ValueGapSettings has no such setting")
    assert said.endswith(f"[{own}/method/mine.yaml]")


def test_a_folder_of_the_user_adds_options_and_modules(own: Path) -> None:
    composed = compose(["reward=length", "experiment=long"], str(own))
    assert composed.container["reward"] == {"_target_": "my_reward.LengthSettings", "target": 20}
    assert composed.origins["reward.target"] == f"{own}/reward/length.yaml"
    assert composed.settings.run.max_steps == 500
    assert composed.choices["method"] == "ppo"
    assert compose(["experiment=long", "method=grpo"], str(own)).choices["method"] == "grpo"
    assert "did you mean 'length'" in message("reward=lenght", config_dir=own)


def test_a_missing_folder_of_the_user_is_an_error(tmp_path: Path) -> None:
    said = message(config_dir=tmp_path / "none")
    assert said.startswith(f"--config-dir: {tmp_path}/none is not a folder")


def test_the_last_of_repeated_choices_wins() -> None:
    composed = compose(["method=gear", "method=grpo", "seed=1", "seed=2"])
    assert composed.choices["method"] == "grpo"
    assert composed.settings.seed == 2


def test_references_are_resolved() -> None:
    assert compose(["optim.value_lr=${optim.lr}"]).container["optim"]["value_lr"] == 1.5e-4


def test_every_value_knows_where_it_came_from() -> None:
    words = ["experiment=quick", "optim.lr=1", "method=gear", "method.credit.ramp=0.5"]
    origins = compose(words).origins
    expected = {
        "seed": "conf/train.yaml",
        "run.max_steps": "conf/experiment/quick.yaml",
        "run.root": "conf/train.yaml",
        "optim.lr": "command line",
        "optim.beta1": "conf/optim/adamw.yaml",
        "method.group_size": "conf/method/gear.yaml",
        "method.credit.gamma": "conf/method/credit/value_gap.yaml",
        "method.credit.ramp": "command line",
        "reward.mode": "conf/reward/unit_tests.yaml",
    }
    assert {key: origins[key] for key in expected} == expected
    assert all(origins.values())


def test_an_inherited_file_is_told_apart_from_the_one_that_inherits() -> None:
    origins = compose(["optim=adamw_llm"]).origins
    assert origins["optim.lr"] == "conf/optim/adamw_llm.yaml"
    assert origins["optim.beta1"] == "conf/optim/adamw.yaml"


def test_the_same_configuration_has_the_same_name() -> None:
    name = compose([]).settings.run.name
    assert name is not None
    assert name.startswith("gear-code-s0-")
    same = [
        ["method=gear", "seed=0"],
        ["run.max_steps=7"],
        ["checkpoint.every=3"],
        ["tracker=none"],
        ["optim.weight_decay=0"],
    ]
    assert {compose(words).settings.run.name for words in same} == {name}
    other = [["seed=1"], ["optim.lr=1"], ["method=grpo"], ["batch.epochs=2"]]
    assert len({compose(words).settings.run.name for words in other} | {name}) == 5


def test_a_given_name_is_kept() -> None:
    assert compose(["run.name=mine"]).settings.run.name == "mine"


def test_a_resolved_configuration_is_loaded_without_hydra(tmp_path: Path) -> None:
    composed = compose(["method=ppo", "optim.lr=1e-8"])
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(composed.container, sort_keys=False))
    assert load_resolved(path) == composed.settings


def test_a_resolved_configuration_that_does_not_fit_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with pytest.raises(DataError, match=r"config\.yaml: cannot be read as a configuration"):
        load_resolved(path)
    container = compose([]).container
    container["optim"]["lrr"] = 1
    path.write_text(yaml.safe_dump(container))
    with pytest.raises(
        ConfigError, match=r"config\.yaml does not fit this version(.|\n)*optim.lrr"
    ):
        load_resolved(path)


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        compose([]).settings.seed = 3  # type: ignore[misc]
