"""The simulated Embeddings API: vectors of texts or token ids; what is too long is refused or cut as servers do."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response, whole
from proxy.simulator.check import ApiError, invalid
from proxy.simulator.counting import EMBEDDED, Prompt, is_ids, tokens_of
from proxy.simulator.embedding_refusals import embedder
from proxy.simulator.json import Json
from proxy.simulator.openai_server import posted
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.vectors import DIMENSIONS, vector

PATHS = re.compile(r"(?:/openai)?/v1/embeddings")
MAX_INPUTS = MAX_DIMENSIONS = 2048  # the limits of OpenAI
MAX_TOGETHER = 300_000  # tokens of all inputs
TOO_MANY = "max_tokens_per_request"


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    _, body = posted(request)
    return whole(200, await asyncio.to_thread(embeddings, body, config))


def embeddings(body: Mapping[str, Any], config: SimulatorConfig) -> bytes:
    """The response of `/v1/embeddings` in OpenAI's shape.

    Raises `ApiError` (400) for a request that OpenAI would refuse.
    """
    size, encoding = body.get("dimensions", DIMENSIONS), body.get("encoding_format", "float")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise ApiError(400, "you must provide a model parameter")
    texts = _inputs(body.get("input"))
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_DIMENSIONS:
        raise ApiError(400, f"Invalid value for 'dimensions': expected 1 to {MAX_DIMENSIONS}.", param="dimensions")
    if encoding not in ("float", "base64"):
        raise ApiError(400, f"Invalid value for 'encoding_format': {encoding!r}.", param="encoding_format")
    tokens = _counted(body, texts, config)
    vectors = [vector(text if isinstance(text, str) else str(text), size, config.synonyms) for text in texts]
    data = [
        {"object": "embedding", "index": i, "embedding": numbers if encoding == "float" else _base64(numbers)}
        for i, numbers in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": body["model"], "usage": usage})


def _inputs(said: Json) -> list[Prompt]:
    """The inputs of a request. Raises `ApiError`."""
    texts = said if isinstance(said, list) and not (said and type(said[0]) is int) else [said]
    valid = all((isinstance(text, str) and text) or is_ids(text) for text in texts)
    if not texts or not valid:
        raise ApiError(400, "'$.input' is invalid. Please check the API reference.", param="input")
    if len(texts) > MAX_INPUTS:
        text = f"Invalid 'input': array too long. Expected an array with maximum length {MAX_INPUTS}, but got an array "
        raise invalid(text + f"with length {len(texts)} instead.", "array_above_max_length", "input")
    return texts


def _counted(body: Mapping[str, Any], texts: Sequence[Prompt], config: SimulatorConfig) -> int:
    """Tokens of all inputs as they are read. Raises `ApiError` if one of them, or all together, are too long."""
    counts = [tokens_of(body["model"], text, EMBEDDED) for text in texts]
    server = embedder(config.provider)
    window = server.limit(config.window_of(body["model"]), config.batch)
    if server.allows(body):
        counts = [min(count, window) for count in counts]
    long = next((i for i, count in enumerate(counts) if count > window), None)
    if long is not None:
        raise server.refusal(long, window, counts[long])
    if sum(counts) > MAX_TOGETHER:
        text = f"Requested {sum(counts)} tokens, max {MAX_TOGETHER} tokens per request"
        raise ApiError(400, text, TOO_MANY, TOO_MANY)
    return sum(counts)


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
