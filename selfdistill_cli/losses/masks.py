"""Which tokens are trained on. Arrays are about tokens: position t is about token t."""

from __future__ import annotations

import torch

from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.losses.logprobs import align_to_tokens

IGNORED_LABEL = -100
"""The label that torch's and Hugging Face's cross entropy skip."""


def active_tokens(agent_BT: torch.Tensor, attention_BT: torch.Tensor) -> torch.Tensor:
    """True where the agent sampled the token and its predecessor is a real token, bool [B,T].

    A token at the start of a row, or right after padding, has no prediction.
    """
    return agent_BT.bool() & align_to_tokens(attention_BT.bool())


def position_ids(attention_BT: torch.Tensor) -> torch.Tensor:
    """Positions that start at 0 at the first real token, int64 [B,T]; 0 at padding on the left."""
    return (attention_BT.long().cumsum(-1) - 1).clamp(min=0)


def labels(token_ids_BT: torch.Tensor, active_BT: torch.Tensor) -> torch.Tensor:
    """Token ids where active, -100 elsewhere, int64 [B,T]; labels[t] is token t, not shifted."""
    return torch.where(active_BT.bool(), token_ids_BT, torch.full_like(token_ids_BT, IGNORED_LABEL))


def turn_ids(agent_BT: torch.Tensor, active_BT: torch.Tensor) -> torch.Tensor:
    """Index of the maximal run of agent tokens that holds each active token, -1 elsewhere."""
    run_BT = _run_starts(agent_BT).long().cumsum(-1) - 1
    return torch.where(active_BT.bool(), run_BT, torch.full_like(run_BT, -1))


def num_turns(agent_BT: torch.Tensor) -> torch.Tensor:
    """Number of maximal runs of agent tokens in each row, int64 [B]."""
    return _run_starts(agent_BT).sum(-1)


def _run_starts(agent_BT: torch.Tensor) -> torch.Tensor:
    agent_BT = agent_BT.bool()
    return agent_BT & ~align_to_tokens(agent_BT)


def turn_sums(values_BT: torch.Tensor, turn_ids_BT: torch.Tensor, turns: int) -> torch.Tensor:
    """Sum of the values of each turn's active tokens [B, turns]; turn -1 is left out."""
    in_turn_BT = turn_ids_BT >= 0
    out_BK = values_BT.new_zeros(values_BT.shape[0], turns)
    clean_BT = keep_active(values_BT, in_turn_BT)
    return out_BK.scatter_add(1, turn_ids_BT.clamp(min=0), clean_BT) if turns else out_BK
