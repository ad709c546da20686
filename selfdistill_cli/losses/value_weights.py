"""GEAR, specification form: a value head fitted to winners turns into weights per token.

w = f(V_distill - V_orig), then clipped, then normalised over the row, then ramped in:
A * ((1 - lam) + lam * w). All weights are constants: no gradient flows through them.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from selfdistill_cli.losses.advantages import generalized_advantage
from selfdistill_cli.losses.cleaning import bounded_exp, keep_active, row_mean

TargetKind = Literal["all_tokens", "return_to_go", "key_tokens"]
WeightForm = Literal["exp", "exp_sign", "sigmoid", "ratio"]


@torch.no_grad()
def winners(rewards_N: torch.Tensor, group_ids_N: torch.Tensor, fraction: float) -> torch.Tensor:
    """Best max(1, ceil(fraction * n)) members of each group, as bool [N].

    Ties go to the lower index. A group without reward differences has no winner.
    """
    won_N = torch.zeros(rewards_N.shape, dtype=torch.bool, device=rewards_N.device)
    for group in group_ids_N.unique():
        members = (group_ids_N == group).nonzero().squeeze(-1)
        rewards = rewards_N[members]
        if bool(rewards.max() == rewards.min()):
            continue
        # 0.07 * 100 is 7.000000000000001 in binary; it must not become 8.
        count = max(1, math.ceil(fraction * len(members) - 1e-9))
        order = torch.sort(rewards, descending=True, stable=True).indices
        won_N[members[order[:count]]] = True
    return won_N


@torch.no_grad()
def value_targets(
    rewards_B: torch.Tensor,
    mask_BT: torch.Tensor,
    targets: TargetKind,
    gamma: float,
    token_rewards_BT: torch.Tensor | None = None,
    key_mask_BT: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (targets [B,T], mask of tokens that have one [B,T]); targets are 0 elsewhere.

    all_tokens: the row's reward at every active token; return_to_go: discounted sum of
    `token_rewards` (default none) plus the row's reward on its last active token, one active
    token being one time step; key_tokens: the row's reward at active tokens of `key_mask`.
    """
    mask_BT = mask_BT.bool()
    everywhere_BT = rewards_B[:, None].expand(mask_BT.shape)
    if targets == "return_to_go":
        return _return_to_go(everywhere_BT, mask_BT, gamma, token_rewards_BT), mask_BT
    if targets == "key_tokens":
        assert key_mask_BT is not None, "targets `key_tokens` need a key mask"
        mask_BT = mask_BT & key_mask_BT.bool()
    return keep_active(everywhere_BT, mask_BT), mask_BT


def _return_to_go(
    terminal_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    gamma: float,
    token_rewards_BT: torch.Tensor | None,
) -> torch.Tensor:
    is_last_BT = mask_BT & (mask_BT.flip(-1).cumsum(-1).flip(-1) == 1)
    rewards_BT = keep_active(terminal_BT, is_last_BT)
    if token_rewards_BT is not None:
        rewards_BT = rewards_BT + keep_active(token_rewards_BT.to(rewards_BT), mask_BT)
    none_B = rewards_BT.new_zeros(len(rewards_BT))
    # Without values and with lam = 1 the advantage is the discounted return-to-go.
    out_BT, _ = generalized_advantage(rewards_BT, None, mask_BT, gamma, 1.0, none_B.bool(), none_B)
    return out_BT


def head_loss(
    values_BT: torch.Tensor,
    targets_BT: torch.Tensor,
    target_mask_BT: torch.Tensor,
    winners_B: torch.Tensor,
) -> torch.Tensor:
    """Mean of (V - G)^2 over winners' target tokens, a scalar; without winners a connected 0."""
    chosen_BT = target_mask_BT.bool() & winners_B.bool()[:, None]
    error_BT = keep_active(values_BT, chosen_BT) - keep_active(targets_BT, chosen_BT).detach()
    return error_BT.square().sum() / chosen_BT.sum().clamp(min=1).to(error_BT.dtype)


@torch.no_grad()
def value_weights(
    v_distill_BT: torch.Tensor,
    v_orig_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    *,
    form: WeightForm,
    temperature: float,
    exp_clamp: float,
    ratio_delta: float,
    clip_lo: float | None,
    clip_hi: float | None,
    normalize: bool,
) -> torch.Tensor:
    """Weight of each token [B,T], 1 at inactive positions.

    With x = (V_distill - V_orig) / temperature: exp: e^x; exp_sign: e^(sign(A) x), so that a
    penalty shrinks where the state was judged good; sigmoid: 2 sigmoid(x); ratio: (max(V_distill,
    0) + ratio_delta) / (max(V_orig, 0) + ratio_delta). Exponents are clamped to +-exp_clamp. The
    clip comes first (None = open), then division by the row's mean; there is no second clip.
    """
    distill_BT, orig_BT = keep_active(v_distill_BT, mask_BT), keep_active(v_orig_BT, mask_BT)
    x_BT = (distill_BT - orig_BT) / temperature
    if form == "exp":
        weights_BT = bounded_exp(x_BT, exp_clamp)
    elif form == "exp_sign":
        weights_BT = bounded_exp(keep_active(advantages_BT, mask_BT).sign() * x_BT, exp_clamp)
    elif form == "sigmoid":
        weights_BT = 2.0 * torch.sigmoid(x_BT)
    else:
        weights_BT = (distill_BT.clamp(min=0) + ratio_delta) / (orig_BT.clamp(min=0) + ratio_delta)
    weights_BT = _clip(weights_BT, clip_lo, clip_hi)
    if normalize:
        mean_B1 = row_mean(weights_BT, mask_BT)[:, None]
        weights_BT = weights_BT / torch.where(mean_B1 == 0, torch.ones_like(mean_B1), mean_B1)
    return keep_active(weights_BT, mask_BT, fill=1.0)


def apply_weights(
    advantages_BT: torch.Tensor, weights_BT: torch.Tensor, lam: float
) -> torch.Tensor:
    """Return A * ((1 - lam) + lam * w) [B,T]; lam = 0 returns A itself, bit for bit.

    Inactive positions have weight 1 and keep what A holds there.
    """
    if lam == 0.0:
        return advantages_BT
    return advantages_BT * ((1.0 - lam) + lam * weights_BT)


def saturation_fraction(
    raw_weights_BT: torch.Tensor,
    clip_lo: float | None,
    clip_hi: float | None,
    mask_BT: torch.Tensor,
) -> float:
    """Share of active tokens whose raw (unclipped, unnormalised) weight the clip changes."""
    changed_BT = _clip(raw_weights_BT, clip_lo, clip_hi) != raw_weights_BT
    num_active = int(mask_BT.sum())
    return int((changed_BT & mask_BT.bool()).sum()) / max(1, num_active)


def within_trajectory_std(weights_BT: torch.Tensor, mask_BT: torch.Tensor) -> float:
    """Population standard deviation of a row's active weights, averaged over non-empty rows.

    0 means that the weights only rescale whole trajectories.
    """
    spread_BT = weights_BT - row_mean(weights_BT, mask_BT)[:, None]
    std_B = row_mean(spread_BT.square(), mask_BT).sqrt()
    present_B = mask_BT.bool().any(-1)
    return float(std_B[present_B].mean()) if bool(present_B.any()) else 0.0


def _clip(weights: torch.Tensor, low: float | None, high: float | None) -> torch.Tensor:
    return weights if low is None and high is None else weights.clamp(min=low, max=high)
