"""The simulator's threads: conversations that it holds, so that a request brings its new messages only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proxy.simulator.anthropic_messages.request import AnthropicError

MAX_HELD = 1_000

THREADS = "threads"  # what is held

Threads = dict[str, Mapping[str, Any]]  # the whole requests, with their replies, by the id of the newest reply


class ThreadError(AnthropicError):
    """An error whose details say why a thread cannot go on: clients then send the whole conversation."""

    def body(self) -> bytes:
        """The JSON of the answer."""
        found = msgspec.json.decode(super().body())
        found["error"]["details"] = {"error_code": "thread_not_found"}
        return msgspec.json.encode(found)


def continued(body: dict[str, Any], threads: Threads) -> dict[str, Any]:
    """A request with what its thread holds. Raises `ThreadError` for a thread that is not held."""
    thread = body.get("thread")
    if not isinstance(thread, dict) or thread.get("type") != "continue":
        return body
    held = threads.get(str(thread.get("previous_message_id")))
    if held is None:
        raise ThreadError(404, "The thread to continue was not found.")
    return {**held, **body, "messages": [*held["messages"], *body["messages"]]}


def hold(body: Mapping[str, Any], ident: str, blocks: Iterable[object], threads: Threads) -> None:
    """Keeps a request and its reply, if it asks for a thread."""
    if not body.get("thread"):
        return
    if len(threads) >= MAX_HELD:
        threads.clear()
    kept = {key: body[key] for key in ("system", "tools") if key in body}
    threads[ident] = {**kept, "messages": [*body["messages"], {"role": "assistant", "content": list(blocks)}]}
