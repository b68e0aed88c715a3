"""Summaries of old history from a model, cached per caller; requests that want the same summary share one call.

A request waits until a deadline at most. On any failure the summary is empty, and the plan is made without it. Neither
messages nor summaries are logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.apis import USUAL, asked_in, clients_server, servers
from proxy.cache.contents import Contents
from proxy.config.rules import Rules
from proxy.fit.transcripts import packed, transcript
from proxy.http.client.answer import UpstreamError
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Prompt
from proxy.model.limits import Window
from proxy.model.plan import Want
from proxy.model.structs import replace
from proxy.observe import log
from proxy.request.facts import Knowledge
from proxy.request.wants import Parts, WantKind
from proxy.request.work import cancelled
from proxy.tokens.meter import meter_for
from proxy.upstreams.extra_calls import CallCost, CallDenied
from proxy.upstreams.internal_client import InternalClient, caller_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.summary_prompt import NoSummary, prompt_for, summary_in

KIND = "summary"
# Summaries under way, in all and for one caller, and those that wait: each takes minutes at worst.
LIMITS = (8, 2, 64, 8)
AGAIN_SECONDS = 60.0  # after a failure: what failed is not asked for again so soon
CALLER_SECONDS = 15.0  # after one that speaks of the summariser, not of the text: nothing of this caller's is asked
MOST_FAILURES = 10_000  # remembered
MOST_PIECES = 32  # that an old part is read in: more would take minutes
ANSWER_BYTES = 1 << 20
FRAME = 200  # tokens of what stands around the text, and of the request's own
LEAST_ROOM = 500  # tokens of text in one question; a window that holds less is none to sum up with
ABOUT_THE_TEXT = frozenset({400, 413, 422})  # statuses that may be another for another text


@dataclass(slots=True)
class Summaries:
    """Summaries of one upstream's models. `instructions` is the prompt (None: there is none, and no summary);
    `seconds` the time that one answer gets, and that a request waits. `api`: the kind of server that the upstream is.

    The clients' own upstream is asked in the API in which the client speaks to it.
    """

    knowledge: Knowledge
    contents: Contents
    client: InternalClient
    instructions: str | None
    seconds: float
    api: str = USUAL.name
    _calls: dict[tuple[bytes, str], asyncio.Task[str]] = field(default_factory=dict)
    _failed: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_FAILURES))

    def __post_init__(self) -> None:
        if self.instructions is not None and self._api(()) is None:
            self.instructions = None
            log.event("no summaries: the upstream has no API in which they can be asked", api=self.api)

    def with_rules(self, rules: Rules, knowledge: Knowledge) -> Summaries:
        """The same summaries under other rules. One that is cached or under way stays as it is."""
        return replace(self, knowledge=knowledge, instructions=rules.summary)

    async def fulfil(self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None) -> str:
        """The summary that is wanted. Empty if it failed, is late, or may not be requested. Without `ask` it makes no
        call. Calls add their cost to `spent`. Never raises."""
        if self.instructions is None:
            return ""
        caller = caller_of(headers)
        known = await self._known(caller, want.key)
        if known is not None or not ask:
            return known or ""
        flight = (caller, want.key)
        if self._fails(caller) or self._fails(*flight):
            return ""
        await self.client.introduce(headers)
        task = self._calls.get(flight)
        if task is None:
            if not self.client.permits(headers):
                return ""
            task = self._calls[flight] = asyncio.create_task(self._summarise(caller, want, headers, spent))
            task.add_done_callback(lambda _: self._calls.pop(flight, None))
        done, _ = await asyncio.wait({task}, timeout=self.seconds)
        if not done:
            self._fail(*flight)  # the call goes on: its summary is cached for a later turn
        return task.result() if done and not task.cancelled() else ""

    async def _known(self, caller: bytes, key: str) -> str | None:
        found = await self.contents.get(KIND, caller, key.encode())
        return None if found is None else found.decode(errors="replace")

    async def _summarise(self, caller: bytes, want: Want, headers: Headers, spent: CallCost | None) -> str:
        """Makes the calls and caches the summary, or the failure."""
        model, most = str(want.payload.model), int(want.payload.max_tokens)
        try:
            async with self.client.slot(caller):
                summary, rest = await self._begun(caller, want.payload.strides)
                pieces = await asyncio.to_thread(self._pieces, model, most, self.knowledge.known(model), rest)
                for piece in pieces:
                    async with asyncio.timeout(self.seconds):
                        summary = await self._asked(model, most, summary, piece, headers, spent)
            self.contents.put(KIND, caller, want.key.encode(), summary.encode(errors="replace"))
            return summary
        except CallDenied:
            return ""
        except (UpstreamError, TimeoutError):
            why, lasting = "no answer", True
        except NoSummary as error:
            why, lasting = str(error), error.lasting
        except Exception as error:  # our own bug must not fail the request
            why, lasting = type(error).__name__, False
        self._fail(caller, want.key)
        if lasting:
            self._fail(caller)
        log.event("a summary failed", model=log.printable(model), why=why)
        return ""

    async def _begun(self, caller: bytes, strides: Sequence[tuple[str, Sequence[Block]]]) -> tuple[str, list[Block]]:
        """The newest cached summary of a part of the blocks, and the blocks that it does not cover. Waits for a summary
        whose call is under way: it started earlier, so it does not wait for this one."""
        rest: list[Block] = []
        for place in range(len(strides) - 1, -1, -1):
            key, fresh = strides[place]
            under_way = self._calls.get((caller, key)) if rest else None
            if under_way is not None:
                await asyncio.wait({under_way})
            summary = await self._known(caller, key)
            if summary:
                return summary, rest
            rest = [*fresh, *rest]
        return "", rest

    def _pieces(self, model: str, most: int, window: Window, blocks: Iterable[Block]) -> list[str]:
        """The transcript in pieces that fit the summariser's window. Runs in a thread: it counts the whole text."""
        meter = meter_for(Prompt(model, ()), model, self.knowledge.cache.memory, families=self.knowledge.families)
        room = min(window.tokens - most, window.max_input or window.tokens)
        room = int(0.9 * room) - meter.text(self.instructions or "") - most - FRAME  # a summary so far is as long
        if room < LEAST_ROOM:
            raise NoSummary("its window is too small")
        pieces = packed(filter(None, map(transcript, blocks)), room, meter)
        if not pieces or len(pieces) > MOST_PIECES:
            raise NoSummary("nothing to sum up" if not pieces else "too much to sum up")
        return pieces

    async def _asked(
        self, model: str, most: int, before: str, piece: str, headers: Headers, spent: CallCost | None
    ) -> str:
        """One question, and the summary in its answer."""
        said = prompt_for(self.instructions or "", most, before, piece)
        api = self._api(() if self.client.dedicated else headers)
        assert api is not None and api.summary is not None
        call, needed = api.summary, api.summary.headers if self.client.dedicated else ()
        target, body = api.path.encode(), call.request_body(model, *said, most)
        status, payload = await self.client.post(target, body, headers, ANSWER_BYTES, spent, needed)
        if status != 200:
            raise NoSummary(f"status {status}", lasting=status not in ABOUT_THE_TEXT)
        reply = call.text_in(payload)
        if reply is None:
            raise NoSummary("it is no response of this API", lasting=True)
        return summary_in(reply)

    def _api(self, headers: Headers) -> Api | None:
        """The API in which the upstream is asked: that for which a client with these headers is written, else that of
        its kind of server; None if there is none."""
        client = clients_server(headers)
        return asked_in(servers()[self.api] if client is USUAL else client)

    def _fails(self, caller: bytes, key: str = "") -> bool:
        until = self._failed.get(caller + key.encode())
        return until is not None and time.monotonic() < until

    def _fail(self, caller: bytes, key: str = "") -> None:
        self._failed.put(caller + key.encode(), time.monotonic() + (AGAIN_SECONDS if key else CALLER_SECONDS))

    async def close(self) -> None:
        """Cancels the calls under way, and closes the client."""
        await cancelled(set(self._calls.values()))
        await self.client.close()


def _create(parts: Parts) -> Summaries:
    seconds = parts.settings.summary_timeout
    return Summaries(parts.knowledge, parts.cache.contents, parts.client, parts.rules.summary, seconds, parts.api)


WANT = WantKind(KIND, LIMITS, lambda settings: (settings.summary_upstream, settings.summary_api_key), _create)
