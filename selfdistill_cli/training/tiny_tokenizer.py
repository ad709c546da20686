"""Make the tokenizer of the embedded policy: `python -m selfdistill_cli.training.tiny_tokenizer`.

The folder given holds a tokenizer and no weights: with policy.from_scratch=true and this folder
as policy.path the warm-up starts from nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from selfdistill_cli.envs.code.family import texts
from selfdistill_cli.policies.tiny import build_tokenizer

VOCABULARY = 512


def main(folder: str) -> None:
    """Train the tokenizer on the built-in family's texts and save it; a fixed result."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    build_tokenizer(texts(), VOCABULARY).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
