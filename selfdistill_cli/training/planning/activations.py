"""What the forward pass keeps for the backward pass, and what passes over the vocabulary need.

Source: arXiv 2205.05198, section 4: a layer keeps the inputs of everything that has a derivative.
Its equation 1, s b h (34 + 5 a s / h) bytes, is GPT with dropout in 16 bits; here the same count is
made for layers without dropout, with grouped queries and gates, for attention that keeps no matrix
of length x length (FlashAttention, arXiv 2205.14135), and for adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from selfdistill_cli.losses.logprobs import LOGITS_PER_CHUNK
from selfdistill_cli.training.planning.shape import Shape

WIDE = 4
"""Bytes of a float32."""
CHUNKS_OF_TOKENS = 2.25
"""Tensors of a chunk's size in float32 that log-probs and entropies hold at their peak."""
CHUNKS_OF_DIVERGENCE = 4.25
"""The same of a divergence: both distributions, the gradient and a temporary, and a mask."""


def layer_bytes(shape: Shape, rows: int, length: int) -> float:
    """What one block keeps of rows x length tokens."""
    size = shape.element_size
    tokens = rows * length
    # Queries, keys and values after their rotation, and the output.
    per_token = size * (2 * shape.query + 2 * shape.key)
    per_token += _norms(shape)
    # The gate, its activation, the other half and their product; or a GELU in the steps of GPT-2.
    per_token += size * shape.intermediate * (4 if shape.gated else 5)
    if shape.rank:
        per_token += WIDE * shape.rank * shape.num_adapters
        if size != WIDE:  # every adapter casts its input to its own float32
            per_token += WIDE * shape.adapter_inputs
    scores = 0 if shape.sdpa else 2 * size * shape.heads * rows * length * length
    return tokens * per_token + scores


def _norms(shape: Shape) -> float:
    """A norm of Llama keeps its input in float32, the normed input and its output."""
    size = shape.element_size
    if not shape.root_mean_square:
        return size * 2 * shape.norms
    # The normed input is needed for the gradient of the norm's weight only.
    return (WIDE + size * (1 if shape.rank else 2)) * shape.norms


def activation_bytes(shape: Shape, rows: int, length: int, checkpointing: bool) -> float:
    """What all blocks and the last norm keep until the backward pass.

    With gradient checkpointing a block keeps its input alone (arXiv 2205.05198, section 5;
    arXiv 1604.06174).
    """
    tokens = rows * length
    last = tokens * shape.hidden * (WIDE + 2 * shape.element_size)
    if checkpointing:
        return shape.num_layers * tokens * shape.hidden * shape.element_size + last
    return shape.num_layers * layer_bytes(shape, rows, length) + last


def forward_bytes(shape: Shape, tokens: int) -> float:
    """What one block works on without gradients; in the backward pass its gradients are as many."""
    wide = (3 if shape.gated else 4.5) * shape.intermediate + 4 * shape.hidden
    return tokens * shape.element_size * wide


def backward_bytes(shape: Shape, rows: int, length: int, checkpointing: bool) -> float:
    """What one block of the backward pass holds, what it computes again included."""
    again = layer_bytes(shape, rows, length) if checkpointing else 0.0
    return again + forward_bytes(shape, rows * length)


@dataclass(frozen=True, kw_only=True)
class VocabularyWork:
    """What is computed over the vocabulary for the active tokens of a micro-batch."""

    tokens: int
    """Active tokens of a micro-batch at most."""
    divergences: int
    """Terms that compare whole distributions."""

    def passes(self, shape: Shape, gradients: bool = True) -> float:
        """Peak of one pass: chunks, and the gradient of a trained unembedding in float32."""
        logits = self.tokens * shape.vocabulary
        chunks = CHUNKS_OF_TOKENS * min(LOGITS_PER_CHUNK, logits)
        if self.divergences:  # half as many tokens in a chunk, of two distributions
            chunks = max(chunks, CHUNKS_OF_DIVERGENCE * min(LOGITS_PER_CHUNK / 2, logits))
        size, waiting = shape.element_size, 1 if self.divergences else 0
        head = shape.vocabulary * shape.hidden if gradients and shape.head_is_trained else 0
        hidden = self.tokens * shape.hidden * size * (2 + 2 * self.divergences)
        return WIDE * chunks + head * (WIDE + size * (1 + waiting)) + hidden


def cache_bytes(shape: Shape, rows: int, positions: int) -> float:
    """Keys and values of sequences that are being sampled."""
    return rows * positions * 2 * shape.num_layers * shape.key * shape.element_size


def sampling_bytes(shape: Shape, rows: int) -> float:
    """Logits, log-probs, probabilities and their float64 sum for one token of every row."""
    return rows * shape.vocabulary * (shape.element_size + 3 * WIDE + 8)
