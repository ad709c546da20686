"""Build what scores the views: the student, copies of its weights, other models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from selfdistill_cli.core.errors import CheckpointError, ConfigError
from selfdistill_cli.core.settings import ViewSettings
from selfdistill_cli.methods.method import Method
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.huggingface import load_policy
from selfdistill_cli.policies.lora import ADAPTER_CONFIG
from selfdistill_cli.teachers.settings import HeuristicSettings, ServedTeacherSettings
from selfdistill_cli.teachers.weight_copy import (
    AdapterProductCopy,
    HeadCopy,
    WeightCopy,
)
from selfdistill_cli.training.engine import Engine
from selfdistill_cli.training.initial import policy_folder
from selfdistill_cli.training.scorers import CopyScorer, ModelScorer, Scorer, StudentScorer
from selfdistill_cli.training.served import ServedScorer
from selfdistill_cli.training.signals import find_function
from selfdistill_cli.training.world import World


def build_slow_copy(
    method: Method, policy: CausalPolicy, engine: Engine, root: str
) -> WeightCopy | None:
    """The weights that `method.sync` moves, None without one."""
    sync: Any = method.settings.sync
    if not getattr(sync, "keeps_copy", False):
        return None
    paths = {v.path for v in method.views.values() if v.weights == "slow_copy" and v.path}
    if len(paths) > 1:
        raise ConfigError(
            f"method.views: slow copies start from {', '.join(sorted(paths))}; there is one slow "
            "copy, so give one path"
        )
    if not paths:
        return _new_copy(sync, policy, engine)
    path = paths.pop()
    folder = policy_folder(path, root, "teacher.path")
    student = WeightCopy(policy.backbone, dtype=None)
    try:
        policy.load_backbone(folder)
    except CheckpointError as error:
        raise ConfigError(
            f"teacher.path={path}: a slow copy must have the student's shapes: {error} A lighter "
            "or larger teacher cannot follow the student: use teacher.weights=frozen method/sync="
            "none"
        ) from error
    slow = _new_copy(sync, policy, engine)
    if slow.is_policy:  # the engine's own copy follows what it trains, which is not the teacher
        slow.load_state_dict(WeightCopy(policy.backbone).state_dict())
    student.write_back()
    return slow


def _new_copy(sync: Any, policy: CausalPolicy, engine: Engine) -> WeightCopy:
    is_product = sync.lora_average == "product" and hasattr(policy.backbone, "peft_config")
    if engine.divides_weights and (sync.scope == "head" or is_product):
        key = "scope=head" if sync.scope == "head" else "lora_average=product"
        raise ConfigError(
            f"method.sync.{key}: zero=zero3 divides the weights that it is made of; use zero=zero2 "
            "or zero=zero2_offload, or average the factors of all weights "
            "(method.sync.scope=all method.sync.lora_average=factors)"
        )
    if sync.scope == "head":
        if not policy.unembedding()[0].requires_grad:
            raise ConfigError(
                "method.sync.scope: got head, but policy.lora does not train the unembedding, so "
                "the slow head would always be the student's; use method.sync.scope=all"
            )
        return HeadCopy(policy)
    if is_product:
        return AdapterProductCopy(policy.backbone)
    return engine.new_copy()


def build_models(
    views: Mapping[str, ViewSettings], policy: CausalPolicy, root: str
) -> dict[str, CausalPolicy]:
    """The models of frozen views that are not the student's, by view name.

    Before an engine takes the policy over: what it attaches to the weights cannot be copied.
    """
    found: dict[str, CausalPolicy] = {}
    for name, view in views.items():
        if view.weights == "frozen" and view.path is not None:
            key = "teacher.path" if name == "teacher" else f"method.views.{name}.path"
            found[name] = _other_model(policy, view.path, root, key)
    return found


def build_scorers(
    views: Mapping[str, ViewSettings],
    policy: CausalPolicy,
    engine: Engine,
    slow_copy: WeightCopy | None,
    models: Mapping[str, CausalPolicy],
    world: World,
) -> dict[str, Scorer | ServedScorer]:
    """One scorer per view; frozen views of the initial policy share one copy."""
    initial: WeightCopy | None = None
    scorers: dict[str, Scorer | ServedScorer] = {}
    for name, view in views.items():
        if isinstance(view, ServedTeacherSettings):
            key = "teacher" if name == "teacher" else f"method.views.{name}"
            scorers[name] = ServedScorer(view, policy, key, world)
            continue
        if isinstance(view, HeuristicSettings):
            find_function(view.function, f"{name}.function")
        if view.weights == "policy":
            scorers[name] = StudentScorer(engine)
        elif view.weights == "slow_copy":
            assert slow_copy is not None, "config.rules asks for a sync that keeps a copy"
            scorers[name] = CopyScorer(engine, slow_copy)
        elif view.weights == "base":
            scorers[name] = CopyScorer(engine, _base_copy(policy, engine, name))
        elif view.path is None:
            initial = initial or engine.new_copy(dtype=None)
            scorers[name] = CopyScorer(engine, initial)
        else:
            other = models[name].to(engine.device)
            _fit_vocabulary(other, policy.unembedding()[0].shape[0])
            scorers[name] = ModelScorer(other)
    return scorers


def _base_copy(policy: CausalPolicy, engine: Engine, name: str) -> WeightCopy:
    """The base under the student's adapters; raises ConfigError if there are none."""
    key = "teacher" if name == "teacher" else f"method.views.{name}"
    if not hasattr(policy.backbone, "peft_config"):
        raise ConfigError(
            f"{key}.weights: got base, but the policy has no adapters (policy.lora.rank=0), so "
            f"there is no base beside it; use {key}.weights=frozen with {key}.path=FOLDER of the "
            f"model that you mean, or {key}.path=null for the run's initial policy"
        )
    return engine.new_copy(dtype=None).without_adapters()


def _other_model(policy: CausalPolicy, path: str, root: str, key: str) -> CausalPolicy:
    """A frozen model from a folder or a run, checked to speak the student's tokens."""
    folder = policy_folder(path, root, key)
    dtype = str(policy.unembedding()[0].dtype).removeprefix("torch.")
    try:
        if (folder / ADAPTER_CONFIG).is_file():  # adapters on the student's own base model
            other = copy.deepcopy(policy)
            other.load_backbone(folder)
            return other
        other = load_policy(folder, dtype=dtype)
    except CheckpointError as error:
        raise ConfigError(
            f"{key}={path}: adapters teach a student with the same base model and policy.lora "
            f"settings, and these do not fit: {error}"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{key}={path}: {error}") from error
    _check_tokenizer(policy, other, f"{key}={path}")
    other.temperature = policy.temperature
    return other


def _check_tokenizer(policy: CausalPolicy, other: CausalPolicy, where: str) -> None:
    """Raise ConfigError unless both map the same texts to the same ids."""
    own, theirs = (p.chat.tokenizer.get_vocab() for p in (policy, other))
    if own == theirs:
        return
    differing = sorted(set(own.items()) ^ set(theirs.items()), key=lambda item: item[1])
    token, index = differing[0]
    raise ConfigError(
        f"{where}: its tokenizer differs from the student's in {len(differing)} entries, for "
        f"example {token!r} (id {index}); expected a model with the same tokenizer, because the "
        "teacher scores the student's own token ids"
    )


def _fit_vocabulary(other: CausalPolicy, size: int) -> None:
    """Give both unembeddings as many rows: rows beyond the tokenizer are padding."""
    weight, bias = other.unembedding()
    rows = weight.shape[0]
    if rows == size:
        return
    if rows > size:
        other.head_override = weight[:size], None if bias is None else bias[:size]
        return
    padded = torch.nn.functional.pad(weight, (0, 0, 0, size - rows))
    bias = weight.new_zeros(rows) if bias is None else bias
    other.head_override = padded, torch.nn.functional.pad(bias, (0, size - rows), value=-torch.inf)
