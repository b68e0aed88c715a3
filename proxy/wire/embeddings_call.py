"""A question for embeddings as the JSON of `/v1/embeddings`, and the vectors in the JSON of its answer."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence

import msgspec


class NoVectors(Exception):
    """An answer that holds no vectors for what was asked: its text says why and holds nothing of it."""


class _Entry(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Entry]


_ANSWER = msgspec.json.Decoder(_Answer)


def question(model: str, texts: Sequence[str]) -> bytes:
    """The body that asks for a vector of each text. The encoding is not said: not everybody knows base64."""
    return msgspec.json.encode({"model": model, "input": list(texts)})


def vectors_in(payload: bytes, count: int) -> list[Sequence[float]]:
    """The vectors in an answer's body, in the order of the texts; as numbers, or packed as float32 in base64. Raises
    `NoVectors` where there are not just `count` of one length."""
    try:
        entries = _ANSWER.decode(payload).data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NoVectors("it is no answer") from None
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
        raise NoVectors("its vectors cannot be read") from None
