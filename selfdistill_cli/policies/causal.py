"""The policy: a causal language model, its chat template and, if a method needs one, a critic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from selfdistill_cli.core.errors import CheckpointError, ConfigError
from selfdistill_cli.core.needs import DivergenceNeed, LayerNeed, Needs
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.losses.distribution import FullTeacher, TopTeacher, divergence
from selfdistill_cli.losses.logprobs import align_to_tokens, token_statistics
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.folders import VALUE_HEAD_FILE, held, load_full, write
from selfdistill_cli.policies.stepping import Stepper


class CausalPolicy(nn.Module):
    """Wraps a Hugging Face `*ForCausalLM` (or a peft model around one).

    Log-probabilities are taken at `temperature`, which a run sets to the rollout's sampling
    temperature, so that both sides of an importance ratio mean the same distribution.
    """

    def __init__(self, backbone: nn.Module, chat: TemplateChat):
        super().__init__()
        self.backbone = backbone
        self.chat = chat
        self.value_head: nn.Linear | None = None
        self.temperature = 1.0
        self.head_override: tuple[torch.Tensor, torch.Tensor | None] | None = None
        self._reject_scaled_logits()

    @property
    def language_model(self) -> Any:
        """The `*ForCausalLM` itself, with adapters in place if there are any."""
        unwrap = getattr(self.backbone, "get_base_model", None)
        return self.backbone if unwrap is None else unwrap()

    @property
    def decoder(self) -> Any:
        """The model without its head: its output is the input of the unembedding."""
        return self.language_model.base_model

    @property
    def config(self) -> Any:
        """The language model's configuration."""
        return self.language_model.config.get_text_config()

    @property
    def hidden_size(self) -> int:
        """Width H of the last hidden state."""
        return int(self.config.hidden_size)

    @property
    def context_length(self) -> int | None:
        """Positions that the model was built for, if its configuration says so."""
        length = getattr(self.config, "max_position_embeddings", None)
        return None if length is None else int(length)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def add_value_head(self) -> nn.Linear:
        """Create the critic's head (float32, zero, so that values start at 0) unless it exists."""
        if self.value_head is None:
            head = nn.Linear(self.hidden_size, 1, dtype=torch.float32, device=self.device)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            self.value_head = head
        return self.value_head

    def hidden_states(
        self, token_ids_BT: torch.Tensor, attention_mask_BT: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the last hidden states [B,T,H], after the final norm. See `_decode`."""
        return self._decode(token_ids_BT, attention_mask_BT).last_hidden_state

    def _decode(
        self,
        token_ids_BT: torch.Tensor,
        attention_mask_BT: torch.Tensor | None,
        every_layer: bool = False,
    ) -> Any:
        """Run the model without its head.

        Positions count the tokens that the mask lets through, so padding may be on either side.
        Without a mask every row is read from position 0 on: right for rows padded on the right,
        because a causal model's real tokens never see what follows them.
        """
        positions_BT = None
        if attention_mask_BT is not None:
            positions_BT = (attention_mask_BT.long().cumsum(-1) - 1).clamp(min=0)
        return self.decoder(
            input_ids=token_ids_BT,
            attention_mask=attention_mask_BT,
            position_ids=positions_BT,
            use_cache=False,
            output_hidden_states=every_layer,
        )

    def stepper(self, prompts: Sequence[Sequence[int]], num_new: int) -> Stepper:
        """Read prompts and return what extends them, one id per row, up to `num_new` ids."""
        return Stepper(self, prompts, num_new)

    def unembedding(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the matrix [V,H] and the bias [V] that turn hidden states into logits.

        `head_override` stands in for the model's own while a slow head is scored.
        """
        if self.head_override is not None:
            return self.head_override
        head = self.language_model.get_output_embeddings()
        return head.weight, getattr(head, "bias", None)

    def score(
        self, batch: Batch, needs: Needs, temperature: float | None = None
    ) -> PolicyOutput:
        """Score the batch's action tokens; everything is aligned to tokens, 0 where inactive.

        `needs` may hold "entropy", "hidden", and, with a critic, "values" or "values_detached"
        (whose gradient stops at the hidden state), divergences from views of the batch, and the
        hidden states of layers.
        `temperature` defaults to the policy's own; 0 (greedy) scores at 1, as the rollout records.
        """
        chosen = self.temperature if temperature is None else temperature
        token_ids = batch.token_ids.to(self.device)
        active = batch.action_mask.to(self.device)
        layers = [need for need in needs if isinstance(need, LayerNeed)]
        # Batches are padded on the right, so no mask is needed.
        decoded = self._decode(token_ids, None, every_layer=bool(layers))
        hidden_BTH = decoded.last_hidden_state
        weight, bias = self.unembedding()
        logprobs, entropy = token_statistics(
            hidden_BTH,
            weight,
            bias,
            token_ids,
            active,
            temperature=chosen or 1.0,
            need_entropy="entropy" in needs,
        )
        return PolicyOutput(
            logprobs=logprobs,
            entropy=entropy,
            values=self._values(hidden_BTH, active, needs),
            hidden=_chosen_in(hidden_BTH, active) if "hidden" in needs else None,
            divergences={
                need: self._divergence(hidden_BTH, active, batch, need)
                for need in needs
                if isinstance(need, DivergenceNeed)
            },
            layers={need: _layers(decoded.hidden_states, need.layers, active) for need in layers},
        )

    def _divergence(
        self, hidden_BTH: torch.Tensor, active_BT: torch.Tensor, batch: Batch, need: DivergenceNeed
    ) -> torch.Tensor:
        """Divergence of every action token from a view [B,T], 0 where inactive."""
        weight, bias = self.unembedding()
        per_token_N = divergence(
            align_to_tokens(hidden_BTH)[active_BT],
            weight,
            bias,
            _teacher(batch, need, active_BT),
            kind=need.direction,
            alpha=need.alpha,
            temperature=need.temperature,
        )
        zeros_BT = per_token_N.new_zeros(active_BT.shape)
        return zeros_BT.masked_scatter(active_BT, per_token_N)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) of parameters and saved buffers; tied weights once."""
        kept = set(self.state_dict())
        for name, parameter in self.named_parameters():
            yield name, parameter.detach()
        for name, buffer in self.named_buffers():
            if name in kept:
                yield name, buffer

    def held(self) -> dict[str, torch.Tensor]:
        """What a folder holds: all weights and saved buffers, or adapters alone, and the critic.

        The tensors are the policy's own, as they are now, and nothing is copied.
        """
        return held(self.backbone, self.value_head)

    def save(self, directory: Path, tensors: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write a Hugging Face folder: weights (or adapters), tokenizer and the critic's head.

        `tensors` stand in for `held()`, for example a copy that was taken of it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        write(directory, self.backbone, self.held() if tensors is None else tensors)
        self.chat.tokenizer.save_pretrained(directory)

    def load(self, directory: Path) -> None:
        """Read weights that `save` wrote; a critic's head is created if the folder has one."""
        self.load_backbone(directory)
        head_file = directory / VALUE_HEAD_FILE
        if head_file.exists():
            self.add_value_head().load_state_dict(load_file(head_file))
        elif self.value_head is not None:
            raise CheckpointError(
                f"{directory}: has no {VALUE_HEAD_FILE}, but this run's method has a critic; "
                "start from a checkpoint of a method with a critic, or train one from zero by "
                "loading the weights before the critic is added"
            )

    def load_backbone(self, directory: Path) -> None:
        """Read the language model's weights, or its adapters, and leave the critic alone."""
        if hasattr(self.backbone, "peft_config"):
            from selfdistill_cli.policies.lora import load_adapter

            load_adapter(self.backbone, directory)
        else:
            load_full(self.backbone, directory)

    def _values(
        self, hidden_BTH: torch.Tensor, active_BT: torch.Tensor, needs: frozenset[str]
    ) -> torch.Tensor | None:
        if not needs & {"values", "values_detached"}:
            return None
        assert self.value_head is not None, "call add_value_head before asking for values"
        if "values" not in needs:
            hidden_BTH = hidden_BTH.detach()
        head = self.value_head  # float32, but an engine may train it in the model's precision
        values_BT = head(hidden_BTH.to(head.weight.dtype)).squeeze(-1).float()
        return align_to_tokens(values_BT).masked_fill(~active_BT, 0.0)

    def _reject_scaled_logits(self) -> None:
        """Refuse models whose logits are not exactly hidden @ unembedding + bias."""
        for key in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(self.config, key, None) not in (None, 0, 1, 1.0):
                raise ConfigError(
                    f"policy.path: the model's config.json sets {key}="
                    f"{getattr(self.config, key)}; expected a model whose logits are its last "
                    "hidden state times the unembedding (Llama, Qwen, GPT-2, ...). Use another "
                    "model."
                )


def _teacher(
    batch: Batch, need: DivergenceNeed, active_BT: torch.Tensor
) -> FullTeacher | TopTeacher:
    """The view's distributions at the active tokens."""
    view = batch.views[need.view]
    if need.top is not None:
        ids, logprobs, tail = (x[active_BT] for x in view.tops[need.top])
        return TopTeacher(ids_NK=ids, logprobs_NK=logprobs, tail_N=tail)
    assert view.hidden is not None, "the judge phase keeps what a term needs"
    assert view.unembedding is not None, "the judge phase keeps what a term needs"
    weight, bias = view.unembedding
    hidden_NH = view.hidden[active_BT].to(weight.dtype)
    return FullTeacher(hidden_NH=hidden_NH, unembedding_VH=weight, bias_V=bias)


def _layers(
    hidden_states: Sequence[torch.Tensor], layers: Sequence[int], active_BT: torch.Tensor
) -> torch.Tensor:
    """Hidden states [B,T,L,H] of the chosen layers, in the order given."""
    chosen = [_chosen_in(hidden_states[i], active_BT) for i in layers]
    return torch.stack(chosen, dim=2)


def _chosen_in(hidden_BTH: torch.Tensor, active_BT: torch.Tensor) -> torch.Tensor:
    return align_to_tokens(hidden_BTH).masked_fill(~active_BT[..., None], 0.0)
