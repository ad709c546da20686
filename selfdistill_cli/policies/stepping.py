"""Reading prompts once and then one token per row at a time, with a key-value cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from selfdistill_cli.policies.cache import is_plain, new_cache
from selfdistill_cli.policies.fast_llama import FastLlama, applies_to

if TYPE_CHECKING:
    from selfdistill_cli.policies.causal import CausalPolicy


class Stepper:
    """N sequences being extended, of which B are still in the batch.

    `hidden` [B,H] is the last hidden state of every row: that from which its next id is sampled.
    Call everything without gradients; the weights must not change during the stepper's life.
    """

    def __init__(self, policy: CausalPolicy, prompts: Sequence[Sequence[int]], num_new: int):
        """Read every distinct prompt once, padded on the left; leave room for `num_new` ids."""
        self.policy = policy
        device = policy.device
        distinct = list(dict.fromkeys(map(tuple, prompts)))
        place = {prompt: row for row, prompt in enumerate(distinct)}
        sources_N = torch.tensor([place[tuple(prompt)] for prompt in prompts], device=device)
        ids_UP, mask_UP = _padded_left(distinct, policy.chat.pad_id)
        ids_UP, mask_UP = ids_UP.to(device), mask_UP.to(device)
        positions_UP = (mask_UP.long().cumsum(1) - 1).clamp(min=0)

        self.used = ids_UP.shape[1]
        capacity = self.used + num_new
        self.cache = new_cache(policy.config, capacity)
        keyword = _cache_keyword(policy.decoder)
        self.cache_argument: dict[str, Any] = {keyword: self.cache}
        hidden_UPH = self._read(ids_UP, mask_UP, positions_UP)
        self.hidden = hidden_UPH[:, -1][sources_N]
        self.positions_B = positions_UP[sources_N, -1]
        self.mask_BK = torch.ones(len(prompts), capacity, dtype=torch.bool, device=device)
        self.mask_BK[:, : self.used] = mask_UP[sources_N]

        self.fast: FastLlama | None = None
        if applies_to(policy.backbone):
            self.fast = FastLlama(policy.backbone, self.cache.layers, capacity)
        # An additive mask made once spares the model's own mask code at every token.
        sdpa = policy.config._attn_implementation == "sdpa"
        if self.fast is not None or (sdpa and is_plain(policy.config)):
            dtype = self.hidden.dtype
            zeros = torch.zeros(self.mask_BK.shape, dtype=dtype, device=device)
            self.mask_BK = zeros.masked_fill_(~self.mask_BK, torch.finfo(dtype).min)
        self._select(sources_N)

    def step(self, token_ids_B: torch.Tensor) -> None:
        """Append one id to every row in the batch and renew `hidden`."""
        self.used += 1
        self.positions_B = self.positions_B + 1
        mask_BK = self.mask_BK[:, : self.used]
        if self.fast is not None:
            self.hidden = self.fast.step(token_ids_B, mask_BK, self.positions_B)
            return
        mask = mask_BK[:, None, None] if mask_BK.is_floating_point() else mask_BK
        self.hidden = self._read(token_ids_B[:, None], mask, self.positions_B[:, None])[:, -1]

    def keep(self, rows: torch.Tensor) -> None:
        """Keep these rows of the batch, in this order, and drop the others."""
        self.hidden = self.hidden[rows]
        self.positions_B = self.positions_B[rows]
        self.mask_BK = self.mask_BK[rows]
        self._select(rows)

    def _select(self, rows: torch.Tensor) -> None:
        (self.fast or self.cache).batch_select_indices(rows)

    def _read(
        self, token_ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        out = self.policy.decoder(
            input_ids=token_ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **self.cache_argument,
        )
        return out.last_hidden_state


def _padded_left(
    prompts: Sequence[Sequence[int]], pad_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask [U,P] of prompts that end at the same column."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), pad_id)
    mask = torch.zeros(len(prompts), width, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = True
    return ids, mask


def _cache_keyword(decoder: Any) -> str:
    """transformers 5.24 renames the argument `past_key_values` to `cache`."""
    names = inspect.signature(decoder.forward).parameters
    return "cache" if "cache" in names else "past_key_values"
