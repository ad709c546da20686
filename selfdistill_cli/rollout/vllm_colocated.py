"""Sampling by vLLM in the training process. The only module that imports it."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

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
from selfdistill_cli.rollout.settings import VllmSettings
from selfdistill_cli.rollout.weight_files import (
    base_weights,
    has_adapters,
    write_adapter,
    write_model,
)

WHO = "rollout=vllm"


class ColocatedRollout:
    """Implements `core.protocols.RolloutEngine` on an engine of this rank alone.

    The engine starts at the first publication, from a folder with the weights of that moment.
    Later ones are handed over tensor by tensor; adapters are loaded from a folder in memory, under
    a new number, so no cached prefix of earlier weights is read.
    """

    def __init__(self, settings: VllmSettings, policy: CopiedPolicy, world: Ranks):
        if settings.tensor_parallel_size > 1 and world.size > 1:
            raise ConfigError(
                f"rollout.tensor_parallel_size={settings.tensor_parallel_size}: with several ranks "
                "every rank has an engine of its own on its GPU; use 1, or servers (rollout.url)"
            )
        if has_adapters(policy) and getattr(policy.language_model, "is_quantized", False):
            raise ConfigError(
                f"{WHO}: the policy's base is quantized, which cannot be handed to an engine in "
                "this process; serve the plain base (rollout.url), or use policy.quantization=none"
            )
        self.settings = settings
        self.policy = policy
        self.world = world
        self.vllm = _import()
        self.version = 0
        self.publications = 0
        self.engine: Any = None
        self.adapter: Any = None
        self.asleep = False
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="selfdistill_", dir=memory))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the engine's weights; the first call starts it. Raises ServerError."""
        self.version = version
        self.publications += 1
        if has_adapters(self.policy):
            named = list(weights)  # views of the policy's own tensors, not copies
            if self.engine is None:
                self._start(named)
            self._wake()
            place = self.folder / f"adapter_{self.publications:06d}"
            write_adapter(place, self.policy, named)
            self.adapter = importlib.import_module("vllm.lora.request").LoRARequest(
                place.name, self.publications, str(place)
            )
        elif self.engine is None:
            self._start(weights)
        else:
            self._wake()
            self._reload(weights)
            self.engine.reset_prefix_cache()
        self._probe()
        for earlier in self.folder.glob("adapter_*"):
            if self.adapter is None or earlier.name != self.adapter.lora_name:
                shutil.rmtree(earlier, ignore_errors=True)

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        max_new_tokens: int,
        temperature: float,
        with_hidden: bool = False,
    ) -> list[Generation]:
        """Sample as `InProcessRollout.generate` does, without hidden states."""
        assert self.engine is not None, "weights are published before anything is sampled"
        if not requests:
            return []
        self._wake()
        stops = self.policy.chat.stop_ids
        outputs = self._run(
            [request.prompt_ids for request in requests],
            [
                {
                    "temperature": temperature, "seed": request.seed, "max_tokens": max_new_tokens,
                    "logprobs": 0, "ignore_eos": True, "stop_token_ids": sorted(stops),
                }
                for request in requests
            ],
        )  # fmt: skip
        return [
            generation_of(
                list(output.outputs[0].token_ids),
                _chosen(output.outputs[0].token_ids, output.outputs[0].logprobs),
                stop_ids=stops,
                max_new_tokens=max_new_tokens,
                who=WHO,
            )
            for output in outputs
        ]

    def rest(self) -> None:
        """Give the GPU's memory to training until weights are published or tokens sampled."""
        if self.engine is not None and self._can_sleep() and not self.asleep:
            # Level 2 forgets the base, which is published with the first adapters only.
            self.engine.sleep(level=1 if self.adapter else self.settings.sleep_level)
            self.asleep = True

    def _wake(self) -> None:
        if self.asleep:
            self.engine.wake_up()
            self.asleep = False

    def _can_sleep(self) -> bool:
        return self.settings.sleep_level > 0 and self.policy.device.type == "cuda"

    def _start(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        place = self.folder / "model"
        write_model(place, self.policy, weights)
        s, dtype = self.settings, self.policy.unembedding()[0].dtype
        adapters = has_adapters(self.policy)
        more: dict[str, Any] = {"max_lora_rank": _lora_rank(self.policy)} if adapters else {}
        if self.world.size > 1:
            more["distributed_executor_backend"] = "external_launcher"
        if self.policy.device.type == "cuda":
            more["gpu_memory_utilization"] = s.gpu_memory_utilization
        training = torch.get_rng_state()
        self.engine = self.vllm.LLM(
            model=str(place),
            skip_tokenizer_init=True,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            dtype=str(dtype).removeprefix("torch."),
            max_model_len=s.max_context_tokens,
            max_num_seqs=s.max_batch_rows,
            tensor_parallel_size=s.tensor_parallel_size,
            enforce_eager=s.enforce_eager,
            enable_sleep_mode=self._can_sleep(),
            enable_lora=adapters,
            seed=0,
            **more,
        )
        torch.set_rng_state(training)
        if s.tensor_parallel_size == 1:
            shutil.rmtree(place)

    def _reload(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        if self.settings.tensor_parallel_size == 1:  # the worker is in this process
            named = base_weights(weights)
            self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": named})
            if self.policy.device.type == "cpu":
                self.engine.apply_model(_pack_head)
            return
        place = self.folder / "model"
        write_model(place, self.policy, weights)
        self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(place)})

    def _probe(self) -> None:
        ids = probe_ids(self.policy)
        (output,) = self._run([ids], [{"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0}])
        own = trainer_logprobs(self.policy, ids)
        found = _chosen(ids[1:], output.prompt_logprobs[1:])
        check_published(self.policy, found, own, self.settings.max_gap, WHO)

    def _run(self, prompts: Sequence[Sequence[int]], sampling: Sequence[dict[str, Any]]) -> Any:
        return self.engine.generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts],
            [self.vllm.SamplingParams(detokenize=False, **one) for one in sampling],
            use_tqdm=False,
            lora_request=self.adapter,
        )


def _pack_head(model: Any) -> None:
    """On a CPU vLLM multiplies with a packed copy of the unembedding; one that is tied to the
    embeddings is not packed anew when weights are loaded again."""
    head, embeddings = model.lm_head, model.model.embed_tokens
    if model.config.tie_word_embeddings:
        head.weight = embeddings.weight
        head.quant_method.process_weights_after_loading(head)


def _chosen(ids: Sequence[int], entries: Sequence[Any]) -> list[float]:
    return [float(entry[token].logprob) for token, entry in zip(ids, entries, strict=True)]


def _lora_rank(policy: CopiedPolicy) -> int:
    """vLLM's smallest size of adapters that fits the policy's."""
    rank = int(policy.backbone.peft_config["default"].r)
    sizes = (8, 16, 32, 64, 128, 256, 320, 512)
    return next((size for size in sizes if size >= rank), rank)


def _import() -> Any:
    """vLLM with its engine in this process; raises ConfigError without it."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        return importlib.import_module("vllm")
    except (ImportError, RuntimeError) as error:  # a torchvision of another torch is the latter
        raise ConfigError(
            f"{WHO}: vLLM cannot be imported here ({error}); install it beside this package as "
            "docs/vllm.md says, or give the address of a server (rollout.url=http://host:8000), or "
            "use rollout=in_process"
        ) from error
