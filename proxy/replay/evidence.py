"""What the next reply took from a request that was cut or refused, and how much of that would have been sent.

Theory of operation
===================

A recording has a reply in the next request of its conversation. What it needed of the request before is taken to be the
names that both have: paths, identifiers and numbers, which are words with a digit, an underscore, a slash, an inner dot
or an inner capital. Words of a language say little, as they stand everywhere. A name that is sent anywhere is kept,
whether its message is or not; of a request that is not sent, none is.

Planning is spread over processes, and a reply comes with a later request, so names travel as hashes: those of requests
that lose something, and those of each reply. A long request has a sample of them, the least hashes. The parent takes
requests in their order and pairs them: a reply belongs to the latest request of its conversation if as many messages
stand before it as that one had.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from xxhash import xxh3_64_intdigest

from proxy.model.bounded import Bounded
from proxy.model.conversation import Kind, Message, Part, PartKind

MAX_NAMES = 8_192  # of a request, or of a reply
MAX_WAITING = 512  # conversations whose next reply is awaited: at most 64 MiB of names
SHORT = 65_536  # characters of a text whose names are remembered
WORD = re.compile(r"[A-Za-z0-9_./@-]{4,120}")
SHAPED = re.compile(r"[0-9_/@]|[a-z][A-Z]|\w\.\w")
ENDS = "./@-"
ESCAPES = re.compile(r"\\[nrt\"]")  # in the arguments of calls


class Evidence(msgspec.Struct, frozen=True):
    """The names of a request. `length`: its messages. `said`: the names of the latest reply in it, `said_at` the number
    of messages before that one. `had`: its own names, of which `lost` would not be sent; empty where nothing is lost.
    Names are hashes of 8 bytes each."""

    length: int = 0
    said_at: int = 0
    said: bytes = b""
    had: bytes = b""
    lost: bytes = b""


NO_EVIDENCE = Evidence()


@dataclass(slots=True)
class Kept:
    """How many names replies took from requests that were cut or refused, and how many of these would be sent."""

    taken: int = 0
    kept: int = 0

    @property
    def share(self) -> float | None:
        """The share that is kept; None where nothing was taken."""
        return self.kept / self.taken if self.taken else None


def evidence(messages: Sequence[Message], sent: Iterable[Message] | None) -> Evidence:
    """The names of a request. `sent`: what would be sent in its place; None where nothing can be lost."""
    said_at, reply = _latest_reply(messages)
    said = _packed(_names(reply))
    if sent is None:
        return Evidence(len(messages), said_at, said)
    had = _packed(_names(messages))
    lost = _unpacked(had) - _names(sent)
    return Evidence(len(messages), said_at, said, had, _packed(lost))


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
            text = _plain(part)
            found |= _named(text) if len(text) <= SHORT else _in(text)
    return found


def _plain(part: Part) -> str:
    """A text; that of a call's arguments without the escapes of JSON, which would stick to names."""
    return ESCAPES.sub(" ", part.text) if part.kind is PartKind.CALL else part.text


def _in(text: str) -> frozenset[int]:
    words = {word.strip(ENDS) for word in WORD.findall(text)}
    return frozenset([xxh3_64_intdigest(word.encode()) for word in words if len(word) > 3 and SHAPED.search(word)])


_named = lru_cache(1_024)(_in)


def _packed(names: set[int]) -> bytes:
    return array("Q", sorted(names)[:MAX_NAMES]).tobytes()


def _unpacked(names: bytes) -> set[int]:
    return set(array("Q", names))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request whose reply is awaited. `sums`: what its figures are added to."""

    length: int
    had: bytes
    lost: bytes
    sums: Sequence[Kept]


@dataclass(slots=True)
class Replies:
    """Pairs requests with the replies to them."""

    _waiting: Bounded[tuple[str, int], _Waiting] = field(default_factory=lambda: Bounded(MAX_WAITING))

    def add(self, talk: tuple[str, int], found: Evidence, sums: Sequence[Kept], *, sent: bool) -> None:
        """A request of a conversation comes: adds what its reply took from the one before. `sent`: it is sent at
        all."""
        before = self._waiting.take(talk)
        if before is not None and before.length == found.said_at:
            taken = _unpacked(found.said) & _unpacked(before.had)
            kept = taken - _unpacked(before.lost)
            for one in before.sums:
                one.taken += len(taken)
                one.kept += len(kept)
        if found.had:
            lost = found.lost if sent else found.had
            self._waiting.put(talk, _Waiting(found.length, found.had, lost, sums))
