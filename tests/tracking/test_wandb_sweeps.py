"""Sweeps that W&B's own agent runs: its words are read, its trials continue where they were."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from pathlib import Path

import pytest
import yaml
from running import last_step, numbers, wait_until
from wandb_files import contents

from selfdistill_cli.cli import train
from selfdistill_cli.cli.arguments import parse
from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import UserError

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "launch/sweeps").glob("*.yaml"))
SWEEP, RUN_ID = "swp12345", "trial789"


@pytest.fixture(autouse=True)
def _trial(monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_SWEEP_ID", SWEEP)
    monkeypatch.setenv("WANDB_RUN_ID", RUN_ID)  # put back when the agent has changed it
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", "")
    monkeypatch.delenv("WANDB_SWEEP_PARAM_PATH")
    monkeypatch.chdir(tmp_path)


def drawn(parameter, generator):
    """A value that W&B's server could draw."""
    if "value" in parameter:
        return parameter["value"]
    if "values" in parameter:
        return generator.choice(parameter["values"])
    low, high = parameter["min"], parameter["max"]
    if parameter["distribution"] == "int_uniform":
        return generator.randint(low, high)
    assert parameter["distribution"] in ("uniform", "log_uniform_values")
    return generator.uniform(low, high)


def agent_words(sweep, values):
    """The command line that the installed agent builds for a trial."""
    from wandb.sdk.launch.sweeps import utils

    args = {key: {"value": value} for key, value in values.items()}
    parts = utils.create_sweep_command_args({"args": args}) | {"program": [sweep["program"]]}
    words: list[str] = []
    for chunk in utils.create_sweep_command(list(sweep["command"])):
        is_macro = chunk.startswith("${") and chunk.endswith("}")
        words += parts[chunk[2:-1]] if is_macro else [chunk]
    return words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_sweep_gives_commands_that_are_read(file):
    sweep = yaml.safe_load(file.read_text())
    assert sweep["metric"] == {"name": "eval/success", "goal": "maximize"}
    generator = random.Random(0)
    for _ in range(2):
        values = {key: drawn(p, generator) for key, p in sweep["parameters"].items()}
        program, command, *words = agent_words(sweep, values)
        assert (program, command) == ("selfdistill", "train")
        composed = compose(parse(words).words)
        rules.check(composed.settings)
        container = composed.container
        assert container["tracker"]["mode"] == "online"
        for key, value in values.items():
            if "." in key or key == "seed":
                node = container
                for name in key.split("."):
                    node = node[name]
                assert node == value
        for key in {"method", "method/credit"} & set(values):
            assert composed.choices[key] == values[key]


def test_every_kind_of_value_arrives():
    sweep = {"program": "selfdistill", "command": ["${program}", "train", "${args_no_hyphens}"]}
    values = {
        "optim.lr": 1e-05,
        "method.drop_flat_groups": True,
        "run.stop_after": None,
        "tracker.tags": ["a", "two words"],
        "tracker.notes": "two words",
        "eval.num_tasks": 7,
        "env.sandbox": "process",
    }
    container = compose(parse(agent_words(sweep, values)[2:]).words).container
    assert container["optim"]["lr"] == 1e-05
    assert container["method"]["drop_flat_groups"] is True
    assert container["run"]["stop_after"] is None
    assert container["tracker"]["tags"] == ["a", "two words"]
    assert container["tracker"]["notes"] == "two words"
    assert container["eval"]["num_tasks"] == 7
    assert container["env"]["sandbox"]["level"] == "process"


def test_the_name_carries_the_id_and_several_runs_are_refused(monkeypatch):
    assert compose(["seed=3"]).settings.run.name.endswith(f"-{RUN_ID}")
    assert compose(["run.name=tune"]).settings.run.name == f"tune-{RUN_ID}"
    begun = Path("runs") / f"other-{RUN_ID}"
    begun.mkdir(parents=True)
    (begun / "config.yaml").touch()
    assert compose(["run.name=tune"]).settings.run.name == begun.name
    with pytest.raises(UserError, match="leave -m out"):
        train.main(["-m", "seed=0,1"])
    monkeypatch.delenv("WANDB_SWEEP_ID")
    assert compose(["run.name=tune"]).settings.run.name == "tune"


@pytest.fixture
def agent(tmp_path):
    """The installed agent, without a server: what it does with a trial it was given."""
    from wandb.wandb_agent import Agent

    program = tmp_path / "selfdistill"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    program.write_text(
        f'#!/bin/sh\nexec env PYTHONPATH="{path}" OMP_NUM_THREADS=1 {sys.executable} '
        '-m selfdistill_cli "$@"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    made = Agent(None, None, sweep_id=SWEEP)
    made._sweep_command = ["${program}", "train", "${args_no_hyphens}"]
    yield made
    for process in made._run_processes.values():
        if process.poll() is None:
            process.kill()


def start(agent, tmp_path):
    values = {
        "method": "grpo", "run.max_steps": 24, "run.num_threads": 1, "batch.tasks_per_step": 2,
        "method.group_size": 2, "eval.every": 12, "eval.num_tasks": 4, "checkpoint.every": 500,
        "eval.samples_per_task": 1, "env.sandbox.workers": 1, "optim.lr": 1e-05,
    }  # fmt: skip
    command = {
        "type": "run", "run_id": RUN_ID, "program": str(tmp_path / "selfdistill"),
        "args": {key: {"value": value} for key, value in values.items()},
    }  # fmt: skip
    response = agent._process_command(command)
    assert "exception" not in response, response
    return agent._run_processes[RUN_ID]


@pytest.mark.slow
def test_a_trial_that_was_stopped_continues_under_its_id(agent, tmp_path):
    process = start(agent, tmp_path)
    wait_until(process._popen, lambda: any(last_step(p) >= 2 for p in Path("runs").glob("*")))
    (folder,) = Path("runs").glob("*")
    assert folder.name.endswith(f"-{RUN_ID}")
    agent._process_command({"type": "stop", "run_id": RUN_ID})
    assert process.wait(100) == 75
    stopped = last_step(folder)
    assert 2 <= stopped < 24
    assert json.loads((folder / "run.json").read_text())["wandb_id"] == RUN_ID
    assert start(agent, tmp_path).wait(200) == 0
    assert list(Path("runs").glob("*/config.yaml")) == [folder / "config.yaml"]
    assert [line["step"] for line in numbers(folder)] == list(range(25))
    first, second = map(contents, sorted(folder.glob("wandb/offline-run-*/run-*.wandb")))
    assert [row["step"] for row in first["history"]] == list(range(stopped + 1))
    assert [row["step"] for row in second["history"]] == list(range(stopped + 1, 25))
    assert {"eval/success"} <= set(first["history"][0])
    for data in (first, second):
        assert data["run"].run_id == RUN_ID
        assert data["run"].run_group == SWEEP
        assert data["run"].sweep_id == SWEEP
        assert data["config"]["optim"]["lr"] == 1e-05
