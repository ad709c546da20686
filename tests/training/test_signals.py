"""Teachers that are not policies: a critic's values and a user's function over candidates."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from running import run
from small_policies import FAMILIES, small_policy

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.successors import successor_values
from selfdistill_cli.training.signals import find_function

WORDS = [
    "method=step_kd", "debug=fast", "run.max_steps=2", "eval.every=0",
    "method.terms.distill.support=student_topk", "method.terms.distill.topk=8",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_gives_the_values_of_every_continued_sequence(family: str) -> None:
    policy = small_policy(family)
    torch.manual_seed(0)
    torch.nn.init.normal_(policy.add_value_head().weight)
    tokens = np.arange(5, 17)
    positions = np.array([4, 7, 11])
    candidates = torch.tensor([[5, 9], [40, 41], [3, 100]])
    found = successor_values(policy, tokens, positions, candidates)
    for row, position in enumerate(positions):
        for column in range(2):
            ids = torch.tensor([[*tokens[:position], int(candidates[row, column])]])
            with torch.no_grad():
                hidden = policy.hidden_states(ids, None)[0, -1]
                expected = policy.value_head(hidden.float())
            assert float(found[row, column]) == pytest.approx(float(expected), abs=2e-4)


def test_a_function_is_found_or_named() -> None:
    assert find_function("math:sqrt", "teacher.function")(4.0) == 2.0
    with pytest.raises(ConfigError, match=r"teacher.function: got 'math:sqt', which cannot be"):
        find_function("math:sqt", "teacher.function")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [len(c) for c in candidates]", None),
        ("return [1.0]", "returned [1.0]; expected 8 finite numbers"),
        ("raise KeyError('x')", "teacher.function=rating:score: raised KeyError: 'x'"),
    ],
)
def test_a_users_function_teaches(tmp_path, body: str, expected: str | None) -> None:
    (tmp_path / "rating.py").write_text(f"def score(task, before, candidates):\n    {body}\n")
    words = ["train", *WORDS, "teacher=heuristic", "teacher.function=rating:score", "run.name=r"]
    said = run(tmp_path, *words, expect=0 if expected is None else 1)
    assert "Traceback" not in said
    if expected is not None:
        assert expected in said
        return
    lines = (tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["teacher/kl"] > 0.001 for line in lines)
