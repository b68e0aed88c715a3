"""Fulfils the wish for embeddings: asks a model for those that are not known, and remembers each text's for its caller.

No request waits longer than a deadline, and whatever goes wrong is no vectors, which changes nothing. What came too
late serves the next turn. Texts tell what was said, and so do vectors: neither is logged, nor leaves this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from proxy.apis.openai_embeddings.call import PATH, NoVectors, request_body, vectors_in
from proxy.fit.relevance.text.vectors import Vector, quantize
from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.model.plan import Want
from proxy.observe import log
from proxy.request.wants import Parts, WantKind
from proxy.upstreams.extra_calls import CallCost, CallDenied
from proxy.upstreams.internal_client import InternalClient, caller_of
from proxy.upstreams.models_listing import Headers

TARGET = PATH.encode()
AGAIN_SECONDS = 15.0  # after a failure, or once one was waited for in vain: nothing of this caller's is asked
BATCH = 32  # texts in one question: what the strictest server takes (Hugging Face's, by default)
BATCH_SECONDS = 30.0  # that an answer gets, though nobody may wait for it any more
KIND = "embeddings"
# Calls under way, in all and for one caller, and those that wait; each has up to 32 texts of 1,500 characters.
LIMITS = (8, 2, 640, 160)
MOST_TEXTS = 5_000  # of one conversation: more would take minutes, and cost
ANSWER_BYTES = 8 << 20  # 32 vectors of 4096 numbers, 20 bytes each, are 2.6 MB
MOST, BYTES = 200_000, 64 << 20  # vectors kept, and their bytes: of 1536 dimensions some 80,000
FRAME = 250  # bytes of a vector besides its bits
MOST_CALLERS = 10_000  # whose failures are remembered


@dataclass(slots=True)
class Embeddings:
    """Embeddings of one upstream's models. `seconds`: how long a request waits."""

    client: InternalClient
    seconds: float
    _known: Bounded[bytes, Vector | None] = field(default_factory=lambda: Bounded(MOST, BYTES))
    _under_way: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    _failed: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))
    _late: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))

    async def fulfil(
        self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None
    ) -> Mapping[str, Vector]:
        """The vectors of all wanted texts; none at all where one of them failed, is not here in time, or may not be
        asked for. Without `ask` nobody is asked. What is asked adds to `spent`. Raises nothing."""
        caller, model = caller_of(headers), str(want.payload.model)
        keys = {text: _key(caller, model, text) for text in want.payload.texts}
        missing = [text for text, key in keys.items() if self._known.get(key) is None]
        if missing:
            if not ask or len(missing) > MOST_TEXTS or _holds(self._failed, caller) or _holds(self._late, caller):
                return {}
            if not self.client.permits(headers):
                return {}
            self._ask(caller, model, {text: keys[text] for text in missing}, headers, spent)
            tasks = {task for text in missing if (task := self._under_way.get(keys[text])) is not None}
            _, waiting = await asyncio.wait(tasks, timeout=self.seconds)
            if waiting:
                self._late.put(caller, time.monotonic() + AGAIN_SECONDS)
                return {}
        return self._all(caller, model, keys)

    def _all(self, caller: bytes, model: str, keys: Mapping[str, bytes]) -> dict[str, Vector]:
        """What is known of these texts, where that is all of them. Vectors of several lengths are of several models:
        none of them is kept."""
        found = {text: vector for text, key in keys.items() if (vector := self._known.get(key)) is not None}
        if len({vector.size for vector in found.values()}) > 1:
            for key in keys.values():
                self._known.take(key)
            self._fail(caller, model, "its vectors are of several lengths")
            return {}
        return found if len(found) == len(keys) else {}

    def _ask(
        self, caller: bytes, model: str, texts: Mapping[str, bytes], headers: Headers, spent: CallCost | None
    ) -> None:
        """Begins to ask for what is not asked for already, so many texts at a time."""
        fresh = [text for text, key in texts.items() if key not in self._under_way]
        for start in range(0, len(fresh), BATCH):
            batch = {text: texts[text] for text in fresh[start : start + BATCH]}
            task = asyncio.create_task(self._made(caller, model, batch, headers, spent))
            self._under_way |= dict.fromkeys(batch.values(), task)
            task.add_done_callback(partial(self._done, tuple(batch.values())))

    def _done(self, keys: Sequence[bytes], task: asyncio.Task[None]) -> None:
        for key in keys:
            self._under_way.pop(key, None)

    async def _made(
        self, caller: bytes, model: str, texts: Mapping[str, bytes], headers: Headers, spent: CallCost | None
    ) -> None:
        """Asks, and remembers what came of it."""
        try:
            async with self.client.slot(caller):
                if _holds(self._failed, caller):
                    return
                async with asyncio.timeout(BATCH_SECONDS):
                    vectors = await self._asked(model, list(texts), headers, spent)
            for key, vector in zip(texts.values(), vectors, strict=True):
                self._known.put(key, vector, FRAME + 3 * vector.size // 8)
        except CallDenied:
            pass
        except (UpstreamError, TimeoutError):
            self._fail(caller, model, "no answer")
        except NoVectors as error:
            self._fail(caller, model, str(error))
        except Exception as error:  # a bug of ours is no reason to fail a request
            self._fail(caller, model, type(error).__name__)

    async def _asked(self, model: str, texts: Sequence[str], headers: Headers, spent: CallCost | None) -> list[Vector]:
        status, payload = await self.client.post(TARGET, request_body(model, texts), headers, ANSWER_BYTES, spent)
        if status != 200:
            raise NoVectors(f"status {status}")
        return await asyncio.to_thread(_read, payload, len(texts))

    def _fail(self, caller: bytes, model: str, why: str) -> None:
        if not _holds(self._failed, caller):
            log.event("embeddings failed", model=log.printable(model), why=why)
        self._failed.put(caller, time.monotonic() + AGAIN_SECONDS)

    async def close(self) -> None:
        """Gives up what is under way."""
        tasks = set(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.client.close()


def _read(payload: bytes, count: int) -> list[Vector]:
    try:
        return [quantize(numbers) for numbers in vectors_in(payload, count)]
    except ValueError as error:
        raise NoVectors(str(error)) from None


def _key(caller: bytes, model: str, text: str) -> bytes:
    """What a text's vector is remembered by."""
    name = model.encode()
    made = blake2b(b"%d:" % len(name) + name, digest_size=16, key=caller)
    made.update(text.encode("utf-8", "surrogatepass"))
    return made.digest()


def _holds(until: Bounded[bytes, float], caller: bytes) -> bool:
    """Whether a caller's time out is not over."""
    return time.monotonic() < (until.get(caller) or 0.0)


def _create(parts: Parts) -> Embeddings:
    return Embeddings(parts.client, parts.settings.embeddings_timeout)


WANT = WantKind(KIND, LIMITS, lambda settings: (settings.embeddings_upstream, settings.embeddings_api_key), _create)
