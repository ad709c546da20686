"""An inference server for tests: the part of vLLM's HTTP API that is used, on a policy of ours.

It answers with real tokens and log-probabilities of the weights that it was given, over real HTTP.
What a broken server does can be switched on.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file

from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.losses.logprobs import align_to_tokens
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.settings import InProcessSettings

SETTINGS = InProcessSettings(
    max_new_tokens=1, temperature=1.0, max_turns=1, max_context_tokens=1, max_live_tokens=1,
    overflow="stop", env_wall_s=1.0, env_cpu_s=1.0, max_batch_rows=64, compact_fraction=0.25,
)  # fmt: skip


@dataclass
class Server:
    """What a test sees of a server, and what it may break."""

    policy: CausalPolicy
    name: str = "student"
    longest: int = 1024
    most_logprobs: int = 20
    adapters: dict[str, CausalPolicy] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every request: path and body."""
    url: str = ""
    broken: list[str] = field(default_factory=list)
    """How the next requests to /v1/completions fail: '503', 'words', 'empty', 'slow'."""
    ignores_weights: bool = False
    ignores_temperature: bool = False
    refuses_weights: bool = False
    other_letters: bool = False
    prompts_changed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, path: str) -> int:
        """Requests to a path so far."""
        return sum(seen == path for seen, _ in self.seen)

    def chosen(self, name: str) -> CausalPolicy:
        """The policy of a name: the base model or an adapter on it."""
        return self.policy if name == self.name else self.adapters[name]


@contextlib.contextmanager
def serving(policy: CausalPolicy, **switches: Any) -> Iterator[Server]:
    """Serve a copy of a policy on a free port of this machine until the block ends."""
    state = Server(copy.deepcopy(policy, {id(policy.chat): policy.chat}), **switches)
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Refusal(Exception):
    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    state: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        state, path = self.state, self.path
        state.seen.append((path, body))
        status, value = 200, None
        try:
            broken = state.broken.pop(0) if path == "/v1/completions" and state.broken else ""
            if broken == "slow":
                time.sleep(1.5)
            elif broken == "503":
                raise _Refusal(503, "overloaded")
            if broken == "words":
                value = "this is a page of something else"
            elif broken == "empty":
                value = {"choices": []}
            else:
                with state.lock:
                    value = ROUTES[path](state, body) if path in ROUTES else _missing(path)
        except _Refusal as refusal:
            status, value = refusal.status, {"error": {"message": str(refusal)}}
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        with contextlib.suppress(OSError):  # the client may have given up
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def _missing(path: str) -> Any:
    raise _Refusal(404, f"there is no {path}")


def _models(state: Server, body: Mapping[str, Any]) -> Any:
    base = {"id": state.name, "parent": None, "max_model_len": state.longest}
    return {"data": [base, *({"id": name, "parent": state.name} for name in state.adapters)]}


def _detokenize(state: Server, body: Mapping[str, Any]) -> Any:
    ids = list(body["tokens"])
    if state.other_letters:
        ids = [300 if i == 301 else i for i in ids]
    return {"prompt": state.policy.chat.tokenizer.decode(ids)}


def _completions(state: Server, body: Mapping[str, Any]) -> Any:
    if body["model"] != state.name and body["model"] not in state.adapters:
        raise _Refusal(404, f"The model `{body['model']}` does not exist.")
    policy = state.chosen(body["model"])
    if body.get("prompt_logprobs") is not None:
        return {"choices": [{"prompt_logprobs": _prompt_logprobs(state, policy, body)}]}
    stops = frozenset(body.get("stop_token_ids", ()))
    one = copy.copy(policy)
    one.chat = copy.copy(policy.chat)
    one.chat.stop_ids = stops or policy.chat.stop_ids
    request = GenerationRequest(prompt_ids=body["prompt"], seed=body["seed"])
    (found,) = InProcessRollout(SETTINGS, one).generate(
        [request], max_new_tokens=body["max_tokens"], temperature=body["temperature"]
    )
    ids = list(found.action_ids)
    logprobs = [float(x) for x in found.logprobs]
    temperature = 1.0 if state.ignores_temperature else body["temperature"] or 1.0
    given = table(policy, [*body["prompt"], *ids])[len(body["prompt"]) :]
    rows = (given / temperature).log_softmax(-1)
    likeliest = rows.topk(body["logprobs"]).indices.tolist()
    top = [
        {f"token_id:{i}": float(row[i]) for i in [own, *best]}
        for own, row, best in zip(ids, rows, likeliest, strict=True)
    ]
    if state.ignores_temperature:
        logprobs = [float(row[own]) for own, row in zip(ids, rows, strict=True)]
    prompt = [0, *body["prompt"]] if state.prompts_changed else body["prompt"]
    choice = {
        "token_ids": ids,
        "prompt_token_ids": prompt,
        "finish_reason": found.finish.value,
        "logprobs": {
            "token_logprobs": logprobs,
            "top_logprobs": top,
        },
    }
    return {"choices": [choice]}


@torch.no_grad()
def table(policy: CausalPolicy, ids: list[int]) -> torch.Tensor:
    """Log-probabilities [T,V] of every token in every place, at temperature 1."""
    hidden = policy.hidden_states(torch.tensor([ids]), None)
    weight, bias = policy.unembedding()
    logits = torch.nn.functional.linear(align_to_tokens(hidden)[0], weight, bias)
    return logits.float().log_softmax(-1)


def _prompt_logprobs(state: Server, policy: CausalPolicy, body: Mapping[str, Any]) -> Any:
    ids, most = list(body["prompt"]), body["prompt_logprobs"]
    if most > state.most_logprobs:
        raise _Refusal(400, f"Requested prompt logprobs of {most}, max {state.most_logprobs}")
    out: list[dict[str, Any] | None] = [None]
    for token, row in zip(ids[1:], table(policy, ids)[1:], strict=True):
        order = row.argsort(descending=True).tolist()
        named = dict.fromkeys([token, *order[:most]])
        out.append(
            {str(i): {"logprob": float(row[i]), "rank": order.index(i) + 1} for i in named}
        )
    return out


def _load_adapter(state: Server, body: Mapping[str, Any]) -> Any:
    if state.refuses_weights:
        _missing("/v1/load_lora_adapter")
    base = copy.deepcopy(state.policy.backbone)
    policy = CausalPolicy(PeftModel.from_pretrained(base, body["lora_path"]), state.policy.chat)
    state.adapters[body["lora_name"]] = policy.eval()
    return "Success: LoRA adapter added successfully."


def _unload_adapter(state: Server, body: Mapping[str, Any]) -> Any:
    if state.adapters.pop(body["lora_name"], None) is None:
        raise _Refusal(404, "The lora adapter cannot be found.")
    return "Success: LoRA adapter removed successfully."


def _collective_rpc(state: Server, body: Mapping[str, Any]) -> Any:
    if state.refuses_weights:
        _missing("/collective_rpc")
    assert body["method"] == "reload_weights"
    folder = Path(body["kwargs"]["weights_path"])
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert json.loads((folder / "config.json").read_text())["model_type"]
    weights: dict[str, torch.Tensor] = {}
    for file in set(index.values()):
        weights |= load_file(folder / file)
    if not state.ignores_weights:
        missing = state.policy.backbone.load_state_dict(weights, strict=False)
        assert not missing.unexpected_keys
        assert set(missing.missing_keys) <= {"lm_head.weight"}, missing
        state.policy.backbone.tie_weights()
    return {"results": [None]}


ROUTES: dict[str, Any] = {
    "/health": lambda state, body: "",
    "/v1/models": _models,
    "/detokenize": _detokenize,
    "/v1/completions": _completions,
    "/v1/load_lora_adapter": _load_adapter,
    "/v1/unload_lora_adapter": _unload_adapter,
    "/collective_rpc": _collective_rpc,
    "/reset_prefix_cache": lambda state, body: {"success": True},
}
