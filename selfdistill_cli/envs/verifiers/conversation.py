"""One rollout of verifiers, turned inside out.

There the environment drives: it asks a client for the model's replies. Here the trainer drives.
So the client waits for the reply that `step` brings, in an event loop that runs only meanwhile.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.envs.verifiers.messages import calls_in


def waiting_client(package: Any, asked: asyncio.Queue[Any], replies: asyncio.Queue[Any]) -> Any:
    """Return a client of verifiers that passes prompts on and waits for replies."""

    class Waiting(package.Client):
        """Its base class is known only once the package is imported."""

        async def get_response(self, prompt: Any, *_: Any, **__: Any) -> Any:
            asked.put_nowait(prompt)
            return await replies.get()

    Waiting.__abstractmethods__ = frozenset()  # what talks to a server is never called
    return Waiting(None)


class Conversation:
    """A rollout that stands still until it is given the next reply."""

    def __init__(self, package: Any, env: Any, row: Mapping[str, Any]) -> None:
        """Begin: `prompt` is what the environment asks first, None if it is over already."""
        self._package, self._env = package, env
        self._loop = asyncio.new_event_loop()
        self._asked: asyncio.Queue[Any] = asyncio.Queue()
        self._replies: asyncio.Queue[Any] = asyncio.Queue()
        client = waiting_client(package, self._asked, self._replies)
        self._rollout = self._loop.create_task(env.rollout(dict(row), client, "policy", {}))
        self._close = weakref.finalize(self, _ended, self._loop, self._rollout)
        self.prompt: Sequence[Any] | None = self._until_asked()

    def reply(self, text: str, tools: bool) -> None:
        """Give a reply, with the calls in it if there are tools, and go on to the next prompt."""
        said, calls = calls_in(text) if tools else (text, [])
        types = self._package.types
        message = types.ResponseMessage(
            content=said,
            tool_calls=[types.ToolCall(**call) for call in calls] or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        self._replies.put_nowait(
            types.Response(id="reply", created=0, model="policy", message=message)
        )
        self.prompt = self._until_asked()

    def _until_asked(self) -> Sequence[Any] | None:
        """Run until the environment asks, and return its prompt; None where the rollout is over."""

        async def wait() -> Any:
            asking = asyncio.ensure_future(self._asked.get())
            await asyncio.wait({asking, self._rollout}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            asking.cancel()
            return None

        return self._loop.run_until_complete(wait())

    def score(self) -> Mapping[str, Any]:
        """Return the state of a rollout that is over, with the rubric's `reward` and `metrics`.

        Raises what the environment raised, or RuntimeError for an error that it noted.
        """
        state = self._rollout.result()
        if state.get("error") is not None:
            raise RuntimeError(f"the environment failed: {state['error']!r:.300}")
        self._loop.run_until_complete(self._env.rubric.score_rollout(state))
        self._loop.run_until_complete(self._env.rubric.cleanup(state))
        self._close()
        return state


def _ended(loop: asyncio.AbstractEventLoop, rollout: asyncio.Task[Any]) -> None:
    """Close the loop of a rollout, wherever it stands."""
    if loop.is_running():  # its thread was left behind
        return
    if not rollout.done():
        rollout.cancel()
        loop.run_until_complete(asyncio.wait({rollout}, timeout=5))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
