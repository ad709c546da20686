"""What the critic says of the states that follow each candidate token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from selfdistill_cli.policies.causal import CausalPolicy


@torch.no_grad()
def successor_values(
    policy: CausalPolicy,
    token_ids_T: npt.NDArray[np.int64],
    positions_N: npt.NDArray[np.int64],
    candidates_NK: torch.Tensor,
) -> torch.Tensor:
    """The critic's value [N,K] of the state after each candidate for the token at a position.

    One pass: every candidate stands behind the sequence, at the position of the token that it
    replaces, and sees what came before that token and itpolicy.
    """
    assert policy.value_head is not None, "call add_value_head before asking for values"
    num, width = candidates_NK.shape
    length, device = len(token_ids_T), policy.device
    places = torch.from_numpy(positions_N).to(device).repeat_interleave(width)
    ids = torch.cat([torch.from_numpy(token_ids_T).to(device), candidates_NK.flatten()])
    order = torch.arange(length, device=device)
    sees = torch.zeros(len(ids), len(ids), dtype=torch.bool, device=device)
    sees[:length, :length] = order[None] <= order[:, None]
    sees[length:, :length] = order[None] < places[:, None]
    sees.fill_diagonal_(True)
    dtype = policy.unembedding()[0].dtype
    mask = torch.zeros(sees.shape, dtype=dtype, device=device)
    mask.masked_fill_(~sees, torch.finfo(dtype).min)
    out = policy.decoder(
        input_ids=ids[None],
        attention_mask=mask[None, None],
        position_ids=torch.cat([order, places])[None],
        use_cache=False,
    )
    hidden = out.last_hidden_state[0, length:].to(policy.value_head.weight.dtype)
    return policy.value_head(hidden).float().view(num, width)
