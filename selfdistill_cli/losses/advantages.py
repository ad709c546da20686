"""Advantages: rewards placed on tokens, generalised advantages, comparison within groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from selfdistill_cli.losses.cleaning import keep_active

GroupMode = Literal["grpo", "dr_grpo", "rloo", "rank", "pairwise"]


@torch.no_grad()
def place_rewards(
    mask_BT: torch.Tensor,
    turn_ids_BT: torch.Tensor,
    step_rewards: Sequence[Sequence[float]] | None,
    terminal_reward_B: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Reward of each token [B,T].

    `step_rewards[b][k]` goes to the last active token of turn k, the terminal reward to the last
    active token of the row; both are added. A row or a turn without active tokens drops its own.
    """
    rewards_BT = torch.zeros(mask_BT.shape, dtype=dtype, device=mask_BT.device)
    active_BT = mask_BT.bool()
    for row in range(len(mask_BT)):
        for turn, reward in enumerate(step_rewards[row] if step_rewards is not None else ()):
            _add_at_last(rewards_BT[row], active_BT[row] & (turn_ids_BT[row] == turn), reward)
        if terminal_reward_B is not None:
            _add_at_last(rewards_BT[row], active_BT[row], float(terminal_reward_B[row]))
    return rewards_BT


def _add_at_last(rewards_T: torch.Tensor, where_T: torch.Tensor, reward: float) -> None:
    positions = where_T.nonzero()
    if len(positions):
        rewards_T[positions[-1]] += reward


@torch.no_grad()
def generalized_advantage(
    rewards_BT: torch.Tensor,
    values_BT: torch.Tensor | None,
    mask_BT: torch.Tensor,
    gamma: float,
    lam: float,
    truncated_B: torch.Tensor,
    bootstrap_B: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (advantages [B,T], returns [B,T]) over active tokens, 0 elsewhere (arXiv 1506.02438).

    One active token is one time step; other tokens neither discount nor carry advantage. The value
    after the last active token is the bootstrap value where `truncated`, else 0. Without values
    the baseline is 0. returns = advantages + values.
    """
    mask_BT = mask_BT.bool()
    rewards_BT = keep_active(rewards_BT, mask_BT)
    values_BT = (
        torch.zeros_like(rewards_BT) if values_BT is None else keep_active(values_BT, mask_BT)
    )
    following_B = keep_active(bootstrap_B.to(rewards_BT), truncated_B)
    carried_B = torch.zeros_like(following_B)
    advantages_BT = torch.zeros_like(rewards_BT)
    for t in reversed(range(mask_BT.shape[1])):
        active_B, value_B = mask_BT[:, t], values_BT[:, t]
        delta_B = rewards_BT[:, t] + gamma * following_B - value_B
        carried_B = torch.where(active_B, delta_B + gamma * lam * carried_B, carried_B)
        following_B = torch.where(active_B, value_B, following_B)
        advantages_BT[:, t] = keep_active(carried_B, active_B)
    return advantages_BT, advantages_BT + values_BT


@torch.no_grad()
def group_advantage(
    rewards_N: torch.Tensor, group_ids_N: torch.Tensor, mode: GroupMode, eps: float
) -> tuple[torch.Tensor, float]:
    """Return (advantage of each trajectory [N], share of groups that are flat).

    grpo: (R - mean) / (sample standard deviation + eps) (arXiv 2402.03300); dr_grpo: R - mean
    (arXiv 2503.20783); rloo: R - mean of the others (arXiv 2402.14740); rank: in [-1, 1], ties
    share the average rank; pairwise: best +1, worst -1, ties to the lower index. A group without
    reward differences is flat and gets exactly 0, because rounding must not become a signal.
    """
    compare = _grpo(eps) if mode == "grpo" else _COMPARE[mode]
    advantages_N = torch.zeros_like(rewards_N)
    groups = group_ids_N.unique()
    num_flat = 0
    for group in groups:
        members = group_ids_N == group
        rewards = rewards_N[members]
        if bool(rewards.max() == rewards.min()):
            num_flat += 1
        else:
            advantages_N[members] = compare(rewards)
    return advantages_N, num_flat / max(1, len(groups))


def _grpo(eps: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda rewards: (rewards - rewards.mean()) / (rewards.std(correction=1) + eps)


def _dr_grpo(rewards: torch.Tensor) -> torch.Tensor:
    return rewards - rewards.mean()


def _rloo(rewards: torch.Tensor) -> torch.Tensor:
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)


def _rank(rewards: torch.Tensor) -> torch.Tensor:
    lower = (rewards[None, :] < rewards[:, None]).sum(1).to(rewards)
    equal = (rewards[None, :] == rewards[:, None]).sum(1).to(rewards)
    zero_based_rank = lower + (equal - 1) / 2
    return 2 * zero_based_rank / (len(rewards) - 1) - 1


def _pairwise(rewards: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(rewards)
    out[(rewards == rewards.max()).nonzero()[0]] = 1.0
    out[(rewards == rewards.min()).nonzero()[0]] = -1.0
    return out


_COMPARE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dr_grpo": _dr_grpo,
    "rloo": _rloo,
    "rank": _rank,
    "pairwise": _pairwise,
}
