"""Make what ships as `policy=tiny_agent`: `python -m selfdistill_cli.cli.tiny_agent`.

    python -m selfdistill_cli.cli.tiny_agent tokenizer          the tokenizer that all agents share
    python -m selfdistill_cli.cli.tiny_agent weights ENV RUN    the weights of RUN[:STEP] for ENV

Both write into the package. `make tiny_agent` runs all of it, with the warm-ups in between.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.settings import shipped_agents
from selfdistill_cli.training.demonstrations import replies
from selfdistill_cli.training.initial import policy_folder

VOCABULARY = 1000
EPISODES = 300
"""Expert episodes of each environment that the tokenizer is trained on."""
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "math": ("env.kinds=[columns,sums,products,equations,comparisons]",),
    "search": (),
    "textgame": ("env.format=choices", "env.describe_tools=false"),
    "tools": (),
}
"""The environments that agents ship for, with the settings under which their texts are short."""


def texts() -> Iterator[str]:
    """Yield prompts, expert's actions and replies of the demonstrated tasks; always the same."""
    for name, words in ENVIRONMENTS.items():
        settings: Any = compose([f"env={name}", *words]).settings.env
        env = settings.build()
        for task in env.tasks("demonstrations")[:EPISODES]:
            yield from (message["content"] for message in task.messages)
            if not hasattr(env, "expert"):
                yield task.answer
                continue
            for text, result in replies(env, task, env.expert(task, 0), 0):
                yield text
                yield from (message["content"] for message in result.observation)


def write_tokenizer(folder: Path) -> None:
    """Train the agents' tokenizer and save it; a fixed result."""
    from selfdistill_cli.policies.tiny import build_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(texts(), VOCABULARY).save_pretrained(folder)


def write_weights(folder: Path, env: str, run: str) -> None:
    """Save the policy of a folder or of `RUN[:STEP]` for an environment, in half precision."""
    from selfdistill_cli.policies.huggingface import load_policy

    if env not in ENVIRONMENTS:
        raise ConfigError(f"environment: got {env}, expected one of {', '.join(ENVIRONMENTS)}")
    model: Any = load_policy(policy_folder(run, "runs", "RUN")).backbone
    model.half().save_pretrained(folder / env)


def main(words: list[str]) -> int:
    """Do what the words ask for, return 0; raises ConfigError if they ask for nothing known."""
    match words:
        case ["tokenizer"]:
            write_tokenizer(shipped_agents())
        case ["weights", env, run]:
            write_weights(shipped_agents(), env, run)
        case _:
            raise ConfigError(f"got {' '.join(words) or 'nothing'}, expected:\n{__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1:])))
