"""Whole runs whose tokens, or whose teacher's log-probabilities, come from a server."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assembled import assembled, environment
from running import numbers
from serving import Server, serving, table

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, ServerError
from selfdistill_cli.core.needs import TopNeed
from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny
from selfdistill_cli.training.loop import take_step, train
from selfdistill_cli.training.served import SMALLEST_TAIL

SHORT = ("batch.tasks_per_step=2", "method.group_size=4", "rollout.max_new_tokens=16",
         "optim.lr=0.01", "optim.warmup_steps=0")  # fmt: skip
CALM = ("rollout.wait_s=1", "rollout.retries=0", "rollout.timeout_s=20")


@pytest.fixture(scope="module")
def policy() -> Any:
    return load_policy(shipped_tiny())


def by_server(server: Server) -> tuple[str, ...]:
    return ("rollout=vllm", f"rollout.url={server.url}", *SHORT, *CALM)


def trained(folder: Path, name: str, *words: str) -> list[dict[str, Any]]:
    """The metrics of a run."""
    with environment(folder, *words) as env, assembled(folder, env, *words, name=name) as run:
        train(run)
    return numbers(folder / name)


def test_a_run_by_a_server_learns_what_a_run_in_the_process_learns(tmp_path, policy) -> None:
    words = ("method=grpo", "run.max_steps=3", "eval.every=2", "eval.num_tasks=2",
             "eval.samples_per_task=1")  # fmt: skip
    own = trained(tmp_path, "own", *words, *SHORT)
    with serving(policy) as server:
        served = trained(tmp_path, "served", *words, *by_server(server))
        assert server.count("/collective_rpc") == 1 + 3  # at the start and after every step
        last = load_policy((tmp_path / "served/checkpoints/latest").resolve() / "policy")
        theirs = dict(server.policy.backbone.state_dict())
    for name, value in last.backbone.state_dict().items():
        assert torch.equal(value, theirs[name]), name
    assert [line.keys() for line in own] == [line.keys() for line in served]
    for mine, other in zip(own, served, strict=True):
        for key in ("reward/mean", "rollout/response_length", "eval/success", "policy/grad_norm"):
            assert (key in other) == (key in mine), key
            assert other.get(key, 0) == pytest.approx(mine.get(key, 0), rel=1e-3, abs=1e-4), key
    gaps = [line["rollout/gap_max"] for line in served if line["step"] > 0]
    assert len(gaps) == 3
    assert max(gaps) < 1e-3
    assert all(0 <= line["rollout/gap_kl"] < 1e-6 for line in served if line["step"] > 0)


def test_parts_that_read_hidden_states_get_them_from_a_scoring_pass(tmp_path, policy) -> None:
    words = ("method=ppo", "run.max_steps=2")
    with serving(policy) as server:
        served = trained(tmp_path, "served", *words, *by_server(server))
    own = trained(tmp_path, "own", *words, *SHORT)
    for mine, other in zip(own, served, strict=True):
        for key in ("loss/value", "policy/grad_norm", "reward/mean"):
            assert other[key] == pytest.approx(mine[key], rel=1e-3, abs=1e-4), key


def test_a_gap_is_measured_and_importance_weights_correct_it(tmp_path, policy) -> None:
    """The server's weights are a little off; what is logged is what a scoring pass says."""
    words = ("method=grpo", "method.old_logprobs=recomputed", "rollout.max_gap=5",
             "method.terms.policy_gradient.sampler_clip=1.05")  # fmt: skip
    with serving(policy) as server:
        server.ignores_weights = True
        with torch.no_grad():
            torch.manual_seed(0)
            for parameter in server.policy.parameters():
                parameter.mul_(1 + 0.02 * torch.randn_like(parameter))
        words = (*words, *by_server(server))
        with environment(tmp_path, *words) as env, assembled(tmp_path, env, *words) as run:
            run.restore()
            judged = []
            whole = run.method.judge
            run.method.judge = lambda groups, step: judged.append(groups) or whole(groups, step)
            take_step(run, 1)
        line = numbers(tmp_path / "r")[-1]
    samples = [sample for group in judged[0] for sample in group.samples]
    pairs = [(s.old_logprobs[s.action_mask], s.sampled_logprobs[s.action_mask]) for s in samples]
    difference = np.concatenate([new - old for new, old in pairs]).astype(np.float64)
    assert line["rollout/gap_mean"] == pytest.approx(abs(difference).mean(), rel=1e-3)
    assert line["rollout/gap_max"] == pytest.approx(abs(difference).max(), rel=1e-3)
    kl = (np.exp(difference) - 1 - difference).mean()
    assert line["rollout/gap_kl"] == pytest.approx(kl, rel=1e-2)
    assert line["rollout/gap_mean"] > 1e-3
    weights = np.minimum(np.exp(difference), 1.05)
    assert line["policy/sampler_weight"] == pytest.approx(weights.mean(), rel=1e-4)
    clipped = (np.exp(difference) >= 1.05).mean()
    assert line["policy/sampler_clipped"] == pytest.approx(clipped, abs=1e-6)


def test_weights_of_one_change_nothing_and_others_scale_the_loss(tmp_path, policy) -> None:
    words = ("method=grpo", "method.old_logprobs=recomputed", "run.max_steps=2", *SHORT)
    plain = trained(tmp_path, "plain", *words)
    clip = "method.terms.policy_gradient.sampler_clip"
    wide = trained(tmp_path, "wide", *words, f"{clip}=2")
    half = trained(tmp_path, "half", *words, f"{clip}=0.5")
    assert wide[0]["policy/grad_norm"] == pytest.approx(plain[0]["policy/grad_norm"], rel=1e-4)
    assert half[0]["policy/grad_norm"] == pytest.approx(plain[0]["policy/grad_norm"] / 2, rel=1e-3)
    assert half[0]["policy/sampler_weight"] == 0.5
    assert half[0]["policy/sampler_clipped"] == 1.0
    assert wide[0]["policy/sampler_clipped"] == 0.0
    with pytest.raises(ConfigError, match="sampler_clip: got 2"):
        rules.check(compose(["method=grpo", f"{clip}=2"]).settings)


def steps_kept(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").glob("step_*"))


def test_a_server_lost_while_sampling_costs_no_finished_step(tmp_path, policy) -> None:
    words = ("method=grpo", "run.max_steps=4", "checkpoint.every=100")
    with serving(policy) as server:
        words = (*words, *by_server(server))
        with environment(tmp_path, *words) as env:
            with assembled(tmp_path, env, *words) as run:
                publish = run.publish

                def stop_after_two(step: int) -> None:
                    publish(step)
                    server.broken += ["503"] * (100 if step == 2 else 0)

                run.publish = stop_after_two
                with pytest.raises(ServerError, match="no answer to /v1/completions"):
                    train(run)
            assert steps_kept(tmp_path / "r") == ["step_000002"]
            server.broken.clear()
            with assembled(tmp_path, env, *words) as run:
                train(run)
    lines = numbers(tmp_path / "r")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    whole = trained(tmp_path, "own", "method=grpo", "run.max_steps=4", *SHORT)
    for mine, other in zip(whole, lines, strict=True):
        assert other["policy/grad_norm"] == pytest.approx(mine["policy/grad_norm"], rel=1e-3)


def test_a_server_lost_while_publishing_costs_no_update(tmp_path, policy) -> None:
    words = ("method=step_kd", "run.max_steps=3", "checkpoint.every=100", "eval.every=1",
             "eval.num_tasks=2", "eval.samples_per_task=1")  # fmt: skip
    with serving(policy) as server:
        words = (*words, *by_server(server))
        with environment(tmp_path, *words) as env:
            with assembled(tmp_path, env, *words) as run:
                send, steps = run.engine.step, []

                def refuse_in_the_second(*args: Any) -> float:
                    steps.append(1)
                    server.refuses_weights = len(steps) == 2
                    return send(*args)

                run.engine.step = refuse_in_the_second
                with pytest.raises(ServerError, match="VLLM_SERVER_DEV_MODE"):
                    train(run)
                updated = copy.deepcopy(run.policy.state_dict())
            kept = load_policy(tmp_path / "r/checkpoints/step_000002/policy")
            for name, value in kept.state_dict().items():
                assert torch.equal(value, updated[name]), name
            server.refuses_weights = False
            with assembled(tmp_path, env, *words) as run:
                train(run)
    lines = numbers(tmp_path / "r")
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert ["eval/success" in line for line in lines] == [True, True, False, True]


TAUGHT = ("method=gkd", "method/source=play", "teacher=vllm_server", "run.max_steps=2",
          "method.terms.distill.temperature=1.0", "method.terms.distill.direction=reverse",
          "teacher.wait_s=1", "teacher.retries=0",
          "teacher.timeout_s=20")  # fmt: skip


@pytest.mark.parametrize("support", ["sampled", "teacher_topk"])
def test_a_served_teacher_teaches_as_one_in_the_process(tmp_path, policy, support: str) -> None:
    """The teacher is another set of weights, shown the answer; both ways learn the same."""
    other = copy.deepcopy(policy, {id(policy.chat): policy.chat})
    with torch.no_grad():
        torch.manual_seed(3)
        for parameter in other.parameters():
            parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
    other.save(tmp_path / "teacher")
    words = (*TAUGHT, *SHORT, f"method.terms.distill.support={support}",
             "method.terms.distill.topk=8", "teacher.hints=[answer]")  # fmt: skip
    with serving(other, name="large") as server:
        served = trained(tmp_path, "served", *words, f"teacher.url={server.url}")
    local = [word for word in words if not word.startswith("teacher")]
    local += ["teacher=frozen", f"teacher.path={tmp_path}/teacher", "teacher.hints=[answer]"]
    own = trained(tmp_path, "own", *local)
    for mine, found in zip(own, served, strict=True):
        for key in ("teacher/kl", "teacher/gap_mean", "loss/distill", "policy/grad_norm"):
            assert found[key] == pytest.approx(mine[key], rel=1e-3, abs=1e-5), key
    assert served[0]["teacher/kl"] > 0.01


def test_the_tail_of_a_served_top_is_what_is_left(tmp_path, policy) -> None:
    words = (*TAUGHT, *SHORT, "method.terms.distill.support=teacher_topk",
             "method.terms.distill.topk=5")  # fmt: skip
    with serving(policy) as server:
        words = (*words, f"teacher.url={server.url}")
        with environment(tmp_path, *words) as env, assembled(tmp_path, env, *words) as run:
            groups = run.method.source.groups(run.workshop, 1)
            sample = groups[0].samples[0]
            need = TopNeed(support="teacher_topk", topk=5, temperature=1.0)
            (found,) = run.scorers["teacher"].read([sample], [need])
    expected = table(policy, sample.token_ids.tolist()).double().numpy()
    top = found.tops[need]
    for position in np.flatnonzero(sample.action_mask):
        row = expected[position]
        assert found.logprobs[position] == pytest.approx(row[sample.token_ids[position]], abs=1e-5)
        assert top.ids[position].tolist() == sorted(row.argsort()[-5:].tolist())
        rest = max(1 - np.exp(row[top.ids[position]]).sum(), SMALLEST_TAIL)
        assert top.tail[position] == pytest.approx(np.log(rest), abs=1e-2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["method.terms.distill.support=full"], "distill.support: got full, but the server of"),
        (["method.terms.distill.support=student_topk"], "support: got student_topk, but"),
        (["method.terms.distill.support=teacher_topk", "method.terms.distill.temperature=0.9"],
         "distill.temperature: got 0.9"),
        (["method.terms.distill.support=sampled", "rollout.temperature=0.8"],
         "rollout.temperature: got 0.8"),
        (["method.terms.distill.support=sampled", "teacher.weights=policy"],
         "teacher: got weights=policy"),
        (["method.terms.distill.support=sampled", "teacher.url=host:8000"], "teacher.url: got"),
    ],
)  # fmt: skip
def test_what_a_served_teacher_cannot_give_is_refused_before_the_start(words, expected) -> None:
    with pytest.raises(ConfigError, match=expected):
        rules.check(compose([*TAUGHT, "teacher.url=http://host:1", *words]).settings)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rollout.url=host:8000"], r"rollout\.url: got 'host:8000', expected an address"),
        (["method=step_kd", "method.evaluate_teacher=true", "method.sync.scope=head"],
         r"method\.sync\.scope: got head, but the slow copy is evaluated too"),
    ],
)  # fmt: skip
def test_what_vllm_cannot_play_is_refused_before_the_start(words, expected) -> None:
    with pytest.raises(ConfigError, match=expected):
        rules.check(compose(["rollout=vllm", *words]).settings)


def test_a_credit_over_whole_distributions_is_refused_too() -> None:
    words = ["method=gear_paper", "teacher=vllm_server", "teacher.url=http://host:1"]
    with pytest.raises(ConfigError, match=r"method\.credit\.divergence: got full, but"):
        rules.check(compose([*words, "method.credit.divergence=full"]).settings)


def test_more_tokens_than_the_server_gives_are_refused(tmp_path, policy) -> None:
    words = (*TAUGHT, *SHORT, "method.terms.distill.support=teacher_topk",
             "method.terms.distill.topk=30")  # fmt: skip
    with serving(policy) as server, pytest.raises(ConfigError, match="--max-logprobs 30"):
        trained(tmp_path, "r", *words, f"teacher.url={server.url}")


def test_a_teacher_with_another_tokenizer_is_refused(tmp_path, policy) -> None:
    words = (*TAUGHT, *SHORT, "method.terms.distill.support=sampled")
    with (
        serving(policy, other_letters=True) as server,
        pytest.raises(ConfigError, match=r"teacher.url=.* its tokenizer is not the student's"),
    ):
        trained(tmp_path, "r", *words, f"teacher.url={server.url}")


def test_a_teacher_lost_on_the_way_costs_no_finished_step(tmp_path, policy) -> None:
    words = (*TAUGHT, *SHORT, "method.terms.distill.support=sampled", "run.max_steps=3",
             "checkpoint.every=100")  # fmt: skip
    with serving(policy) as server:
        words = (*words, f"teacher.url={server.url}")
        with environment(tmp_path, *words) as env, assembled(tmp_path, env, *words) as run:
            publish = run.publish

            def stop_after_two(step: int) -> None:
                publish(step)
                server.broken += ["503"] * (100 if step == 2 else 0)

            run.publish = stop_after_two
            with pytest.raises(ServerError, match=r"teacher\.url=.* no answer"):
                train(run)
    assert steps_kept(tmp_path / "r") == ["step_000002"]
