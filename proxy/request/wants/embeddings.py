"""Embeddings of texts from a model, cached per caller.

A request waits until a deadline at most. On any failure there are no vectors, and the plan is made without them.
Vectors that come too late are cached for the next turn. Texts and vectors are content: they are not logged, and stay in
this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from proxy.apis.openai_embeddings.call import PATH, NoVectors, request_body, vectors_in
from proxy.config.rules import Rules
from proxy.fit.relevance.text.vectors import Vector, quantize
from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.model.plan import Want
from proxy.observe import log
from proxy.request.facts import Knowledge
from proxy.request.wants import Parts, WantKind
from proxy.request.work import cancelled
from proxy.upstreams.extra_calls import CallCost, CallDenied
from proxy.upstreams.internal_client import InternalClient, caller_of
from proxy.upstreams.models_listing import Headers

TARGET = PATH.encode()
RETRY_S = 15.0  # after a failure or a timeout, no call is made for this caller for so long
BATCH = 32  # texts in one call: the lowest limit among servers (Hugging Face's default)
BATCH_SECONDS = 30.0  # timeout of a call; the request may have stopped waiting long before
KIND = "embeddings"
# Calls under way, in all and for one caller, and those that wait; each has up to 32 texts of 1,500 characters.
LIMITS = (8, 2, 640, 160)
MOST_TEXTS = 5_000  # of one conversation: more would take minutes and cost too much
ANSWER_BYTES = 8 << 20  # 32 vectors of 4096 numbers, 20 bytes each, are 2.6 MB
MOST, BYTES = 200_000, 64 << 20  # vectors kept, and their bytes: of 1536 dimensions some 80,000
FRAME = 250  # bytes of a vector object besides its bits
MOST_CALLERS = 10_000  # callers whose failures are cached


@dataclass(slots=True)
class Embeddings:
    """Embeddings from one upstream. `seconds`: how long a request waits."""

    client: InternalClient
    seconds: float
    _known: Bounded[bytes, Vector | None] = field(default_factory=lambda: Bounded(MOST, BYTES))
    _calls: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    _failed: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))
    _late: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))

    def with_rules(self, rules: Rules, knowledge: Knowledge) -> Embeddings:
        """The same: embeddings follow no rules."""
        return self

    async def fulfil(
        self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None
    ) -> Mapping[str, Vector]:
        """The vectors of all wanted texts, by text. Empty if one of them failed, is late, or may not be requested.
        Without `ask` it makes no call. Calls add their cost to `spent`. Never raises."""
        caller, model = caller_of(headers), str(want.payload.model)
        keys = {text: _key(caller, model, text) for text in want.payload.texts}
        missing = [text for text, key in keys.items() if self._known.get(key) is None]
        if missing:
            paused = _is_timed_out(self._failed, caller) or _is_timed_out(self._late, caller)
            if not ask or paused or len(missing) > MOST_TEXTS:
                return {}
            if not self.client.permits(headers):
                return {}
            self._start_calls(caller, model, {text: keys[text] for text in missing}, headers, spent)
            tasks = {task for text in missing if (task := self._calls.get(keys[text])) is not None}
            _, waiting = await asyncio.wait(tasks, timeout=self.seconds)
            if waiting:
                self._late.put(caller, time.monotonic() + RETRY_S)
                return {}
        return self._all(caller, model, keys)

    def _all(self, caller: bytes, model: str, keys: Mapping[str, bytes]) -> dict[str, Vector]:
        """The cached vectors, if all texts have one. Vectors of several lengths come from several models: they are
        removed from the cache."""
        found = {text: vector for text, key in keys.items() if (vector := self._known.get(key)) is not None}
        if len({vector.size for vector in found.values()}) > 1:
            for key in keys.values():
                self._known.take(key)
            self._fail(caller, model, "its vectors are of several lengths")
            return {}
        return found if len(found) == len(keys) else {}

    def _start_calls(
        self, caller: bytes, model: str, texts: Mapping[str, bytes], headers: Headers, spent: CallCost | None
    ) -> None:
        """Starts calls for the texts that no call is under way for, `BATCH` texts each."""
        fresh = [text for text, key in texts.items() if key not in self._calls]
        for start in range(0, len(fresh), BATCH):
            batch = {text: texts[text] for text in fresh[start : start + BATCH]}
            task = asyncio.create_task(self._call(caller, model, batch, headers, spent))
            self._calls |= dict.fromkeys(batch.values(), task)
            task.add_done_callback(partial(self._done, tuple(batch.values())))

    def _done(self, keys: Sequence[bytes], task: asyncio.Task[None]) -> None:
        for key in keys:
            self._calls.pop(key, None)

    async def _call(
        self, caller: bytes, model: str, texts: Mapping[str, bytes], headers: Headers, spent: CallCost | None
    ) -> None:
        """Makes one call and caches its vectors, or its failure."""
        try:
            async with self.client.slot(caller):
                if _is_timed_out(self._failed, caller):
                    return
                async with asyncio.timeout(BATCH_SECONDS):
                    vectors = await self._vectors(model, list(texts), headers, spent)
            for key, vector in zip(texts.values(), vectors, strict=True):
                self._known.put(key, vector, FRAME + 3 * vector.size // 8)
        except CallDenied:
            pass
        except (UpstreamError, TimeoutError):
            self._fail(caller, model, "no answer")
        except NoVectors as error:
            self._fail(caller, model, str(error))
        except Exception as error:  # our own bug must not fail the request
            self._fail(caller, model, type(error).__name__)

    async def _vectors(
        self, model: str, texts: Sequence[str], headers: Headers, spent: CallCost | None
    ) -> list[Vector]:
        status, payload = await self.client.post(TARGET, request_body(model, texts), headers, ANSWER_BYTES, spent)
        if status != 200:
            raise NoVectors(f"status {status}")
        return await asyncio.to_thread(_read, payload, len(texts))

    def _fail(self, caller: bytes, model: str, why: str) -> None:
        if not _is_timed_out(self._failed, caller):
            log.event("embeddings failed", model=log.printable(model), why=why)
        self._failed.put(caller, time.monotonic() + RETRY_S)

    async def close(self) -> None:
        """Cancels the calls under way, and closes the client."""
        await cancelled(set(self._calls.values()))
        await self.client.close()


def _read(payload: bytes, count: int) -> list[Vector]:
    try:
        return [quantize(numbers) for numbers in vectors_in(payload, count)]
    except ValueError as error:
        raise NoVectors(str(error)) from None


def _key(caller: bytes, model: str, text: str) -> bytes:
    """The cache key of a text's vector."""
    name = model.encode()
    made = blake2b(b"%d:" % len(name) + name, digest_size=16, key=caller)
    made.update(text.encode("utf-8", "surrogatepass"))
    return made.digest()


def _is_timed_out(until: Bounded[bytes, float], caller: bytes) -> bool:
    """Whether a caller is still in its time-out."""
    return time.monotonic() < (until.get(caller) or 0.0)


def _create(parts: Parts) -> Embeddings:
    return Embeddings(parts.client, parts.settings.embeddings_timeout)


WANT = WantKind(KIND, LIMITS, lambda settings: (settings.embeddings_upstream, settings.embeddings_api_key), _create)
