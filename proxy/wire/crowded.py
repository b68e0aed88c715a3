"""Leaves out the middle of a conversation that has too many messages or values to be parsed whole. It counts no tokens.

The borders of the messages are found without parsing them. The first ones up to the user's first, and as many of the
newest as may be parsed, are kept. What lies between is read one message at a time, for what must never go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from proxy.model import oversized_json
from proxy.model.conversation import Kind, Message
from proxy.model.lenient_json import object_of
from proxy.wire.body import Whole, copied

FIRST = 64  # messages among which the user's first is looked for
MOST = 100_000  # messages of a conversation: to look at more takes seconds of the processor
STAYING = 256  # messages in the middle that must stay, at most: more are no conversation that we know
MessageOf = Callable[[msgspec.Raw, int, Whole], Message]


def without_middle(
    head: Mapping[str, msgspec.Raw],
    whole: Whole,
    field: str,
    raws: Sequence[msgspec.Raw],
    message: MessageOf,
    most: tuple[int, int],
    begins: Callable[[Message], bool] = lambda message: message.kind is Kind.ASSISTANT,
) -> tuple[bytes, int] | None:
    """The body with the first and the newest of its messages, and how many are left out; None if that is not certain.

    `head` and `whole` are those of `proxy.wire.body.decoded`; `raws` are the messages in `field`, and `message` reads
    one. `most`: the values and the messages that are kept, at most. `begins`: whether the conversation may go on
    with a message after a gap. Calls and results stay together. Raises one of `UNREADABLE`.
    """
    if len(raws) > MOST:
        return None
    lead = _lead(raws, message, whole)
    if not lead or lead[-1].kind is not Kind.USER or _is_open(lead):
        return None
    first = _first_of_newest(raws, len(lead), most[0] - _values_besides(head, field, raws[: len(lead)]), most[1])
    newest = [message(raws[i], i, whole) for i in range(first, len(raws))]
    start = _start(newest, begins)
    if start is None:
        return None
    gap = range(len(lead), first + start)
    staying = [i for i in gap if _must_stay(message(raws[i], i, whole))]
    if len(staying) > STAYING:
        return None
    kept = (*range(len(lead)), *staying, *range(first + start, len(raws)))
    written = b",".join([oversized_json.copy(whole(raws[i])) for i in kept])
    return object_of({**copied(head, whole), field: b"[" + written + b"]"}.items()), len(raws) - len(kept)


def _lead(raws: Sequence[msgspec.Raw], message: MessageOf, whole: Whole) -> list[Message]:
    """The first messages, up to the user's first."""
    found: list[Message] = []
    for place, raw in enumerate(raws[:FIRST]):
        found.append(message(raw, place, whole))
        if found[-1].kind is Kind.USER:
            break
    return found


def _is_open(lead: Sequence[Message]) -> bool:
    """Whether a call has its result, if any, behind these messages."""
    answered = {ident for m in lead for ident in m.answers}
    return any(call.id not in answered for m in lead for call in m.calls)


def _values_besides(head: Mapping[str, msgspec.Raw], field: str, lead: Sequence[msgspec.Raw]) -> int:
    """An upper bound of the values in the other fields and in the first messages."""
    others = [raw for key, raw in head.items() if key != field]
    return sum(oversized_json.signs(bytes(raw)) for raw in (*others, *lead))


def _first_of_newest(raws: Sequence[msgspec.Raw], least: int, values: int, messages: int) -> int:
    """The place of the first of the newest messages that have so many values, and are so many, together."""
    place = len(raws)
    while place > least and len(raws) - place < messages:
        values -= oversized_json.signs(bytes(raws[place - 1]))
        if values < 0:
            break
        place -= 1
    return place


def _start(newest: Sequence[Message], begins: Callable[[Message], bool]) -> int | None:
    """The place from which on no result is without its call, and no run of messages without its beginning."""
    start: int | None = None
    place, called = 0, set[str]()
    for run in newest[0].format.runs(newest) if newest else ():
        called.update(call.id for m in run for call in m.calls)
        is_orphan = bool(run[0].answers) or run[0].kind is Kind.RESULT
        if place == 0 or is_orphan or any(ident not in called for m in run for ident in m.answers):
            start, called = None, set()  # the first run may have begun before
        elif start is None and begins(run[0]):
            start = place
        place += len(run)
    return start


def _must_stay(message: Message) -> bool:
    return message.kind is Kind.INSTRUCTION or message.pinned or message.compacts
