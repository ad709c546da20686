"""A process that computes log-probs, entropy and a divergence, and says how its memory grew.

`python kl_step.py VOCABULARY TOKENS HIDDEN KIND SCALE`: prints bytes of growth above the inputs.
SCALE divides the chunk size, so that a small problem has the chunks of a large one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from selfdistill_cli.losses import distribution, logprobs

ROWS = 8


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def step(vocabulary: int, tokens: int, width: int, kind: str, scale: int) -> int:
    """Forward and backward of both losses; return the growth of the peak above the inputs."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, tokens // ROWS, width, generator=generator).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).div_(width**0.5).requires_grad_()
    teacher = distribution.FullTeacher(
        hidden_NH=torch.randn(tokens, width, generator=generator),
        unembedding_VH=torch.randn(vocabulary, width, generator=generator).div_(width**0.5),
        bias_V=None,
    )
    ids = torch.randint(0, vocabulary, (ROWS, tokens // ROWS), generator=generator)
    active = torch.ones_like(ids, dtype=torch.bool)
    size = logprobs.LOGITS_PER_CHUNK // scale // vocabulary
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    found, entropy = logprobs.token_statistics(
        hidden, weight, None, ids, active, need_entropy=True, chunk_size=size
    )
    assert entropy is not None
    per_token = distribution.divergence(
        hidden.flatten(0, 1), weight, None, teacher,
        kind=kind, alpha=0.5, temperature=1.0, chunk_size=size // 2,
    )  # fmt: skip
    (found.mean() + entropy.mean() + per_token.mean()).backward()
    assert weight.grad is not None
    return resident("VmHWM") - before


if __name__ == "__main__":
    torch.set_num_threads(1)
    vocabulary, tokens, width = map(int, sys.argv[1:4])
    print(step(vocabulary, tokens, width, sys.argv[4], int(sys.argv[5])))
