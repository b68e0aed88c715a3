"""A packed body is unpacked as far as there is room for it, and a bomb is not."""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from collections.abc import Callable

import pytest

from proxy.errors import ClientError
from proxy.http.memory_budget import FACTOR, Budget, Room
from proxy.request.decompression import ALWAYS, PIECE, RATIO, unpacked
from proxy.wire.scan import NotUnderstood
from tests.e2e.services import body, talk

PLAIN = body(talk(20))


async def at_once(heavy: bool, work: Callable[..., bytes], *arguments: object) -> bytes:
    return work(*arguments)


def take_off(packed: bytes, coding: str = "gzip", limit: int = 100_000, room: Room | None = None) -> bytes:
    return asyncio.run(unpacked(packed, coding, limit, at_once, room))


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("", PLAIN),
        ("identity", PLAIN),
        ("gzip", gzip.compress(PLAIN, mtime=0)),
        ("x-gzip", gzip.compress(PLAIN, mtime=0)),
        ("deflate", zlib.compress(PLAIN)),
    ],
)
def test_what_is_packed_in_a_way_that_we_know_is_unpacked(coding: str, packed: bytes) -> None:
    assert take_off(packed, coding) == PLAIN


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("br", PLAIN),
        ("zstd", PLAIN),
        ("gzip, gzip", gzip.compress(gzip.compress(PLAIN, mtime=0), mtime=0)),
        ("gzip", PLAIN),
        ("gzip", b""),
        ("gzip", gzip.compress(PLAIN, mtime=0)[:-5]),
        ("gzip", gzip.compress(PLAIN, mtime=0) + b"x"),
        ("gzip", gzip.compress(PLAIN, mtime=0) + gzip.compress(PLAIN, mtime=0)),
        ("gzip", gzip.compress(b" " * 200_000, mtime=0)),
        ("deflate", b"none"),
    ],
)
def test_what_cannot_be_unpacked_is_not_understood(coding: str, packed: bytes) -> None:
    with pytest.raises(NotUnderstood) as raised:
        take_off(packed, coding)
    assert "encoding" in str(raised.value) or "unpacks" in str(raised.value)


def test_a_body_as_large_as_we_take_is_unpacked() -> None:
    assert take_off(gzip.compress(PLAIN, mtime=0), limit=len(PLAIN)) == PLAIN
    with pytest.raises(NotUnderstood):
        take_off(gzip.compress(PLAIN, mtime=0), limit=len(PLAIN) - 1)


def test_pieces_are_joined_and_all_but_the_first_are_heavy() -> None:
    plain, places = os.urandom(3 * PIECE + 1), []

    async def aside(heavy: bool, work: Callable[..., bytes], *arguments: object) -> bytes:
        places.append(heavy)
        return work(*arguments)

    assert asyncio.run(unpacked(gzip.compress(plain), "gzip", 1 << 20, aside)) == plain
    assert places == [False, True, True, True]


def test_F10_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(60 << 20))
    made: list[int] = []

    async def aside(heavy: bool, work: Callable[..., bytes], *arguments: object) -> bytes:
        part = work(*arguments)
        made.append(len(part))
        return part

    with pytest.raises(NotUnderstood):
        asyncio.run(unpacked(bomb, "gzip", 64 << 20, aside))
    assert sum(made) <= max(ALWAYS, RATIO * len(bomb)) + PIECE


def test_what_unpacks_within_the_ratio_is_unpacked() -> None:
    plain = (b"%d" % 7) * ALWAYS
    assert take_off(gzip.compress(plain), limit=1 << 24) == plain


def test_a_room_holds_what_a_body_unpacks_to() -> None:
    budget = Budget(1 << 20)
    room = budget.room()
    packed = gzip.compress(PLAIN, mtime=0)
    assert room.try_reserve(len(packed))
    assert take_off(packed, room=room) == PLAIN
    assert budget.used >= FACTOR * (len(PLAIN) + len(packed))


def test_without_room_just_now_it_is_a_503_and_without_any_ever_not_understood() -> None:
    budget, packed = Budget(1 << 20), gzip.compress(os.urandom(100_000))
    other, room = budget.room(), budget.room()
    assert other.try_reserve(150_000)
    with pytest.raises(ClientError) as raised:
        take_off(packed, limit=1 << 20, room=room)
    assert (raised.value.status, raised.value.retry, raised.value.after) == (503, True, 1)
    small = Budget(1 << 18).room()
    with pytest.raises(NotUnderstood):
        take_off(packed, limit=1 << 20, room=small)
