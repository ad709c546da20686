"""A client of inference servers that speak vLLM's HTTP API: bounded waits, bounded retries."""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.core.errors import ConfigError, ServerError

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses after which the same request may succeed later."""
POLL_S = 1.0
MOST_SHOWN = 400
"""Characters of an answer that are shown in an error."""
API_KEY = "VLLM_API_KEY"
"""Environment variable with the key of a server that was started with --api-key."""


class Refused(ServerError):
    """The server understood the request and said no; sending it again would not help."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[Refused], tuple[str, int]]:
        """It travels to other ranks."""
        return Refused, (str(self), self.status)


@dataclass(frozen=True, kw_only=True)
class InferenceServer:
    """One server. `setting` is the key that named it, for errors."""

    url: str
    """Such as http://host:8000."""
    setting: str
    """Key of the configuration, such as rollout.url."""
    timeout_s: float
    """Seconds in which it must answer one request."""
    retries: int
    """How often a failed request is sent again."""

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for a server that is starting; raises ServerError when the time is over."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self._once("GET", "/health", None, min(self.timeout_s, 10.0))
            except _Failure as failure:
                if time.monotonic() >= end:
                    raise self._lost("/health", failure, 1) from failure
            time.sleep(POLL_S)

    def get(self, path: str) -> Any:
        """Return the JSON of a page; raises ServerError."""
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON and return JSON, None for an empty answer; raises ServerError."""
        return self._request("POST", path, body)

    def post_all(
        self, path: str, bodies: Sequence[Mapping[str, Any]], at_once: int
    ) -> list[Any]:
        """Send several, at most `at_once` at a time; answers in order. The first error is told."""
        if not bodies:
            return []
        pool = ThreadPoolExecutor(max_workers=min(at_once, len(bodies)))
        try:
            waiting = [pool.submit(self.post, path, body) for body in bodies]
            return [one.result() for one in waiting]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def error(self, path: str, found: Any, expected: str) -> ServerError:
        """The error for an answer that makes no sense."""
        shown = found if isinstance(found, str) else json.dumps(found, default=str)
        return ServerError(
            f"{self.setting}={self.url}: {path} answered {shown[:MOST_SHOWN]!r}; expected "
            f"{expected}. Is this a vLLM server (docs/vllm.md)?"
        )

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        pause = FIRST_PAUSE_S
        for attempt in range(self.retries + 1):
            try:
                return self._once(method, path, body, self.timeout_s)
            except _Failure as failure:
                if attempt == self.retries:
                    raise self._lost(path, failure, attempt + 1) from failure
                log.warning("%s%s: %s; trying again in %g s", self.url, path, failure, pause)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _once(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> Any:
        """One attempt; raises _Failure for what may pass, Refused for what will not."""
        request = urllib.request.Request(
            self.url.rstrip("/") + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=_headers(),
            method=method,
        )
        try:
            with _OPENER.open(request, timeout=timeout_s) as answer:
                text = answer.read()
            return json.loads(text) if text.strip() else None
        except urllib.error.HTTPError as error:
            said = error.read(10 * MOST_SHOWN).decode(errors="replace")[:MOST_SHOWN]
            if error.code in PASSING:
                raise _Failure(f"status {error.code}: {said}") from error
            raise Refused(
                f"{self.setting}={self.url}: {path} refused with status {error.code}: {said}",
                error.code,
            ) from error
        except ValueError as error:
            if path in ("/health", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
                return None  # these say yes in words
            raise _Failure(f"an answer that is not JSON ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Failure(str(getattr(error, "reason", error)) or repr(error)) from error

    def _lost(self, path: str, failure: _Failure, attempts: int) -> ServerError:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return ServerError(
            f"{self.setting}={self.url}: no answer to {path} after {tries} of at most "
            f"{self.timeout_s:g} s: {failure}. Start the server again (launch/vllm/serve.sh), or "
            f"correct {self.setting}; the same command continues"
        )


class _Failure(Exception):
    """An attempt that failed in a way that may pass."""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Servers of a cluster are spoken to directly, whatever proxy the environment names."""


def _headers() -> dict[str, str]:
    key = os.environ.get(API_KEY)
    known = {"Authorization": f"Bearer {key}"} if key else {}
    return {"Content-Type": "application/json", **known}


def served_model(server: InferenceServer, wanted: str | None, key: str) -> tuple[str, int | None]:
    """Return (name, longest sequence in tokens or None) of the base model that a server has.

    Raises ConfigError if it is not there, or if `wanted` is None and there are several.
    """
    try:
        models = server.get("/v1/models")["data"]
        bases = {m["id"]: m.get("max_model_len") for m in models if not m.get("parent")}
    except (TypeError, KeyError) as error:
        raise server.error("/v1/models", f"{error!r} is missing", "a list of models") from error
    if wanted is None and len(bases) == 1:
        wanted = next(iter(bases))
    if wanted not in bases:
        found = "got null" if wanted is None else f"got '{wanted}'"
        raise ConfigError(
            f"{key}: {found}, but {server.url} serves {', '.join(sorted(bases)) or 'no model'}; "
            f"expected one of these names"
        )
    return wanted, bases[wanted]


def check_tokenizer(server: InferenceServer, model: str, tokenizer: Any) -> None:
    """Raise ConfigError unless the server turns every token id into the student's own text."""
    size = len(tokenizer)
    for start in range(0, size, IDS_AT_ONCE):
        ids = list(range(start, min(size, start + IDS_AT_ONCE)))
        theirs = _detokenized(server, model, ids)
        if theirs != tokenizer.decode(ids):
            wrong = next((i for i in ids if _detokenized(server, model, [i]) !=
                          tokenizer.decode([i])), start)
            raise ConfigError(
                f"{server.setting}={server.url}: its tokenizer is not the student's: id {wrong} is "
                f"{_detokenized(server, model, [wrong])!r} there and "
                f"{tokenizer.decode([wrong])!r} here; expected a model with the same tokenizer, "
                "because token ids are what is exchanged. Serve another model, or choose another "
                "policy"
            )


IDS_AT_ONCE = 4096
"""Token ids in one request of the comparison of tokenizers."""


def _detokenized(server: InferenceServer, model: str, ids: Sequence[int]) -> str | None:
    """The server's text of ids, None where it knows no such id."""
    try:
        answer = server.post("/detokenize", {"model": model, "tokens": list(ids)})
    except Refused as error:
        if error.status == 404:
            raise
        return None
    found = answer.get("prompt") if isinstance(answer, dict) else None
    if not isinstance(found, str):
        raise server.error("/detokenize", answer, "{'prompt': text}")
    return found


def prompt_logprobs(
    server: InferenceServer, model: str, rows: Sequence[Sequence[int]], top: int, at_once: int
) -> list[list[Mapping[str, Any] | None]]:
    """What the server's model gives the tokens of each row, at temperature 1.

    One entry per token: None at the first one, else a mapping from token id (as text) to
    {"logprob": number, "rank": number} that has the token itself and the `top` likeliest.
    """
    bodies = [
        {
            "model": model, "prompt": list(row), "max_tokens": 1, "temperature": 0.0,
            "prompt_logprobs": top, "add_special_tokens": False,
        }
        for row in rows
    ]  # fmt: skip
    found: list[list[Mapping[str, Any] | None]] = []
    for row, answer in zip(
        rows, server.post_all("/v1/completions", bodies, at_once), strict=True
    ):
        try:
            entries = answer["choices"][0]["prompt_logprobs"]
            whole = len(entries) == len(row) and all(
                str(token) in entry for token, entry in zip(row[1:], entries[1:], strict=True)
            )
        except (TypeError, KeyError, IndexError, ValueError):
            whole, entries = False, []
        if not whole:
            raise server.error(
                "/v1/completions", answer, f"prompt_logprobs of the {len(row)} tokens sent"
            )
        found.append(entries)
    return found


def own_logprobs(
    row: Sequence[int], entries: Sequence[Mapping[str, Any] | None]
) -> list[float]:
    """The log-probability of every token of a row but the first, from `prompt_logprobs`."""
    pairs = zip(row[1:], entries[1:], strict=True)
    return [float(entry[str(token)]["logprob"]) for token, entry in pairs if entry is not None]
