"""The upstream's own count of a prompt, on request, cached per tenant; requests with the same prompt share one call.

Theory of operation
===================

A plan wants a count where the margin of ours alone decides that a request is changed (`proxy.fit.provider_count`). The
rows of counters.toml say how each upstream is asked. The call goes to the request's own upstream, with what the request
itself brings: another one gets neither the prompt nor a key.

* A request waits until a deadline at most, once. A count that comes later is cached, and calibrates further counts.
* A count is believed only near our own (`is_believable`). Any other answer (a status, a body that is too long or
  compressed, no number) is a failure. On a failure the plan is made without a count.
* After a failure the same caller asks nothing about that model for a while: a key that is refused says nothing about
  another one, nor a model that does not exist about those that do. Only where no connection can be made, a breaker
  opens for all: nothing that a client sends can cause that.
* Calls are few at a time, and hold their bodies for seconds.

Neither prompts nor counts are logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

from proxy.apis import count_bodies
from proxy.cache.breaker import Breaker
from proxy.config.rules import Rules
from proxy.fit.provider_count import KIND, WHOLE_MARGIN, is_believable
from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.model.conversation import Prompt
from proxy.model.outcome import Usage
from proxy.model.plan import CountRequest, Want
from proxy.model.structs import replace
from proxy.observe import log
from proxy.request.facts import Knowledge
from proxy.request.wants import Parts, WantKind
from proxy.request.work import cancelled
from proxy.tokens.meter import unit_of
from proxy.upstreams.extra_calls import CallCost, CallDenied
from proxy.upstreams.internal_client import CallFailed, InternalClient, caller_of, tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import Upstream
from proxy.wire.counters import Counter, NotCountable, counter_for, in_header

# Calls under way, in all and of one caller, and those that wait: they hold their bodies.
LIMITS = (4, 2, 4, 2)
MAX_BODY = 4 << 20  # bytes of a call; a window of a million tokens is as long
ANSWER_BYTES = 8 << 20  # vLLM returns the number of each token, too
INLINE_BYTES = 65_536  # longer bodies are written, hashed and read in a thread
CALL_S = 5.0  # timeout of a call, if its request does not wait longer
MAX_PAUSES = 10_000  # that are remembered
# Seconds without a question of a caller about a model, by the status that it got; else `PAUSE_S`.
PAUSES = {401: 60.0, 403: 60.0, 404: 600.0, 405: 600.0, 501: 600.0, 429: 60.0}
PAUSE_S = 15.0


class NoCount(Exception):
    """An answer that is no count, or a request that cannot be asked about."""


@dataclass(slots=True)
class ProviderCounts:
    """Counts of one upstream. `counters` are the rows; `seconds` is how long a request waits."""

    knowledge: Knowledge
    client: InternalClient
    counters: Sequence[Counter]
    seconds: float
    breaker: Breaker = field(default_factory=Breaker)
    _calls: dict[bytes, asyncio.Task[int]] = field(default_factory=dict)
    _paused: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MAX_PAUSES))

    def with_rules(self, rules: Rules, knowledge: Knowledge) -> ProviderCounts:
        """The same under other rules, with the calls under way."""
        return replace(self, knowledge=knowledge, counters=rules.counters)

    def counts(self, prompt: Prompt) -> bool:
        """Whether the upstream counts such prompts. What it has stored is not in the body of a count."""
        return not (prompt.form.apart or prompt.stored.continues) and self._counter(prompt) is not None

    def _counter(self, prompt: Prompt) -> Counter | None:
        upstream = self.client.upstream
        if not self.seconds or not isinstance(upstream, Upstream):
            return None
        owner = self.knowledge.listing.owner(prompt.model)
        found = counter_for(self.counters, prompt.api, upstream.server, owner)
        # Another upstream gets no token of a client, so there is none to be moved.
        return None if found is not None and found.key_header and upstream.access is not None else found

    async def fulfil(self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None) -> int:
        """The tokens of a prompt; 0 if they cannot be had in time. Without `ask` it makes no call. Never raises."""
        request: CountRequest = want.payload
        counter = self._counter(request.prompt)
        if counter is None:
            return 0
        try:
            return await self._count(counter, request, headers, ask, spent)
        except (NotCountable, NoCount):  # it cannot even be asked about
            return 0
        except Exception as error:  # our own bug must not fail the request
            log.event("a count failed", counter=counter.name, why=type(error).__name__)
            return 0

    async def _count(
        self, counter: Counter, request: CountRequest, headers: Headers, ask: bool, spent: CallCost | None
    ) -> int:
        long = sum(map(len, request.prompt.head.values())) > INLINE_BYTES
        make = partial(self._question, counter, request.prompt, headers)
        key, body = await asyncio.to_thread(make) if long else make()
        known = await self.knowledge.cache.counted.get(tenant_of(headers), key.hex())
        if known:
            self.client.extra_calls.record_call(KIND, "cached")
            return known if is_believable(request.draft, known) else 0
        task = self._calls.get(key)
        if task is None:
            if not ask or len(body) > MAX_BODY or self._is_paused(headers, request.prompt):
                return 0
            task = self._calls[key] = asyncio.create_task(self._call(counter, request, key, body, headers))
            task.add_done_callback(lambda _: self._calls.pop(key, None))
        return await self._in_time(task, headers, request.prompt, spent)

    def _question(self, counter: Counter, prompt: Prompt, headers: Headers) -> tuple[bytes, bytes]:
        """The key of a count and the body of its first call. The key depends on all that the count depends on."""
        if any(call.target(prompt.model) is None for call in counter.calls):
            raise NoCount("the model's name is none of a path")
        form = count_bodies().get(counter.form)
        body = counter.calls[0].body(prompt.head) if form is None else form(prompt.model, prompt.head)
        upstream = self.client.upstream
        assert isinstance(upstream, Upstream)
        named = [value for name, value in headers if name.decode("latin-1") in counter.headers]
        parts = (tenant_of(headers), upstream.base_path, upstream.server.encode(), prompt.model.encode(), *named)
        digest = blake2b(counter.name.encode(), digest_size=32)
        for part in (*parts, body):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest(), body

    async def _in_time(self, task: asyncio.Task[int], headers: Headers, prompt: Prompt, spent: CallCost | None) -> int:
        began = time.perf_counter()
        done, _ = await asyncio.wait({task}, timeout=self.seconds)
        if spent is not None:
            spent.calls += 1
            spent.seconds += time.perf_counter() - began
        if done:
            return 0 if task.cancelled() else task.result()
        self._pause(headers, prompt, PAUSE_S)
        self.client.extra_calls.record_call(KIND, "late")
        return 0

    def _is_paused(self, headers: Headers, prompt: Prompt) -> bool:
        until = self._paused.get(caller_of(headers) + prompt.model.encode())
        return self.breaker.remaining > 0 or time.monotonic() < (until or 0.0)

    def _pause(self, headers: Headers, prompt: Prompt, seconds: float) -> None:
        self._paused.put(caller_of(headers) + prompt.model.encode(), time.monotonic() + seconds)

    async def _call(self, counter: Counter, request: CountRequest, key: bytes, body: bytes, headers: Headers) -> int:
        """Makes the calls of a count, caches and learns it; 0 after a failure. Never raises."""
        began, why, pause = time.perf_counter(), "", PAUSE_S
        try:
            async with self.client.slot(caller_of(headers)), asyncio.timeout(max(CALL_S, self.seconds)):
                tokens = await self._asked(counter, request.prompt.model, body, in_header(headers, counter.key_header))
            if not is_believable(request.draft, tokens):
                raise NoCount("it is far from ours")
        except CallDenied:
            return 0
        except UpstreamError as error:
            if error.unconnected:
                self.breaker.record_failure()
            why = error.code
        except CallFailed as error:
            why, pause = str(error), PAUSES.get(error.status, PAUSE_S)
        except TimeoutError:
            why = "no answer"
        except NoCount as error:
            why = str(error)
        except Exception as error:  # our own bug must not fail the request
            why = type(error).__name__
        seconds = time.perf_counter() - began
        self.client.extra_calls.record_call(KIND, "failed" if why else "ok", 0, seconds)
        if why:
            self._pause(headers, request.prompt, pause)
            log.event("an upstream did not count a prompt", counter=counter.name, why=why)
            return 0
        self.breaker.record_success()
        self.knowledge.cache.counted.put(tenant_of(headers), key.hex(), tokens)
        self._learn(request, tokens, headers, late=seconds > self.seconds)
        return tokens

    async def _asked(self, counter: Counter, model: str, body: bytes, headers: Headers) -> int:
        """The answer of the last call. Raises UpstreamError, CallFailed and NoCount."""
        found: int | str | None = None
        for call in counter.calls:
            if isinstance(found, str):
                body = call.body({}, found)
            target = call.target(model)
            assert target is not None  # see `_question`
            payload = await self.client.call_free(target, body, headers, ANSWER_BYTES, call.beside)
            found = call.read(payload) if len(payload) <= INLINE_BYTES else await asyncio.to_thread(call.read, payload)
            if found is None:
                break
        if not isinstance(found, int):
            raise NoCount("its answer is no count")
        return found

    def _learn(self, request: CountRequest, tokens: int, headers: Headers, *, late: bool) -> None:
        """Calibrates the model's counts, unless the usage of the answer will: the prompt is sent as it is."""
        prompt, draft = request.prompt, request.draft
        if not late and draft.window.fits(tokens, draft.least_reply, WHOLE_MARGIN):
            return
        counted = draft.prompt, unit_of(draft.meter)
        sample = self.knowledge.sample(prompt.model, prompt.api, counted, Usage(tokens, 0))
        if sample is not None:
            self.knowledge.record_sample(sample, tenant_of(headers))

    async def close(self) -> None:
        """Cancels the calls under way."""
        await cancelled(set(self._calls.values()))


def _create(parts: Parts) -> ProviderCounts:
    return ProviderCounts(parts.knowledge, parts.client, parts.rules.counters, parts.settings.counter_timeout)


WANT = WantKind(KIND, LIMITS, lambda settings: (None, None), _create)
