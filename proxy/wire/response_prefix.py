"""What the beginning of a 200 answer shows while the client has none of it: a refusal, a reply, or nothing yet."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.outcome import Refusal
from proxy.wire.answers import (
    ORDINARY,
    Fields,
    choices_of,
    fields_of,
    finish_of,
    has_content,
    is_error,
    plain_usage,
    says_words,
)
from proxy.wire.refusals import Rules, recognise_event
from proxy.wire.sse import events, unified

SHORT = 4_096  # bytes: a refusal in place of an answer has no reply in it, and is never longer


@dataclass(frozen=True, slots=True)
class Opening:
    """What a stream's first bytes show: whether an event has `begun` it, whether it is `settled` what it is (a reply
    or a failure), and the `refusal` that it is."""

    begun: bool
    settled: bool
    refusal: Refusal | None = None


SILENT = Opening(False, False)  # comments, half an event
FRAME = Opening(True, False)  # who speaks and with what model: nothing of a reply
REPLY = Opening(True, True)


def opening(rules: Rules, seen: bytes) -> Opening:
    """What the first bytes of a stream of events show. Keep-alive comments show nothing."""
    shown = SILENT
    for _, payload in events(unified(seen), finished=True):
        if says_words(payload):
            return REPLY  # nearly every stream, and all that it costs
        shown = FRAME
        fields = fields_of(payload)
        if not _is_ordinary(fields):
            return Opening(True, True, recognise_event(rules, payload))
        if any(has_content(choice) for choice in choices_of(fields)):
            return REPLY
    return shown


def is_empty(seen: bytes) -> bool:
    """Whether a stream of events, all of it, has no event that says anything."""
    return all(payload == b"[DONE]" for _, payload in events(unified(seen + b"\n\n"), finished=True))


def refusal_in(rules: Rules, body: bytes) -> Refusal | None:
    """The refusal that a plain 200 answer is, or None; `body` are its first bytes, whole or not."""
    if plain_usage(body) is not None:
        return None  # nearly every answer, and all that it costs
    fields = fields_of(body) if len(body) <= SHORT else {}
    return None if not fields or _is_ordinary(fields) else recognise_event(rules, body)


def _is_ordinary(fields: Fields) -> bool:
    """Whether it is what replies are made of."""
    return "choices" in fields and not is_error(fields) and all(finish_of(c) in ORDINARY for c in choices_of(fields))
