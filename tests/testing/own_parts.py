"""A small correct part for every protocol, to be broken in one way each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from selfdistill_cli.core.hints import Hint
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Finish, Generation, Score, Task


class Memory:
    """One number that moves with every step."""

    needs = frozenset()

    def __init__(self):
        self.memory = 1.0

    def state_dict(self):
        return {"memory": self.memory}

    def load_state_dict(self, state):
        self.memory = state["memory"]


class OwnAdvantage(Memory):
    """The reward minus the siblings' mean, at every active token."""

    def assign(self, groups):
        self.memory += 1.0
        return [replace(g, samples=tuple(self.fill(g, s) for s in g.samples)) for g in groups]

    def fill(self, group, sample):
        totals = self.totals(group)
        value = totals[sample.sibling] - np.mean(list(totals.values())) if totals else 0.0
        row = np.where(sample.action_mask, value, 0.0).astype(np.float32)
        return replace(sample, advantages=row)

    def totals(self, group):
        pairs = zip(group.trajectories, group.scores, strict=True)
        return {t.sibling: s.total for t, s in pairs if s.total is not None}

    def after_credit(self, groups):
        return list(groups)


class OwnCredit(Memory):
    """Every advantage times a number that follows the steps."""

    def reweight(self, groups, step):
        done = [replace(g, samples=tuple(map(self.change, g.samples))) for g in groups]
        return done, {"credit/memory": self.memory}

    def change(self, sample):
        return replace(sample, advantages=(sample.advantages * self.memory).astype(np.float32))

    def after_step(self, groups, step):
        self.memory *= 0.9
        return {}


class OwnCoefficient(Memory):
    """Halves whenever a reward was measured."""

    def __call__(self, step):
        return self.memory

    def observe(self, measured, readings, synced):
        if readings.reward is not None:
            self.memory *= 0.5


class OwnTerm:
    """Negative log-likelihood of the active tokens."""

    needs = frozenset()

    def __init__(self):
        self.coefficient = OwnCoefficient()

    def weights(self, groups):
        return [s.action_mask.astype(np.float32) for g in groups for s in g.samples]

    def count(self, batch):
        return float(batch.action_mask.sum())

    def total(self, output, batch):
        active = torch.where(batch.action_mask, output.logprobs, torch.zeros(()))
        return -active.sum(), {"policy/own": (float(-active.detach().sum()), self.count(batch))}


class OwnSource(Memory):
    """The next tasks in order, from where the last step stopped."""

    def groups(self, workshop, step):
        tasks = workshop.tasks("train")
        start = int(self.memory)
        self.memory += 1.0
        count = workshop.tasks_per_step
        chosen = [tasks[(start + i) % len(tasks)] for i in range(count)]
        return [self.left(g) for g in workshop.play(chosen, step, "own")]

    def left(self, group):
        return group


class OwnSync(Memory):
    """A full copy every third step."""

    synced = False

    def start(self, success):
        pass

    def after_update(self, copy):
        pass

    def after_step(self, copy, readings):
        self.memory += 1.0
        if self.memory % 3 == 0:
            copy.copy_student()
            self.synced = True
        return {"teacher/distance": copy.distance()}


class OwnEpisode:
    """Two turns; the second answer counts."""

    def __init__(self, seed):
        self.turn = 0
        self.bonus = int(stream(seed, "bonus").integers(2))

    def step(self, action):
        self.turn += 1
        if self.turn == 1:
            return StepResult(observation=({"role": "user", "content": "again"},), done=False)
        return StepResult(outcome={"success": float("x" in action), "bonus": self.bonus})


class OwnEnv:
    """Say x at the second turn."""

    name = "own"
    hints = frozenset({"answer"})

    def tasks(self, split):
        message = {"role": "user", "content": "say x"}
        return [Task(id=f"{split} {i}", messages=(message,), answer="x") for i in range(4)]

    def episode(self, task, seed):
        return OwnEpisode(seed)

    def hint(self, kind, task, siblings, scores, index, seed):
        return Hint(kind="answer", text="x")

    def close(self):
        pass


class OwnReward:
    """The success, or nothing where the environment failed."""

    def score(self, trajectory):
        success = trajectory.outcome.get("success")
        if success is None:
            return Score(total=None, success=0.0, parts={}, missing=("success",))
        return Score(total=success, success=success, parts={"success": success})


class OwnEngine:
    """Uniform over ten tokens, of which 0 ends."""

    def load_weights(self, weights, version):
        self.version = version

    def generate(self, requests, *, max_new_tokens, temperature, with_hidden=False):
        return [self.one(r, max_new_tokens, temperature, with_hidden) for r in requests]

    def one(self, request, longest, temperature, with_hidden):
        drawn = self.random(request).integers(10, size=longest)
        ids = (drawn if temperature else drawn * 0 + 3).tolist()
        ids = ids[: ids.index(0) + 1] if 0 in ids else ids
        finish = Finish.STOP if ids[-1] == 0 else Finish.LENGTH
        logprobs = np.full(len(ids), -np.log(10), dtype=np.float32)
        hidden = np.zeros((len(ids), 2), dtype=np.float32) if with_hidden else None
        return Generation(action_ids=ids, logprobs=logprobs, finish=finish, hidden=hidden)

    def random(self, request):
        return stream(request.seed)


class OwnChat:
    """One id per character; 1 opens an answer, 2 ends a turn."""

    stop_ids = frozenset({2})
    pad_id = 0

    def prompt_ids(self, messages):
        texts = ("".join(m["content"] for m in [message]) for message in messages)
        return [i for text in texts for i in (*self.encode(text), 2)] + [1]

    def observation_ids(self, messages, finished):
        return [*([] if finished else [2]), *self.prompt_ids(messages)]

    def answer_ids(self, text):
        return [*self.encode(text), 2]

    def decode(self, ids):
        return "".join(chr(i - 10) for i in ids if i >= 10)

    def encode(self, text):
        return [ord(character) + 10 for character in text]
