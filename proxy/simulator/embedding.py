"""Embeddings without a model: the vector of a text is the sum of pseudo-random vectors of its words.

The vectors are reproducible. Texts that share words are similar.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.simulator.check import ApiError

DIMENSIONS = 256  # where the request sets no other number
MAX_INPUTS = MAX_DIMENSIONS = 2048  # the limits of OpenAI
WORD = re.compile(r"\w+")


def embeddings(body: Mapping[str, Any], synonyms: Mapping[str, str]) -> bytes:
    """The response of `/v1/embeddings` in OpenAI's shape. `synonyms` maps words to the words that they count as.

    Raises `ApiError` (400) for a request that OpenAI would refuse.
    """
    texts, size, encoding = body.get("input"), body.get("dimensions", DIMENSIONS), body.get("encoding_format", "float")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise ApiError(400, "you must provide a model parameter")
    if (
        not isinstance(texts, list)
        or not 0 < len(texts) <= MAX_INPUTS
        or not all(isinstance(t, str) and t for t in texts)
    ):
        raise ApiError(400, "'$.input' is invalid. Please check the API reference.", param="input")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_DIMENSIONS:
        raise ApiError(400, f"Invalid value for 'dimensions': expected 1 to {MAX_DIMENSIONS}.", param="dimensions")
    if encoding not in ("float", "base64"):
        raise ApiError(400, f"Invalid value for 'encoding_format': {encoding!r}.", param="encoding_format")
    vectors = [vector(text, size, synonyms) for text in texts]
    data = [
        {"object": "embedding", "index": i, "embedding": numbers if encoding == "float" else _base64(numbers)}
        for i, numbers in enumerate(vectors)
    ]
    tokens = sum(len(WORD.findall(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": body["model"], "usage": usage})


def vector(text: str, size: int, synonyms: Mapping[str, str]) -> list[float]:
    """A unit vector of `size` dimensions."""
    sums = [0.0] * size
    for word in WORD.findall(text.lower()) or [text]:
        for i, sign in enumerate(_signs(synonyms.get(word, word), size)):
            sums[i] += sign
    length = math.sqrt(sum(x * x for x in sums)) or 1.0
    return [x / length for x in sums]


def _signs(word: str, size: int) -> list[int]:
    """The pseudo-random direction of a word: +1 or -1 in each dimension."""
    bits = b"".join(blake2b(b"%d" % i, key=word.encode()[:64]).digest() for i in range(size // 512 + 1))
    return [1 if bits[i >> 3] >> (i & 7) & 1 else -1 for i in range(size)]


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
