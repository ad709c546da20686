"""The command, in this process, on the embedded policy: every choice that first light ships."""

from __future__ import annotations

import json

import pytest
from metric_docs import undocumented
from running import SMALL, numbers
from wandb_files import contents

from selfdistill_cli.cli.main import main

QUICK = (*SMALL, "run.max_steps=2", "eval.every=2", "run.name=r", "run.trajectories_every=1")


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Run `selfdistill train` in a new folder; return its numbers and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, expect: int = 0):
        code = main(["train", *QUICK, *words])
        said = capsys.readouterr()
        text = said.out + said.err
        assert code == expect, text
        directory = tmp_path / "runs/r"
        return (numbers(directory) if directory.is_dir() else []), text

    return call


@pytest.mark.parametrize(
    "words",
    [
        ["method=gear", "method/advantage=rank"],
        ["method=gear", "method/advantage=pairwise", "method.drop_flat_groups=true"],
        ["method=gear", "method.credit.form=sigmoid", "method.credit.v_orig=zero"],
        ["method=gear_ppo"],
        ["method=grpo", "method/advantage=leave_one_out", "method.old_logprobs=recomputed"],
        ["method=grpo", "method.terms.policy_gradient.loss_type=gspo_token", "batch.epochs=2"],
        ["method=grpo", "method.terms.policy_gradient.loss_type=dr_grpo", "batch.mini_batches=2"],
        ["method=ppo", "method.terms.value.detach=true", "batch.epochs=2", "batch.mini_batches=2"],
        ["method=grpo", "method.terms.reference_kl.coefficient=0.1"],
        ["method=grpo", "method.terms.entropy.coefficient=0.01", "rollout.temperature=0.8"],
    ],
    ids=lambda words: "_".join(words).replace("method.", ""),
)
def test_choices_run_and_log_documented_numbers(train, words, request):
    lines, _ = train(*words)
    assert [line["step"] for line in lines] == [0, 1, 2]
    keys = {key for line in lines for key in line if key != "step"}
    docs = (request.config.rootpath / "docs/metrics.md").read_text()
    assert undocumented(keys, docs) == []
    assert lines[1]["policy/grad_norm"] > 0


def test_first_update_starts_at_ratio_one(train):
    lines, _ = train("method=grpo", "run.max_steps=1")
    assert lines[1]["policy/approx_kl"] < 1e-9
    assert lines[1]["policy/clip_fraction"] == 0


def test_frozen_teacher_starts_at_zero_divergence_and_a_hinted_one_does_not(train, tmp_path):
    lines, _ = train("teacher=frozen")
    assert lines[1]["teacher/kl"] < 1e-9
    assert lines[2]["teacher/kl"] > 0
    lines, _ = train("teacher=hinted", "run.name=r", "resume.allow=['teacher*']", "run.root=other")
    hinted = numbers(tmp_path / "other/r")
    assert hinted[1]["teacher/kl"] > 0.01


def test_reference_divergence_grows_from_zero(train):
    lines, _ = train("method=grpo", "method.terms.reference_kl.coefficient=0.1", "optim.lr=1e-3")
    assert abs(lines[1]["loss/reference_kl"]) < 1e-9
    assert lines[2]["loss/reference_kl"] > 1e-7


def test_trajectories_can_be_read_with_their_credit(train, tmp_path):
    train("method=gear", "run.max_steps=3", "method.credit.ramp=1.0")
    path = tmp_path / "runs/r/trajectories/step_000003.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 16
    assert "Write f(xs)" in json.dumps(rows[0])
    assert "def f(xs)" in json.dumps(rows)


def test_wandb_gets_every_line_offline(train, tmp_path):
    train("tracker=wandb")
    (path,) = (tmp_path / "runs/r/wandb").glob("**/run-*.wandb")
    found = contents(path)
    assert [row["step"] for row in found["history"]] == [0, 1, 2]
    assert found["history"][2]["reward/mean"] == numbers(tmp_path / "runs/r")[2]["reward/mean"]
    assert found["config"]["method"]["name"] == "gear"


def test_supervised_learning_on_hints_lowers_the_loss(train):
    lines, _ = train(
        "method=sft", "method.group_size=1", "method.source.hints.answer=0.5",
        "method.source.hints.feedback=0.25", "batch.tasks_per_step=8",
        "run.max_steps=6", "optim.lr=1e-3", "policy.from_scratch=true",
    )  # fmt: skip
    assert lines[-1]["loss/cross_entropy"] < lines[1]["loss/cross_entropy"]


def test_own_problems(train, tmp_path):
    problem = {
        "task_id": "mine/{}", "prompt": 'def add(a, b):\n    """Return a + b."""\n',
        "entry_point": "add", "canonical_solution": "    return a + b\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    }  # fmt: skip
    lines = [
        json.dumps({**problem, "task_id": f"mine/{i}", "split": split})
        for i, split in enumerate(["train", "train", "validation"])
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines) + "\n")
    found, _ = train("env.data=mine.jsonl", "method=grpo", "run.max_steps=1", "eval.every=1")
    assert found[1]["reward/mean"] == 0  # the embedded policy knows f(xs) only
    assert found[1]["rollout/flat_group_fraction"] == 1
    (tmp_path / "mine.jsonl").write_text(lines[0] + '\n{"task_id": "b"}\n')
    _, text = train("env.data=mine.jsonl", "run.root=other", expect=2)
    assert "mine.jsonl" in text
    assert "line 2" in text
    assert "prompt" in text


def test_evaluation_of_a_run(train, tmp_path, capsys):
    train("method=grpo")
    assert main(["eval", "r", "hints=[answer]", "num_tasks=4"]) == 0
    out = capsys.readouterr().out
    assert "success " in out
    assert "over plain" in out
    assert main(["eval", "r", "checkpoint=start", "samples=2", "num_tasks=4"]) == 0
    assert main(["eval", "nobody"]) == 2
    assert "runs there: r" in capsys.readouterr().err
    assert main(["eval", "r", "checkpoint=7"]) == 2
    assert "one of the steps" in capsys.readouterr().err


def test_evaluation_of_a_run_on_other_tasks(train, tmp_path, capsys):
    train("method=grpo", "run.max_steps=1")
    call = [{"args": [[3, 4]], "expected": 7}]
    lines = [
        {"task_id": f"t{i}", "prompt": "Write f(xs): take every number, return the sum.",
         "entry_point": "f", "calls": call}
        for i in range(5)
    ]  # fmt: skip
    (tmp_path / "other.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["eval", "r", "data=other.jsonl", "samples=2"]) == 0
    assert "panel        5 tasks" in capsys.readouterr().out
    written = tmp_path / "runs/r/evaluations/step_000001_other_test_5x2.json"
    assert json.loads(written.read_text())["task_ids"] == [f"t{i}" for i in range(5)]
    (tmp_path / "long.jsonl").write_text(json.dumps({**lines[0], "prompt": "Write f(xs). " * 99}))
    assert main(["eval", "r", "data=long.jsonl"]) == 2
    assert "rollout.max_context_tokens" in (said := capsys.readouterr().err)
    assert "eval takes them as they are: start a new run" in said
    assert main(["eval", "r", "data=humanevl"]) == 2
    assert "did you mean 'humaneval'?" in capsys.readouterr().err


def test_several_attempts_are_logged(train):
    lines, _ = train("method=gear", "env.attempts=2", "rollout.max_turns=2", "run.max_steps=1")
    line = lines[1]
    assert 1 <= line["reward/attempts"] <= 2
    assert line["reward/first_attempt"] <= line["reward/success"]


def own_tasks(path, expected=3):
    calls = [{"args": [1, 2], "expected": expected}]
    lines = [
        {"task_id": f"t{i}", "prompt": "Add.", "entry_point": "add", "calls": calls, "split": split}
        for i, split in enumerate(["train", "train", "validation"])
    ]
    path.write_text("\n".join(map(json.dumps, lines)))


def test_data_that_changed_between_two_attempts_is_noticed(train, tmp_path):
    words = ("env.data=own.jsonl", "method=grpo", "eval.every=1")
    own_tasks(tmp_path / "own.jsonl")
    train(*words, "run.max_steps=1")
    before = json.loads((tmp_path / "runs/r/evaluations/step_000000.json").read_text())["panel"]
    own_tasks(tmp_path / "own.jsonl", expected=4)
    _, text = train(*words, expect=2)
    assert "env.data: content changed since runs/r was started" in text
    _, text = train(*words, "resume.allow=[env.data]")
    after = json.loads((tmp_path / "runs/r/evaluations/step_000002.json").read_text())["panel"]
    assert before != after
    assert "change " not in text.partition("results:")[0]  # two panels are not a pair


def test_data_is_read_before_the_policy(train, tmp_path):
    (tmp_path / "own.jsonl").write_text("{}")
    words = ("env.data=own.jsonl", "policy=hf", "policy.path=.", "run.root=other")
    _, text = train(*words, expect=2)
    assert "own.jsonl, line 1" in text
    own_tasks(tmp_path / "own.jsonl")
    _, text = train(*words, expect=2)
    assert "policy.path=.: no config.json" in text


def test_a_best_metric_that_nobody_logs_is_told(train):
    _, text = train("checkpoint.best_metric=eval/sucess", "run.max_steps=1")
    assert "there is no metric 'eval/sucess'" in text
    assert "did you mean 'eval/success'" in text
    _, text = train("checkpoint.best_metric=reward/tests", "run.max_steps=1", "run.root=other")
    assert "there is no metric" not in text
