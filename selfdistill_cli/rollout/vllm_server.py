"""Sampling by vLLM servers: token ids in, token ids out, weights by folders that both sides see."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.core.types import Generation
from selfdistill_cli.rollout.copied_weights import (
    CopiedPolicy,
    Ranks,
    check_published,
    generation_of,
    probe_ids,
    trainer_logprobs,
)
from selfdistill_cli.rollout.server_client import (
    InferenceServer,
    check_tokenizer,
    own_logprobs,
    prompt_logprobs,
    served_model,
)
from selfdistill_cli.rollout.server_weights import check_local, load_adapter, load_model
from selfdistill_cli.rollout.settings import VllmSettings
from selfdistill_cli.rollout.weight_files import has_adapters, write_adapter, write_model

URL = "rollout.url"
IN_MEMORY = Path("/dev/shm")


class ServedRollout:
    """Implements `core.protocols.RolloutEngine` on servers that one run has to itself.

    Every rank sends its own requests to the server that falls to it; rank 0 publishes the weights
    to all of them while the other ranks wait. A full model is written as a folder that the servers
    load; adapters are written as a folder under a name of their own, so no cached prefix of earlier
    weights is ever read.
    """

    def __init__(self, settings: VllmSettings, policy: CopiedPolicy, world: Ranks):
        self.settings = settings
        self.policy = policy
        self.world = world
        self.version = 0
        self.servers = [
            InferenceServer(
                url=url, setting=URL, timeout_s=settings.timeout_s, retries=settings.retries
            )
            for url in settings.urls
        ]
        self.server = self.servers[world.rank % len(self.servers)]
        self.model = world.from_first(self._check_servers)
        self.serving = self.model
        self.publications = 0
        self.folder: Path | None = None

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Publish the weights to every server; raises ServerError, ConfigError."""
        self.version = version
        self.publications += 1
        self.serving = self.world.from_first(lambda: self._publish(weights))

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        max_new_tokens: int,
        temperature: float,
        with_hidden: bool = False,
    ) -> list[Generation]:
        """Sample as `InProcessRollout.generate` does, without hidden states.

        Raises ServerError if the server cannot be reached or answers nonsense.
        """
        stops = self.policy.chat.stop_ids
        bodies = [
            completion(self.serving, request, stops, max_new_tokens, temperature)
            for request in requests
        ]
        at_once = max(1, self.settings.max_batch_rows // self._ranks_here())
        answers = self.server.post_all("/v1/completions", bodies, at_once)
        found: list[Generation] = []
        for request, answer in zip(requests, answers, strict=True):
            ids, logprobs = self._sampled(request, answer)
            found.append(
                generation_of(
                    ids,
                    logprobs,
                    stop_ids=stops,
                    max_new_tokens=max_new_tokens,
                    who=f"{URL}={self.server.url}",
                )
            )
        return found

    def _ranks_here(self) -> int:
        """Ranks that share this rank's server."""
        return len(range(self.world.rank % len(self.servers), self.world.size, len(self.servers)))

    def _sampled(
        self, request: GenerationRequest, answer: Any
    ) -> tuple[list[int], list[float]]:
        try:
            choice = answer["choices"][0]
            prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
            logprobs = choice["logprobs"]["token_logprobs"]
            complete = list(prompt) == list(request.prompt_ids) and isinstance(ids[0], int)
        except (TypeError, KeyError, IndexError):
            complete, ids, logprobs = False, [], []
        if not complete:
            raise self.server.error(
                "/v1/completions",
                answer,
                "the prompt's own ids, sampled token_ids and their logprobs (vLLM 0.11 or newer)",
            )
        return ids, logprobs

    # --- the start --------------------------------------------------------------------------

    def _check_servers(self) -> str:
        """Compare every server with the policy before the first step; return the model's name."""
        names: set[str] = set()
        for server in self.servers:
            server.wait_until_ready(self.settings.wait_s)
            name, longest = served_model(server, self.settings.model, "rollout.model")
            needed = self.settings.max_context_tokens
            if longest is not None and longest < needed:
                raise ConfigError(
                    f"rollout.max_context_tokens={needed}: {server.url} was started with "
                    f"--max-model-len {longest}; start it with {needed} or more, or lower "
                    "rollout.max_context_tokens"
                )
            check_tokenizer(server, name, self.policy.chat.tokenizer)
            self._check_temperature(server, name)
            names.add(name)
        if len(names) > 1:
            raise ConfigError(
                f"{URL}: the servers call their model {', '.join(sorted(names))}; expected one "
                "name for all of them (--served-model-name)"
            )
        return names.pop()

    def _check_temperature(self, server: InferenceServer, model: str) -> None:
        """A server says by default what tokens had at temperature 1, whatever they were drawn at.

        The likeliest token is asked for at two temperatures: log-probabilities that do not
        change were not taken at them.
        """
        asked = self.settings.temperature
        if asked in (0, 1):
            return
        ids = probe_ids(self.policy)[:8]
        bodies = [
            {"model": model, "prompt": ids, "max_tokens": 1, "temperature": t, "top_p": 1.0,
             "top_k": 0, "seed": 0, "logprobs": 1, "return_tokens_as_token_ids": True}
            for t in (asked, 1.0)
        ]  # fmt: skip
        first, second = (_likeliest(server, answer) for answer in
                         server.post_all("/v1/completions", bodies, 2))
        if abs(first - second) < 1e-6:
            raise ConfigError(
                f"rollout.temperature={asked:g}: {server.url} gives log-probabilities at "
                "temperature 1 instead; start it with --logprobs-mode processed_logprobs, or use "
                "rollout.temperature=1.0"
            )

    # --- publishing -------------------------------------------------------------------------

    def _publish(self, weights: Iterable[tuple[str, torch.Tensor]]) -> str:
        """Send the weights to every server, probe them; return the name to ask for from now on."""
        place = self._folder() / f"weights_{self.publications:06d}"
        own = trainer_logprobs(self.policy, probe_ids(self.policy))
        if has_adapters(self.policy):
            write_adapter(place, self.policy, weights)
            name = f"student-{self._folder().name}-{self.publications}"
            for server in self.servers:
                load_adapter(server, name, self.serving, self.model, place)
        else:
            write_model(place, self.policy, weights)
            name = self.model
            for server in self.servers:
                load_model(server, place)
        ids = probe_ids(self.policy)
        for server in self.servers:
            (entries,) = prompt_logprobs(server, name, [ids], 0, 1)
            found, who = own_logprobs(ids, entries), f"{URL}={server.url}"
            check_published(self.policy, found, own, self.settings.max_gap, who)
        for earlier in self._folder().glob("weights_*"):
            # A server may read an adapter again while it is in use; a model it has read.
            if earlier != place or not has_adapters(self.policy):
                shutil.rmtree(earlier, ignore_errors=True)
        return name

    def _folder(self) -> Path:
        if self.folder is None:
            parent = self.settings.sync_folder
            if parent is None:
                check_local(self.servers)
                parent = str(IN_MEMORY) if IN_MEMORY.is_dir() else None
            with writing(Path(parent or tempfile.gettempdir())):
                if parent is not None:
                    Path(parent).mkdir(parents=True, exist_ok=True)
                made = tempfile.mkdtemp(prefix="selfdistill_", dir=parent)
                Path(made).chmod(0o755)  # the server may run under another name
            weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
            self.folder = Path(made)
        return self.folder


def completion(
    model: str,
    request: GenerationRequest,
    stop_ids: frozenset[int],
    max_new_tokens: int,
    temperature: float,
) -> dict[str, Any]:
    """The body of one request: plain sampling, whatever defaults the model's folder brings."""
    return {
        "model": model,
        "prompt": list(request.prompt_ids),
        "max_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": request.seed,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,  # what ends a turn is the policy's own list
        "stop_token_ids": sorted(stop_ids),
        "skip_special_tokens": False,
        "add_special_tokens": False,
        "logprobs": 0,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }


def _likeliest(server: InferenceServer, answer: Any) -> float:
    try:
        top: Mapping[str, float] = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        return max(float(value) for value in top.values())
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise server.error("/v1/completions", answer, "top_logprobs") from error
