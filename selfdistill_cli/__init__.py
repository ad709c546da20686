"""selfdistill: train LLM agents by reinforcement learning and self-distillation."""

__version__ = "0.1.0"
