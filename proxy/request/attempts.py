"""Planned -> Attempt: sends a payload, and reads as much of the answer as it takes to detect a refusal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from proxy.errors import ClientError
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.memory_budget import Budget, Room
from proxy.model.outcome import Refusal, Usage
from proxy.model.plan import Plan
from proxy.request.answered_keys import AnsweredKeys
from proxy.request.backend import Backend
from proxy.request.budgets import is_hidden, readable
from proxy.request.refusal_detection import RefusalDetector, came_to_nothing, plainly, unreadable
from proxy.request.restated_answers import change_of
from proxy.request.split_requests import PieceSender
from proxy.request.stages import Planned, Record
from proxy.request.work import Pool
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.headers import REQUEST_ID, Header, answered_id, reported_cost, value_of

MAX_HEALS = 2  # requests that are sent after the first one (section 2)
# Headers that describe the body's bytes: they are wrong for another payload.
OF_THE_BODY = frozenset((b"content-encoding", b"content-digest", b"repr-digest", b"digest", b"content-md5"))


class Attempt(msgspec.Struct, frozen=True):
    """An answer of the upstream, none of which the client has seen: `seen` are the bytes that had to be read to detect
    a refusal. `usage` is set if the whole answer is in `seen`. `unreadable`: it may be a refusal in a coding that is
    not decoded, and the same request may be sent again for one that is."""

    answer: Answer
    seen: bytes = b""
    refusal: Refusal | None = None
    usage: Usage | None = None
    unreadable: bool = False

    @property
    def failed(self) -> bool:
        """Whether it is an error, of whatever kind."""
        return self.refusal is not None or self.answer.status >= 400


@dataclass(frozen=True, slots=True)
class Attempts:
    """Sends requests. `keys` learns from what answers say of keys; pieces are joined in a thread of `pool`."""

    refusals: RefusalDetector
    keys: AnsweredKeys
    pool: Pool
    budget: Budget

    async def send(self, planned: Planned, target: bytes, backend: Backend, record: Record) -> Answer:
        """The upstream's answer, of which nothing is read. Raises UpstreamError."""
        received, payload = planned.received, planned.payload
        headers: Sequence[Header] = received.headers
        if payload is not received.body:
            headers = [h for h in headers if h[0] not in OF_THE_BODY]
        if record.unreadable or change_of(planned) is not None:  # the answer has to be read
            headers = plainly(headers)
        elif is_hidden(received):
            headers = readable(headers)
        headers = record.attempt(headers, backend.name)
        if planned.pieces:
            answer = await self._in_pieces(planned, target, backend, headers, record)
        else:
            answer = await backend.upstream.send("POST", target, headers, payload)
        record.answered(answer.status)
        record.cost_reported = reported_cost(answer.headers)
        record.request_id = answered_id(answer.headers) or value_of(headers, REQUEST_ID) or b""
        if backend.route is None:  # only there a client's own key is used
            self.keys.record(headers, answer.status, len(received.body))
        return answer

    def at_once(self, planned: Planned, answer: Answer) -> Attempt | None:
        """The attempt, if nothing needs to be waited for: the answer is short, plain and here already, as most are, or
        nothing that it says would change what is sent."""
        if planned.fitted is None or not planned.received.may_change:
            return Attempt(answer)
        body = answer.buffered_body()
        if body is None:
            return None
        usage = planned.received.api.response.complete_usage(body) if answer.status == 200 else None
        if usage is not None:
            return Attempt(answer, body, None, usage)
        answer.unread(body)
        return None

    async def read(self, planned: Planned, answer: Answer, record: Record) -> Attempt:
        """The attempt, with what had to be read. Raises UpstreamError."""
        if unreadable(answer) and not (planned.pieces or record.unreadable) and record.attempts <= MAX_HEALS:
            return Attempt(answer, unreadable=True)
        seen, refusal = await self.refusals.within(planned, answer)
        if refusal is not None:
            record.refusals = (*record.refusals, refusal.rule)
        return Attempt(answer, seen, refusal)

    async def _in_pieces(
        self, planned: Planned, target: bytes, backend: Backend, headers: Sequence[Header], record: Record
    ) -> Answer:
        """The joined answer to all pieces of a request, or the answer to one that failed: then the others are extra
        calls, which whoever pays for the request pays, too."""

        async def post(payload: bytes, headers: Sequence[Header]) -> Answer:
            return await backend.upstream.send("POST", target, headers, payload)

        received, plan = planned.received, planned.plan
        assert plan is not None
        room = Room(self.budget) if received.room is None else received.room.another()
        counts = [sum(len(block.messages) for block in blocks) for blocks in plan.pieces]
        sender = PieceSender(received.api, post, counts, self.pool, room)
        try:
            answer = await sender.send(planned.pieces, headers)
        except (UpstreamError, ClientError):
            record.add_cost(_in_vain(plan, sender.billed))
            raise
        if answer.status != 200:
            record.add_cost(_in_vain(plan, sender.billed))
        return answer


def _in_vain(plan: Plan, billed: Collection[int]) -> CallCost:
    """What pieces cost whose answers nobody gets."""
    return CallCost(len(billed), sum(block.tokens for number in billed for block in plan.pieces[number]))


def may_be_refused(planned: Planned, attempt: Attempt) -> bool:
    """Whether an empty stream may be a refusal: some servers fail so if a request is too long."""
    streams = planned.scanned is not None and planned.scanned.scan.stream
    return streams and not planned.proven and came_to_nothing(planned.received.api, attempt.answer, attempt.seen)
