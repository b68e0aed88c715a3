"""The scripted upstream of a recording; equal requests get equal answers.

It sends each piece of an answer when the proxy is idle, so that no result depends on the order of concurrent events.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.recorder import EVENTS, Peer, Request, answer, chunk, head

IDLE_TIMEOUT = 60.0  # seconds that the proxy may take until it is idle
SUMMARISER = "harbour-summariser"  # the model that writes summaries
DIMENSIONS = 64  # of an embedding
RUNNING = frozenset("RD")  # states of a thread that runs, is runnable, or waits for a disk
MODELS = {
    "object": "list",
    "data": [
        {"id": "listed/harbour-12k", "object": "model", "context_length": 12_000},
        {"id": "listed/harbour-6k", "object": "model", "max_model_len": 6_144},
        {"id": "gpt-4o", "object": "model"},
    ],
}
Schedule = tuple[tuple[str, str], ...]  # of each thread: its id, and how often it was scheduled


def schedule(pid: int) -> Schedule | None:
    """How often the kernel scheduled each thread of a process so far (/proc); None if a thread runs."""
    found = []
    tasks = Path(f"/proc/{pid}/task")
    for thread in sorted(os.listdir(tasks)):
        try:
            state = (tasks / thread / "stat").read_text().rpartition(")")[2].split(maxsplit=1)[0]
            count = (tasks / thread / "schedstat").read_text().split()[-1]
        except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
            return None
        if state in RUNNING:
            return None
        found.append((thread, count))
    return tuple(found)


async def idle(pid: int) -> Schedule:
    """Waits until a process is idle: two samples in a row find no thread running, and no thread was scheduled between
    them. Raises TimeoutError."""
    async with asyncio.timeout(IDLE_TIMEOUT):
        before = None
        while (now := schedule(pid)) is None or now != before:
            before = now
            await asyncio.sleep(0.001)
    return now


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's bytes in pieces, each sent by itself; with `breaks` the upstream then closes the connection."""

    pieces: tuple[bytes, ...]
    breaks: bool = False


@dataclass(slots=True)
class Upstream:
    """Sends the scripted replies in order, then the default ones. `pid` is the proxy's process."""

    pid: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    pending: int = 0  # requests without a complete answer
    received: list[Request] = field(default_factory=list)
    scripted: deque[Reply] = field(default_factory=deque)

    async def __call__(self, request: Request, peer: Peer) -> None:
        """One request."""
        self.loop = asyncio.get_running_loop()
        self.pending += 1
        self.received.append(request)
        try:
            reply = self._reply(request)
            for piece in reply.pieces:
                await idle(self.pid)
                await peer.send(piece)
            if reply.breaks:
                await idle(self.pid)
                peer.close()
        finally:
            self.pending -= 1

    def _reply(self, request: Request) -> Reply:
        if request.target.startswith(b"/v1/models") and request.method == b"GET":
            return Reply((answer(json.dumps(MODELS).encode()),))
        if b"/embeddings" in request.target:
            return Reply((embedded(request.body),))
        if SUMMARISER.encode() in request.body[:60]:
            return Reply((summarised(request.body),))
        return self.scripted.popleft() if self.scripted else default(request)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest())


def default(request: Request) -> Reply:
    """An ordinary answer, as events if the body requests a stream. Two of three have a usage."""
    if request.method == b"HEAD":
        return Reply((head(b"200 OK", b"content-type: application/json", b"content-length: 17"),))
    draw, body = _digest(request.body), fields(request.body)
    model = body.get("model") if isinstance(body.get("model"), str) else "none"
    words = f"You sent {len(request.body)} bytes, {draw:08x}."
    if body.get("stream") is True:
        asked = body.get("stream_options")
        wanted = isinstance(asked, dict) and asked.get("include_usage") is True
        return streamed(words, usage(request.body, draw) if wanted else None, str(model))
    counted = usage(request.body, draw) if draw % 3 else None
    more = (b"x-request-id: req_%08x" % draw, b"openai-processing-ms: 12") if draw % 2 else ()
    return Reply((answer(completion(words, counted, str(model)), headers=(b"content-type: application/json", *more)),))


def fields(body: bytes) -> dict[str, Any]:
    """A body's fields; none if it is not a JSON object."""
    try:
        found = json.loads(gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body)
    except (ValueError, OSError, EOFError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def usage(body: bytes, draw: int) -> dict[str, Any]:
    """About what a tokenizer counts, with an error that depends on the body; now and then far less, as if truncated."""
    prompt = len(body) * (95 + draw % 11) // 470 // (9 if draw % 41 == 0 else 1) + 1
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
    if draw % 5 == 0:
        found["prompt_tokens_details"] = {"cached_tokens": prompt // 2}
    return found


def completion(words: str, counted: Any = None, model: str = "gpt-4o", **more: Any) -> bytes:
    """A whole answer's body."""
    answered: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": words},
        "finish_reason": "stop",
    } | more
    return json.dumps(answered | {"choices": [choice]} | ({"usage": counted} if counted else {})).encode()


def events(words: str, counted: Any = None, model: str = "gpt-4o") -> list[bytes]:
    """The events of a stream, without `[DONE]`."""
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": w} for w in words.split())]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    found = [event({**common, "choices": [choice]}) for choice in choices]
    return [*found, event({**common, "choices": [], "usage": counted})] if counted else found


def event(data: Any) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streamed(words: str, counted: Any = None, model: str = "gpt-4o", pieces: int = 3) -> Reply:
    """A complete stream in `pieces` pieces."""
    return in_pieces([*events(words, counted, model), DONE], pieces)


def in_pieces(parts: Sequence[bytes], pieces: int = 1, ends: bool = True) -> Reply:
    """A chunked stream of these events in pieces; without `ends` the connection closes before the last chunk."""
    size = max(1, -(-len(parts) // pieces))
    sent = [b"".join(chunk(part) for part in parts[at : at + size] if part) for at in range(0, len(parts), size)]
    sent = sent or [b""]
    sent[0] = EVENTS + sent[0]
    if ends:
        sent[-1] += chunk(b"")
    return Reply(tuple(sent), breaks=not ends)


def summarised(body: bytes) -> bytes:
    """The answer to a summary request; one in nine holds no summary."""
    draw = _digest(body)
    text = (
        f"<summary>The conversation had {len(body)} bytes of cranes, {draw:08x}.</summary>" if draw % 9 else "I cannot."
    )
    return answer(completion(text, {"prompt_tokens": len(body) // 4, "completion_tokens": 20, "total_tokens": 0}))


def embedded(body: bytes) -> bytes:
    """The answer to an embeddings request: a bag of hashed words for each text."""
    asked = fields(body).get("input")
    texts = asked if isinstance(asked, list) else [asked]
    found = [{"object": "embedding", "index": n, "embedding": _vector(str(text))} for n, text in enumerate(texts)]
    answered = {"object": "list", "data": found, "model": "embedder", "usage": {"prompt_tokens": 8, "total_tokens": 8}}
    return answer(json.dumps(answered).encode())


def _vector(text: str) -> list[float]:
    made = [0.0] * DIMENSIONS
    for word in text.lower().split():
        made[_digest(word.encode("utf-8", "surrogatepass")) % DIMENSIONS] += 1.0
    return made
