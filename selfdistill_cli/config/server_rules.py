"""Rules about inference servers: what an engine or a teacher behind one cannot give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from selfdistill_cli.config.method_rules import is_active
from selfdistill_cli.training.settings import TrainSettings


def addresses_are_whole(settings: TrainSettings) -> Iterator[str]:
    """A server's address has a scheme and a host."""
    asked = {"rollout.url": getattr(settings.rollout, "urls", [])}
    for key, view in _served(settings).items():
        asked[f"{key}.url"] = [view.url]
    for key, urls in asked.items():
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                yield f"{key}: got '{url}', expected an address such as http://host:8000"


def copies_are_plain_weights(settings: TrainSettings) -> Iterator[str]:
    """An engine with its own copy of the weights plays what can be written as weights."""
    method: Any = settings.method
    if not getattr(settings.rollout, "copies_weights", False):
        return
    plays = method.evaluate_teacher or getattr(settings.teacher, "path", None) is not None
    for key, whole in (("scope", "all"), ("lora_average", "factors")):
        if plays and getattr(method.sync, key, whole) != whole:
            yield (
                f"method.sync.{key}: got {getattr(method.sync, key)}, but the slow copy is "
                "evaluated too, and rollout=vllm plays weights or adapters only; use "
                f"method.sync.{key}={whole}, or method.evaluate_teacher=false without teacher.path"
            )


def served_teachers_are_frozen(settings: TrainSettings) -> Iterator[str]:
    """A server's weights are its own."""
    for key, view in _served(settings).items():
        if view.weights != "frozen" or view.path is not None:
            yield (
                f"{key}: got weights={view.weights} path={view.path}, but a server has its own "
                f"weights, which never change; use {key}.weights=frozen {key}.path=null"
            )


def served_teachers_score_at_one(settings: TrainSettings) -> Iterator[str]:
    """A server scores given tokens at temperature 1, the student at rollout.temperature."""
    temperature = getattr(settings.rollout, "temperature", 1.0)
    for key in _served(settings):
        if temperature not in (0, 1):
            yield (
                f"rollout.temperature: got {temperature:g}, but the server of {key} scores tokens "
                "at temperature 1, so the two could not be compared; use rollout.temperature=1.0, "
                "or a teacher in this process (teacher=frozen teacher.path=FOLDER)"
            )


def served_teachers_give_few_numbers(settings: TrainSettings) -> Iterator[str]:
    """Log-probabilities of the sampled token and of the likeliest ones; no hidden states."""
    method: Any = settings.method
    names = {key.rpartition(".")[2] for key in _served(settings)}
    for name, term in method.terms.items():
        view = getattr(term, "view", None)
        if view in names and is_active(term):
            yield from _too_much(f"method.terms.{name}", view, term)
    credit = method.credit
    if getattr(credit, "view", None) in names and getattr(credit, "divergence", "") == "full":
        yield (
            f"method.credit.divergence: got full, but the view '{credit.view}' is served, and a "
            "server does not give whole distributions; use method.credit.divergence=sampled, or a "
            "teacher in this process (teacher=frozen teacher.path=FOLDER)"
        )


def _too_much(where: str, view: str, term: Any) -> Iterator[str]:
    support, temperature = getattr(term, "support", "sampled"), getattr(term, "temperature", 1.0)
    remedy = (
        f"use {where}.support=sampled, or {where}.support=teacher_topk {where}.topk=20, or a "
        "teacher in this process (teacher=frozen teacher.path=FOLDER)"
    )
    if getattr(term, "layers", None) is not None:
        yield (
            f"{where}: matches hidden states, which the server of view '{view}' does not give; "
            "use a teacher in this process (teacher=frozen teacher.path=FOLDER)"
        )
    elif support not in ("sampled", "teacher_topk"):
        yield (
            f"{where}.support: got {support}, but the server of view '{view}' gives the sampled "
            f"token and the likeliest ones only; {remedy}"
        )
    elif support == "teacher_topk" and temperature != 1:
        yield (
            f"{where}.temperature: got {temperature:g}, but the server of view '{view}' scores at "
            f"temperature 1; use {where}.temperature=1.0"
        )


def _served(settings: TrainSettings) -> dict[str, Any]:
    """The views that a server scores, by their key."""
    method: Any = settings.method
    views = {f"method.views.{name}": view for name, view in method.views.items()}
    return {
        key: view
        for key, view in {**views, "teacher": settings.teacher}.items()
        if getattr(view, "is_served", False)
    }


SERVER_RULES: tuple[Callable[[TrainSettings], Iterator[str]], ...] = (
    addresses_are_whole,
    copies_are_plain_weights,
    served_teachers_are_frozen,
    served_teachers_score_at_one,
    served_teachers_give_few_numbers,
)
