"""A learned judge: a local sequence classifier reads prompt and answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.outcomes import prompt_of
from selfdistill_cli.rewards.settings import LearnedComponent

EXPECTED = "expected a folder with config.json, weights and a tokenizer of a sequence classifier"


class Learned:
    """Scores in batches, without gradients, in evaluation mode."""

    def __init__(self, settings: LearnedComponent) -> None:
        """Load model and tokenizer from the folder; nothing is fetched from elsewhere.

        Raises ConfigError if it holds no classifier, or one without that label.
        """
        self._settings = settings
        self._tokenizer, self._model = _load(settings.path)
        num_labels = int(self._model.config.num_labels)
        if settings.label >= num_labels:
            raise ConfigError(
                f"learned reward: label {settings.label}, but the model in {settings.path} has "
                f"{num_labels}; expected 0 to {num_labels - 1}"
            )
        self._device = _device(settings.device)
        self._model.to(self._device).eval()

    @torch.no_grad()
    def values(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """The chosen output for each trajectory's prompt and answer."""
        texts = [judged_text(trajectory) for trajectory in trajectories]
        rows = self._settings.batch_rows
        found: list[float] = []
        for start in range(0, len(texts), rows):
            found += self._batch(texts[start : start + rows])
        return found

    def _batch(self, texts: Sequence[str]) -> list[float]:
        s = self._settings
        inputs = self._tokenizer(
            list(texts),
            truncation=True,
            max_length=s.max_tokens,
            padding=True,
            return_tensors="pt",
        ).to(self._device)
        logits = self._model(**inputs).logits.float()
        if s.output == "probability":
            one = logits.shape[-1] == 1
            logits = torch.sigmoid(logits) if one else torch.softmax(logits, dim=-1)
        return logits[:, s.label].tolist()


def judged_text(trajectory: Trajectory) -> str:
    """The task's messages, then every turn and what was answered to it."""
    parts = [prompt_of(trajectory)]
    for turn in trajectory.turns:
        parts += [turn.text, *(message["content"] for message in turn.observation)]
    return "\n\n".join(parts)


def _load(path: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if not (Path(path) / "config.json").is_file():
        raise ConfigError(f"learned reward: {path} has no config.json; {EXPECTED}")
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(
            path, local_files_only=True, truncation_side="left"
        )
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            path, local_files_only=True, dtype=torch.float32
        )
    except Exception as error:  # loaders raise whatever they meet in a broken folder
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"learned reward: {path} cannot be loaded: {reason}; {EXPECTED}"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("learned reward: device is cuda, but torch sees no GPU; use cpu")
    return torch.device(name)
