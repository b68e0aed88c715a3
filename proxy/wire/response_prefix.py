"""What the first bytes of a 200 response show while the client has none of them: a refusal, a reply, or neither yet."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.api import Api, EventKind, ResponseState
from proxy.model.lenient_json import raw_fields
from proxy.model.outcome import Refusal
from proxy.wire import ndjson
from proxy.wire.refusals import Rules, recognise_event
from proxy.wire.sse import events, with_lf

MAX_REFUSAL = 4_096  # bytes: a refusal instead of a response has no reply in it and is never longer


@dataclass(frozen=True, slots=True)
class ResponsePrefix:
    """What a stream's first bytes show.

    `begun`: an event came. `settled`: it is certain what the stream is, a reply or a failure. `refusal`: the refusal
    that it is.
    """

    begun: bool
    settled: bool
    refusal: Refusal | None = None


BLANK_LINES = (b"\n\n", b"\r\n\r\n")  # after which an event is complete
NO_EVENT = ResponsePrefix(False, False)  # comments, half an event
NO_CONTENT = ResponsePrefix(True, False)  # the role and the model: nothing of a reply
REPLY = ResponsePrefix(True, True)


def read_prefix(api: Api, rules: Rules, data: bytes, lines: bool = False) -> ResponsePrefix:
    """What the first bytes of a stream of events show, or of one whose `lines` are events. Keep-alive comments show
    nothing."""
    shown = NO_EVENT
    for _, payload in ndjson.objects(data, True) if lines else events(with_lf(data), finished=True):
        kind = api.response.event_kind(payload)
        if kind is EventKind.CONTENT:
            return REPLY
        if kind is not EventKind.FRAME:
            return ResponsePrefix(True, True, recognise_event(rules, payload, kind is EventKind.FINISH))
        shown = NO_CONTENT
    return shown


def end_of_events(data: bytes, start: int) -> int:
    """Where the last complete event from `start` on ends; `start` where none is known to be complete."""
    return max([start, *(at + len(end) for end in BLANK_LINES if (at := data.rfind(end, start)) >= 0)])


def is_empty(api: Api, data: bytes) -> bool:
    """Whether a stream of events, complete in `data`, has no event but the API's last one."""
    pairs = events(with_lf(data + b"\n\n"), finished=True)
    return all(api.response.read(payload, ResponseState(), name).ended for name, payload in pairs)


def refusal_in(api: Api, rules: Rules, body: bytes) -> Refusal | None:
    """The refusal that a plain 200 response is, or None. `body` is its beginning, complete or not."""
    if api.response.complete_usage(body) is not None:
        return None  # nearly every response, and all that it costs
    if len(body) > MAX_REFUSAL or not raw_fields(body):
        return None
    kind = api.response.event_kind(body)
    if kind is EventKind.FINISH or kind is EventKind.OTHER:
        return recognise_event(rules, body, kind is EventKind.FINISH)
    return None
