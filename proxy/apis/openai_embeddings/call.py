"""The proxy's own calls of POST /v1/embeddings: the JSON of a request, and the vectors in a response."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence

import msgspec

from proxy.model.lenient_json import UNREADABLE

PATH = "/v1/embeddings"


class NoVectors(Exception):
    """A response without usable vectors. The text says why and contains nothing of the response."""


class _Entry(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Response(msgspec.Struct):
    data: list[_Entry]


_RESPONSE = msgspec.json.Decoder(_Response)


def request_body(model: str, texts: Sequence[str]) -> bytes:
    """The body of a request for one vector of each text. It names no encoding: some servers reject base64."""
    return msgspec.json.encode({"model": model, "input": list(texts)})


def vectors_in(body: bytes, count: int) -> list[Sequence[float]]:
    """The `count` vectors in a response's body, in the order of the texts; from numbers or from float32 in base64.

    Raises `NoVectors` if there are more or fewer, or if their lengths differ.
    """
    try:
        entries = _RESPONSE.decode(body).data
    except UNREADABLE:
        raise NoVectors("it is no response of this API") from None
    if any(entry.index is not None for entry in entries):
        entries = sorted(entries, key=lambda entry: -1 if entry.index is None else entry.index)
        if [entry.index for entry in entries] != list(range(count)):
            raise NoVectors("its vectors are of other texts")
    vectors = [_numbers(entry.embedding) for entry in entries]
    if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
        raise NoVectors("its vectors are too few, too many or of several lengths")
    return vectors


def _numbers(embedding: list[float] | str) -> Sequence[float]:
    if isinstance(embedding, list):
        return embedding
    try:
        packed = base64.b64decode(embedding, validate=True)
        return struct.unpack(f"<{len(packed) // 4}f", packed)
    except (binascii.Error, ValueError, struct.error):
        raise NoVectors("its vectors cannot be decoded") from None
