"""Embeddings of texts from a model, cached per caller.

A request waits until a deadline at most, and the plan is made with the vectors that are known by then. Those that come
too late are cached for the next turn. Texts and vectors are content: they are not logged, and stay in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from proxy.apis.openai_embeddings.call import PATH, NoVectors, request_body, vectors_in
from proxy.config.rules import Rules
from proxy.fit.relevance.history.embedding_scores import Embedded
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

K = TypeVar("K", bytes, tuple[bytes, bool])
TARGET = PATH.encode()
# For so long after a failure no call is made for this caller; after a wait in vain, requests do not wait for the like.
RETRY_S = 15.0
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
    """Embeddings from one upstream. `seconds`: how long a request waits. `question_prefix`, `passage_prefix`: what its
    model expects before a question, and before a text that may answer it."""

    client: InternalClient
    seconds: float
    question_prefix: str = ""
    passage_prefix: str = ""
    _known: Bounded[bytes, Vector | None] = field(default_factory=lambda: Bounded(MOST, BYTES))
    _calls: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    _failed: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))
    _late: Bounded[tuple[bytes, bool], float] = field(default_factory=lambda: Bounded(MOST_CALLERS))

    def with_rules(self, rules: Rules, knowledge: Knowledge) -> Embeddings:
        """The same: embeddings follow no rules."""
        return self

    async def fulfil(self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None) -> Embedded:
        """The wanted vectors that are known, at the latest after `seconds`. Those that are not known yet are requested,
        for this request and later ones, as far as that is allowed. Without `ask` it makes no call. Calls add their cost
        to `spent`. Never raises."""
        caller, model = caller_of(headers), str(want.payload.model)
        question = _with_prefix(self.question_prefix, want.payload.question)
        asked = _key(caller, model, question)
        texts = {text: _with_prefix(self.passage_prefix, text) for text in want.payload.texts}
        keys = {text: _key(caller, model, sent) for text, sent in texts.items()}
        wanted = {asked: question, **{keys[text]: sent for text, sent in texts.items()}}
        missing = {key: sent for key, sent in wanted.items() if self._known.get(key) is None}
        if ask and missing and len(missing) <= MOST_TEXTS and not _is_timed_out(self._failed, caller):
            await self.client.introduce(headers)
            if self.client.permits(headers):
                self._start_calls(caller, model, missing, asked, headers, spent)
                await self._wait(caller, asked, missing, len(missing) < len(wanted), spent or CallCost())
        return self._found(caller, model, asked, keys)

    async def _wait(self, caller: bytes, asked: bytes, missing: Collection[bytes], some: bool, spent: CallCost) -> None:
        """Waits for calls, as long as the request still may. If the texts of this caller were late, only for the
        question, and only if `some` texts are known that it can be compared with; if that was late, too, for nothing.
        """
        question = {self._calls[asked]} if asked in self._calls else set[asyncio.Task[None]]()
        texts = {task for key in missing if key != asked and (task := self._calls.get(key)) is not None} - question
        awaited = set[asyncio.Task[None]]()
        if some and not _is_timed_out(self._late, (caller, True)):
            awaited |= question
        if not _is_timed_out(self._late, (caller, False)):
            awaited |= question | texts
        if not awaited:
            return
        began = time.monotonic()
        _, waiting = await asyncio.wait(awaited, timeout=max(0.0, self.seconds - spent.waited))
        spent.waited += time.monotonic() - began
        for late, is_question in ((waiting & question, True), (waiting & texts, False)):
            if late:
                self._late.put((caller, is_question), time.monotonic() + RETRY_S)

    def _found(self, caller: bytes, model: str, asked: bytes, keys: Mapping[str, bytes]) -> Embedded:
        """What is known. Vectors of several lengths come from several models: they are removed from the cache."""
        question = self._known.get(asked)
        texts = {text: vector for text, key in keys.items() if (vector := self._known.get(key)) is not None}
        vectors = [*texts.values()] if question is None else [question, *texts.values()]
        if len({vector.size for vector in vectors}) > 1:
            for key in (asked, *keys.values()):
                self._known.take(key)
            self._fail(caller, model, "its vectors are of several lengths")
            return Embedded()
        return Embedded(question, texts)

    def _start_calls(
        self,
        caller: bytes,
        model: str,
        missing: Mapping[bytes, str],
        asked: bytes,
        headers: Headers,
        spent: CallCost | None,
    ) -> None:
        """Starts calls for the texts that no call is under way for, `BATCH` texts each. The question, without which
        nothing can be compared, goes alone and first: slow texts must not delay it."""
        fresh = [key for key in missing if key not in self._calls]
        first = int(fresh[:1] == [asked])
        starts = range(first, len(fresh), BATCH)
        for batch in (fresh[:first], *(fresh[start : start + BATCH] for start in starts)):
            if not batch:
                continue
            texts = {key: missing[key] for key in batch}
            task = asyncio.create_task(self._call(caller, model, texts, asked in texts, headers, spent))
            self._calls |= dict.fromkeys(batch, task)
            task.add_done_callback(partial(self._done, tuple(batch)))

    def _done(self, keys: Sequence[bytes], task: asyncio.Task[None]) -> None:
        for key in keys:
            self._calls.pop(key, None)

    async def _call(
        self,
        caller: bytes,
        model: str,
        texts: Mapping[bytes, str],
        urgent: bool,
        headers: Headers,
        spent: CallCost | None,
    ) -> None:
        """Makes one call and caches its vectors, or its failure."""
        try:
            async with self.client.slot(caller, urgent):
                if _is_timed_out(self._failed, caller):
                    return
                async with asyncio.timeout(BATCH_SECONDS):
                    vectors = await self._vectors(model, list(texts.values()), headers, spent)
            for key, vector in zip(texts, vectors, strict=True):
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


def _with_prefix(prefix: str, text: str) -> str:
    return f"{prefix} {text}" if prefix else text


def _key(caller: bytes, model: str, text: str) -> bytes:
    """The cache key of a text's vector."""
    name = model.encode()
    made = blake2b(b"%d:" % len(name) + name, digest_size=16, key=caller)
    made.update(text.encode("utf-8", "surrogatepass"))
    return made.digest()


def _is_timed_out(until: Bounded[K, float], key: K) -> bool:
    """Whether a caller is still in its time-out."""
    return time.monotonic() < (until.get(key) or 0.0)


def _create(parts: Parts) -> Embeddings:
    settings = parts.settings
    prefixes = settings.embeddings_question_prefix, settings.embeddings_passage_prefix
    return Embeddings(parts.client, settings.embeddings_timeout, *prefixes)


WANT = WantKind(KIND, LIMITS, lambda settings: (settings.embeddings_upstream, settings.embeddings_api_key), _create)
