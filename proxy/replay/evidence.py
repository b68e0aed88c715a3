"""What the next reply took from a request that was cut or refused, and how much of that would have been sent.

Theory of operation
===================

A recording has a reply in the next request of its conversation. What it needed of the request before is taken to be the
names that both have: paths, identifiers and numbers, which are words with a digit, an underscore, a slash, an inner dot
or an inner capital. Words of a language say little, as they stand everywhere. A name that is sent anywhere is kept,
whether its message is or not; of a request that is not sent, none is.

Planning is spread over processes, and a reply comes with a later request, so names travel as hashes: those of requests
that lose something, and those of each reply. A long request has a sample of them, the least hashes. The parent takes
requests in their order and pairs them: a reply belongs to the latest request of its caller that begins alike, has as
many messages as stand before the reply, and ends with the same one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from xxhash import xxh3_64_intdigest

from proxy.model.bounded import Bounded
from proxy.model.conversation import Kind, Message, Part, PartKind
from proxy.model.lenient_json import BROKEN, Json
from proxy.wire.cache_marks import without_marks

MAX_NAMES = 8_192  # of a request, or of a reply
MAX_WAITING, MAX_WAITING_BYTES = 4_096, 32 << 20  # requests whose reply is awaited, and their names
SHORT, MAX_TEXTS = 8_192, 512  # characters of a text whose names are remembered, and such texts
WORD = re.compile(r"[A-Za-z0-9_./@-]{4,120}")
SHAPED = re.compile(r"[0-9_/@]|[a-z][A-Z]|\w\.\w")
ENDS = "./@-"


class Evidence(msgspec.Struct, frozen=True):
    """The names of a request. `end`: a digest of how many messages it has and of the last one. `said`: the names of the
    latest reply in it; `after`: the same digest of what stands before that one. `had`: its own names, of which `lost`
    would not be sent; empty where nothing is lost. Names are hashes of 8 bytes each."""

    end: int = 0
    after: int = 0
    said: bytes = b""
    had: bytes = b""
    lost: bytes = b""


NO_EVIDENCE = Evidence()


@dataclass(slots=True)
class Kept:
    """How many names replies took from requests that were cut or refused, and how many of these would be sent.
    `requests`: those that were, of which the replies to `paired` were found."""

    taken: int = 0
    kept: int = 0
    requests: int = 0
    paired: int = 0


def evidence(messages: Sequence[Message], sent: Iterable[Message] | None) -> Evidence:
    """The names of a request. `sent`: what would be sent in its place; None where nothing can be lost."""
    said_at, reply = _latest_reply(messages)
    said, end, after = _packed(_names(reply)), _end(messages), _end(messages[:said_at])
    if sent is None:
        return Evidence(end, after, said)
    had = _packed(_names(messages))
    lost = _unpacked(had) - _names(sent)
    return Evidence(end, after, said, had, _packed(lost))


def _end(messages: Sequence[Message]) -> int:
    return xxh3_64_intdigest(without_marks(messages[-1].raw), len(messages)) if messages else 0


def _latest_reply(messages: Sequence[Message]) -> tuple[int, Sequence[Message]]:
    """The model's latest messages before those of somebody else, and the place of the first one."""
    last = len(messages) - 1
    while last >= 0 and messages[last].kind is not Kind.ASSISTANT:
        last -= 1
    if last < 0 or last == len(messages) - 1:  # it begins a reply that is yet to come
        return 0, ()
    first = last
    while first and messages[first - 1].kind is Kind.ASSISTANT:
        first -= 1
    return first, messages[first : last + 1]


def _names(messages: Iterable[Message]) -> set[int]:
    found: set[int] = set()
    for message in messages:
        for part in message.parts():
            for text in _texts(part):
                found |= _named(text) if len(text) <= SHORT else _in(text)
    return found


def _texts(part: Part) -> Iterable[str]:
    """A text; of a call the values of its arguments: their names are those of the tool's definition."""
    if part.kind is not PartKind.CALL:
        return (part.text,)
    try:
        return tuple(_values(msgspec.json.decode(part.text)))
    except BROKEN:
        return (part.text,)


def _values(found: Json) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, (int, float)) and not isinstance(found, bool):
        yield str(found)
    elif isinstance(found, (dict, list)):
        for one in found.values() if isinstance(found, dict) else found:
            yield from _values(one)


def _in(text: str) -> frozenset[int]:
    words = {word.strip(ENDS) for word in WORD.findall(text)}
    return frozenset([xxh3_64_intdigest(word.encode()) for word in words if len(word) > 3 and SHAPED.search(word)])


_named = lru_cache(MAX_TEXTS)(_in)


def _packed(names: set[int]) -> bytes:
    return array("Q", sorted(names)[:MAX_NAMES]).tobytes()


def _unpacked(names: bytes) -> set[int]:
    return set(array("Q", names))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request whose reply is awaited. `sums`: what its figures are added to."""

    had: bytes
    lost: bytes
    sums: Sequence[Kept]


@dataclass(slots=True)
class Replies:
    """Pairs requests with the replies to them."""

    _waiting: Bounded[tuple[str, int, int], _Waiting] = field(
        default_factory=lambda: Bounded(MAX_WAITING, MAX_WAITING_BYTES)
    )

    def add(self, talk: tuple[str, int], found: Evidence, sums: Sequence[Kept], *, whole: bool, sent: bool) -> None:
        """A request of a conversation comes: adds what the reply in it took from the one before. `whole`: its prompt is
        sent as it came; `sent`: it is sent at all."""
        before = self._waiting.take((*talk, found.after))
        if before is not None:
            taken = _unpacked(found.said) & _unpacked(before.had)
            kept = taken - _unpacked(before.lost)
            for one in before.sums:
                one.taken += len(taken)
                one.kept += len(kept)
                one.paired += 1
        key = (*talk, found.end)
        if whole:
            self._waiting.take(key)  # it was repeated: nothing of it is lost
            return
        for one in sums:
            one.requests += 1
        lost = found.lost if sent else found.had
        self._waiting.put(key, _Waiting(found.had, lost, sums), len(found.had) + len(lost))
