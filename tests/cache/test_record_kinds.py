"""How records are named and stored: by upstream, model, tenant and the last invalidation, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from proxy.cache.record_kinds import (
    of_calibrations,
    of_consensus,
    of_intervals,
    of_invalidations,
    of_limit_proofs,
    unpack_time,
)
from proxy.cache.replicated import Codec

ONE, OTHER = b"https://a", b"https://b"
KINDS: Sequence[tuple[Any, Sequence[Any]]] = (
    (of_calibrations, [("m", b"t", 1.0), ("n", b"t", 1.0), ("m", b"u", 1.0), ("m", b"t", 2.0)]),
    (of_consensus, [("m", 1.0), ("n", 1.0), ("m", 2.0)]),
    (of_limit_proofs, [("m", b"t"), ("n", b"t"), ("m", b"u")]),
    (of_intervals, [("m", b"t"), ("n", b"t"), ("m", b"u")]),
    (of_invalidations, ["m", "n", "\ud800"]),
)


def test_every_kind_upstream_and_key_has_a_name_of_its_own() -> None:
    names = [
        (codec.kind, tuple(codec.parts(key)))
        for made, keys in KINDS
        for codec in (made(ONE), made(OTHER))
        for key in keys
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("made", [made for made, _ in KINDS], ids=lambda made: str(made.__name__))
def test_an_empty_record_comes_back_as_it_was_and_garbage_is_none(made: Any) -> None:
    codec: Codec[Any, Any] = made(ONE)
    assert codec.unpack(codec.pack(codec.empty)) == codec.empty
    assert codec.unpack(b"") is None and codec.unpack(b"\xc1") is None
    assert codec.seconds >= 3600


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode(-1.0), msgspec.msgpack.encode("now")])
def test_a_time_that_is_none_forgets_nothing(payload: bytes) -> None:
    assert unpack_time(payload) is None
