"""Embeddings without a model: a text's vector is the sum of its words' own, which are chance, but always the same."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.errors import ClientError

SIZE = 256  # dimensions, where a request wants no other number
MOST = 2048  # texts in one request, and dimensions, as OpenAI has it
WORD = re.compile(r"\w+")


def embeddings(body: Mapping[str, Any], meanings: Mapping[str, str]) -> bytes:
    """The answer to a request of `/v1/embeddings` in OpenAI's shape. Words in `meanings` count as what they stand for.
    Raises `ClientError` for what OpenAI would refuse."""
    texts, size, coding = body.get("input"), body.get("dimensions", SIZE), body.get("encoding_format", "float")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise ClientError(400, "you must provide a model parameter")
    if not isinstance(texts, list) or not 0 < len(texts) <= MOST or not all(isinstance(t, str) and t for t in texts):
        raise ClientError(400, "'$.input' is invalid. Please check the API reference.", param="input")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MOST:
        raise ClientError(400, f"Invalid value for 'dimensions': expected 1 to {MOST}.", param="dimensions")
    if coding not in ("float", "base64"):
        raise ClientError(400, f"Invalid value for 'encoding_format': {coding!r}.", param="encoding_format")
    vectors = [vector(text, size, meanings) for text in texts]
    data = [
        {"object": "embedding", "index": i, "embedding": numbers if coding == "float" else _base64(numbers)}
        for i, numbers in enumerate(vectors)
    ]
    tokens = sum(len(WORD.findall(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": body["model"], "usage": usage})


def vector(text: str, size: int, meanings: Mapping[str, str]) -> list[float]:
    """So many numbers, of length 1 together."""
    sums = [0.0] * size
    for word in WORD.findall(text.lower()) or [text]:
        for place, sign in enumerate(_signs(meanings.get(word, word), size)):
            sums[place] += sign
    length = math.sqrt(sum(x * x for x in sums)) or 1.0
    return [x / length for x in sums]


def _signs(word: str, size: int) -> list[int]:
    """A word's own direction: a sign in each dimension."""
    bits = b"".join(blake2b(b"%d" % i, key=word.encode()[:64]).digest() for i in range(size // 512 + 1))
    return [1 if bits[i >> 3] >> (i & 7) & 1 else -1 for i in range(size)]


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
