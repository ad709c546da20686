"""GEAR's value head: one linear layer, fitted to winners, with an optimizer of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from selfdistill_cli.core.types import Sample
from selfdistill_cli.losses.value_weights import head_loss, value_targets
from selfdistill_cli.methods.arrays import masks, pad, present
from selfdistill_cli.methods.credit_settings import ValueGapSettings


class DistilledValueHead:
    """V_distill(s) = w . hidden(s) + b in float32, on detached hidden states.

    Built at the first fit, when the hidden size is known. `used` is the head that predicts: the
    newest one, or a moving average of it (`head_decay`).
    """

    def __init__(self, settings: ValueGapSettings):
        self.settings = settings
        self.num_fits = 0
        self.head: torch.nn.Linear | None = None
        self.used: dict[str, torch.Tensor] = {}
        self.optimizer: torch.optim.AdamW | None = None

    def _build(self, hidden_size: int) -> torch.nn.Linear:
        head = torch.nn.Linear(hidden_size, 1)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        self.head = head
        self.used = {name: value.detach().clone() for name, value in head.named_parameters()}
        self.optimizer = torch.optim.AdamW(
            head.parameters(), lr=self.settings.fit_lr, weight_decay=self.settings.fit_weight_decay
        )
        return head

    def predict(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Values [B,T] of the states in which the active tokens were chosen, 0 elsewhere."""
        hidden, mask = _hidden(samples), masks(samples)
        values = (hidden @ self.used["weight"].T + self.used["bias"]).squeeze(-1)
        return torch.where(mask, values, torch.zeros_like(values))

    def fit(self, samples: Sequence[Sample], rewards: torch.Tensor) -> dict[str, float]:
        """Fit to winners' targets for `fit_epochs` passes; rewards [B]; return diagnostics.

        Without a key token among them (targets `key_tokens`) nothing is fitted.
        """
        s, mask, keys = self.settings, masks(samples), None
        if s.targets == "key_tokens":
            keys = pad([present(sample.key_tokens) for sample in samples])
        targets, target_mask = value_targets(rewards, mask, s.targets, s.gamma, key_mask_BT=keys)
        share = float(target_mask.sum() / mask.sum().clamp(min=1))
        more = {} if keys is None else {"credit/key_token_fraction": share}
        return {**more, **self._fit(samples, targets, target_mask)} if share > 0 else more

    def _fit(
        self, samples: Sequence[Sample], targets: torch.Tensor, target_mask: torch.Tensor
    ) -> dict[str, float]:
        s, hidden = self.settings, _hidden(samples)
        head = self.head or self._build(hidden.shape[-1])
        assert self.optimizer is not None
        chosen = torch.ones(len(samples), dtype=torch.bool)
        for _ in range(s.fit_epochs):
            self.optimizer.zero_grad()
            loss = head_loss(head(hidden).squeeze(-1), targets, target_mask, chosen)
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            self.optimizer.step()
        self.num_fits += 1
        self._follow(head)
        return self._diagnose(samples, targets, target_mask)

    def _follow(self, head: torch.nn.Linear) -> None:
        decay = self.settings.head_decay if self.num_fits > 1 else 0.0
        for name, value in head.named_parameters():
            self.used[name] = decay * self.used[name] + (1.0 - decay) * value.detach()

    def _diagnose(
        self, samples: Sequence[Sample], targets: torch.Tensor, target_mask: torch.Tensor
    ) -> dict[str, float]:
        wanted = targets[target_mask]
        error = wanted - self.predict(samples)[target_mask]
        spread = float(wanted.var(correction=0))
        explained = 1.0 - float(error.var(correction=0)) / spread if spread > 0 else 0.0
        return {
            "credit/value_head_mse": float(error.square().mean()),
            "credit/value_head_explained_variance": explained,
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next fit and the next prediction depend on."""
        if self.head is None or self.optimizer is None:
            return {"num_fits": 0}
        state = {
            "num_fits": self.num_fits,
            "head": self.head.state_dict(),
            "used": self.used,
            "optimizer": self.optimizer.state_dict(),
        }
        return copy.deepcopy(state)  # torch's dictionaries share tensors with the live objects

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.num_fits = state["num_fits"]
        if self.num_fits == 0:
            return
        head = self._build(state["head"]["weight"].shape[-1])
        head.load_state_dict(state["head"])
        assert self.optimizer is not None
        self.optimizer.load_state_dict(state["optimizer"])
        self.used = {name: value.clone() for name, value in state["used"].items()}


def _hidden(samples: Sequence[Sample]) -> torch.Tensor:
    """Hidden states [B,T,H] in float32."""
    rows: list[Any] = []
    for sample in samples:
        assert sample.hidden is not None, "the rollout or the judge phase gives hidden states"
        rows.append(sample.hidden)
    return pad(rows).float()
