"""A key-value cache for sampling: room for the whole turn from the start, rows can leave."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer


class RoomyLayer(DynamicLayer):
    """A cache layer that writes new positions into spare room instead of copying the old ones.

    Keys and values are [B,heads,positions,size]; `keys` and `values` are views of the used part.
    """

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity = capacity
        self.used = 0
        self.buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append positions and return all keys and values so far."""
        if self.buffers is None:
            self.device, self.dtype = key_states.device, key_states.dtype
            self.is_initialized = True
            self.buffers = (self._room(key_states), self._room(value_states))
        end = self.used + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.used : end] = states
        self._use(end)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Make row i a copy of old row `indices[i]`: repeats a prompt's cache or drops rows."""
        assert self.buffers is not None
        keys, values = self.keys, self.values
        self.buffers = tuple(self._room(old, len(indices)) for old in (keys, values))
        for new, old in zip(self.buffers, (keys, values), strict=True):
            new[:, :, : self.used] = old[indices]
        self._use(self.used)

    def _room(self, like: torch.Tensor, num_rows: int | None = None) -> torch.Tensor:
        rows = like.shape[0] if num_rows is None else num_rows
        return like.new_empty(rows, like.shape[1], self.capacity, like.shape[3])

    def _use(self, end: int) -> None:
        assert self.buffers is not None
        self.used = end
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)


def is_plain(config: Any) -> bool:
    """Whether every layer is ordinary full attention, so that a `RoomyLayer` can hold its cache."""
    layers = DynamicCache(config=config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def new_cache(config: Any, capacity: int) -> Cache:
    """Return an empty cache with room for `capacity` positions (other layer types just grow)."""
    cache = DynamicCache(config=config)
    if not is_plain(config):
        return cache
    return Cache(layers=[RoomyLayer(capacity) for _ in cache.layers])
