"""The five kinds of records of an upstream's models: how each is named and stored in the backend.

`base` is the upstream's URL: records of different upstreams have different names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from proxy.cache import calibration, intervals, limit_proofs
from proxy.cache.calibration import Calibration, Consensus
from proxy.cache.intervals import Interval
from proxy.cache.invalidation import TIMESTAMP
from proxy.cache.limit_proofs import LimitProofs
from proxy.cache.replicated import Codec

RATIO_TTL_S = 86_400.0
Key = tuple[str, bytes]  # a model and a tenant
# When the records of a model were last invalidated, in seconds since 1970. It is part of the name of calibrations and
# of the consensus, so that no replica finds older ones.
InvalidatedAt = float
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


def of_calibrations(base: bytes) -> Codec[tuple[str, bytes, InvalidatedAt], Calibration]:
    """The calibration of a model and a tenant."""

    def parts(key: tuple[str, bytes, InvalidatedAt]) -> tuple[bytes, ...]:
        return base, _encoded(key[0]), key[1], TIMESTAMP.pack(key[2])

    stored = Calibration(), Calibration.merged, calibration.pack, calibration.unpack
    return Codec("line:1", parts, *stored, RATIO_TTL_S, lambda key: key[1])


def of_consensus(base: bytes) -> Codec[tuple[str, InvalidatedAt], Consensus]:
    """The votes of callers on a model."""

    def parts(key: tuple[str, InvalidatedAt]) -> tuple[bytes, ...]:
        return base, _encoded(key[0]), TIMESTAMP.pack(key[1])

    stored = Consensus(), Consensus.merged, calibration.pack_votes, calibration.unpack_votes
    return Codec("lines:1", parts, *stored, RATIO_TTL_S)


def of_limit_proofs(base: bytes) -> Codec[Key, LimitProofs]:
    """What refusals of a model proved for a tenant."""
    stored = LimitProofs(), LimitProofs.merged, limit_proofs.pack, limit_proofs.unpack
    return Codec(limit_proofs.KIND, _named(base), *stored, limit_proofs.MAX_LIFETIME_S, _tenant)


def of_intervals(base: bytes) -> Codec[Key, Interval]:
    """Between which sizes the window of a model lies for a tenant."""
    stored = Interval(), Interval.merged, intervals.pack, intervals.unpack
    return Codec(intervals.KIND, _named(base), *stored, intervals.LIFETIME_S, _tenant)


def of_invalidations(base: bytes) -> Codec[str, float]:
    """When the records of a model were last invalidated."""
    stored = 0.0, max, msgspec.msgpack.encode, unpack_time
    return Codec("forgotten:1", lambda model: (base, _encoded(model)), *stored, limit_proofs.MAX_LIFETIME_S)


def _named(base: bytes) -> Callable[[Key], tuple[bytes, ...]]:
    return lambda key: (base, _encoded(key[0]), key[1])


def _tenant(key: Key) -> bytes:
    return key[1]


def _encoded(model: str) -> bytes:
    return model.encode("utf-8", "surrogatepass")


def unpack_time(payload: bytes) -> float | None:
    """The time of an invalidation; None for bytes that are none."""
    try:
        return msgspec.msgpack.decode(payload, type=Timestamp)
    except msgspec.MsgspecError:
        return None
