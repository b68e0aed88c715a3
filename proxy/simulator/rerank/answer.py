"""The simulator's rerank endpoints: documents by the words that they share with the query, and what is too long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from operator import mul
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import JSON_HEADERS, Response
from proxy.simulator.check import ApiError, invalid
from proxy.simulator.counting import EMBEDDED, tokens_of
from proxy.simulator.embedding_refusals import embedder
from proxy.simulator.json import Json
from proxy.simulator.openai_server import posted
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.vectors import DIMENSIONS, vector

PATHS = re.compile(r"(?:/v[12])?/rerank")
MODEL = "rerank"  # where the request names none


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    _, body = posted(request)
    return await asyncio.to_thread(reranked, body, config)


def reranked(body: Mapping[str, Any], config: SimulatorConfig) -> Response:
    """The response to a request. A query is compared with each document alone. Raises `ApiError`."""
    model, query = str(body.get("model") or MODEL), body.get("query")
    texts = [_text(one) for one in _documents(body)]
    if not isinstance(query, str) or not query:
        raise invalid("Missing required parameter: 'query'.", "missing_required_parameter", "query")
    server = embedder(config.provider)
    limit = server.limit(config.window_of(model), config.batch)
    asked, counts = tokens_of(model, query, EMBEDDED), [tokens_of(model, text, EMBEDDED) for text in texts]
    read = [min(count, limit - asked) for count in counts] if server.allows(body) else counts
    long = next((i for i, count in enumerate(read) if asked + count > limit), None)
    if long is not None:
        raise server.refusal(long, limit, asked + read[long])
    wanted = vector(query, DIMENSIONS, config.synonyms)
    scores = [sum(map(mul, wanted, vector(text, DIMENSIONS, config.synonyms))) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: -scores[i])[: body.get("top_n") or len(texts)]
    results = [{"index": i, "relevance_score": scores[i]} for i in order]
    encoded = msgspec.json.encode({"results": results, "usage": {"total_tokens": asked * len(texts) + sum(read)}})
    return Response(200, JSON_HEADERS, (encoded,))


def _documents(body: Mapping[str, Any]) -> list[Json]:
    """The documents of a request; TEI calls them texts. Raises `ApiError`."""
    found = body.get("documents", body.get("texts"))
    if not isinstance(found, list) or not found:
        raise invalid("Missing required parameter: 'documents'.", "missing_required_parameter", "documents")
    return found


def _text(document: Json) -> str:
    text = document.get("text") if isinstance(document, dict) else document
    if not isinstance(text, str):
        raise ApiError(400, "Invalid type for 'documents': expected an array of strings or of objects with a text.")
    return text
