"""The simulator's /api/embed of Ollama: the vectors of its texts; it cuts what is too long without a word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response
from proxy.simulator.counting import EMBEDDED, tokens_of
from proxy.simulator.json import Json
from proxy.simulator.ollama_server import COMMON, DURATIONS, OllamaError, check_types, json_response, load, posted
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.shapes import ANY, INTEGER, TEXT
from proxy.simulator.vectors import DIMENSIONS, vector

PATHS = re.compile("/api/embed")
TOO_LONG = "the input length exceeds the context length"
REQUEST = {
    "model": TEXT,
    "input": ANY,
    "dimensions": INTEGER,
    **{key: COMMON[key] for key in ("options", "keep_alive", "truncate")},
}


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    _, body = posted(request)
    texts = check(body)
    window = load(body, config, held)
    return json_response(200, await asyncio.to_thread(_embedded, body, texts, window, config.synonyms))


def check(body: Mapping[str, Any]) -> list[str]:
    """The texts of a request. Raises `OllamaError` for a request that Ollama refuses."""
    check_types(body, REQUEST, "EmbedRequest")
    given = body.get("input")
    texts = [given] if isinstance(given, str) and given else given or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise OllamaError(400, "invalid input type")
    return texts


def _embedded(body: Mapping[str, Any], texts: list[str], window: int, synonyms: Mapping[str, str]) -> Json:
    """The vectors of texts, and the tokens that were read. Raises `OllamaError` for a text that may not be cut."""
    counts = [tokens_of(body["model"], text, EMBEDDED) for text in texts]
    if body.get("truncate") is False and any(count > window for count in counts):
        raise OllamaError(400, TOO_LONG)
    vectors = [vector(text, body.get("dimensions") or DIMENSIONS, synonyms) for text in texts]
    durations = {key: DURATIONS[key] for key in ("total_duration", "load_duration")}
    read = sum(min(count, window) for count in counts)
    return {"model": body["model"], "embeddings": vectors, **durations, "prompt_eval_count": read}
