"""How many bytes of tensors exist at one time: exact on a CPU, temporaries included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(function: Callable[[], Any]) -> int:
    """Call a function; return the peak of what it allocated and had not yet given back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = function()
    events: Any = found.profiler.kineto_results.events()  # pyright: ignore
    sizes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    live = peak = 0
    for _, size in sorted(sizes, key=lambda pair: pair[0]):
        live += size
        peak = max(peak, live)
    del kept  # what is returned counts as long as the function runs
    return peak
