"""The simulator's Gemini API: contents, counts, embeddings; refusals in Google's wording. A word is a token.

`PATHS` name the model and what is asked of it: /v1beta/models/gemini-2.5-pro:generateContent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response, whole
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json, decode_object
from proxy.simulator.refusals import chat_format
from proxy.simulator.replies import TOKEN
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.vectors import DIMENSIONS, vector

PATHS = re.compile(r"/v1beta/models/([^:/]+):(\w+)")
GENERATE, STREAM, COUNT = "generateContent", "streamGenerateContent", "countTokens"
EMBED, EMBED_BATCH = "embedContent", "batchEmbedContents"
MAX_BATCH = 100
ROLES = ("user", "model")
SIGNED_MODEL = re.compile(r"gemini-[3-9]")  # the calls of its current turn carry a signature
SIGNATURE = "sim-thought"
STATUSES = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
JSON_HEADERS = ((b"content-type", b"application/json; charset=UTF-8"),)
SSE_HEADERS = ((b"content-type", b"text/event-stream"),)


class GeminiError(ApiError):
    """An error in Google's shape."""

    def body(self) -> bytes:
        """Its JSON."""
        status = STATUSES.get(self.status, "INVALID_ARGUMENT" if self.status < 500 else "INTERNAL")
        return msgspec.json.encode({"error": {"code": self.status, "message": self.message, "status": status}})


def failure(error: ApiError) -> GeminiError:
    """An error of the simulator's in Google's shape."""
    return GeminiError(error.status, error.message)


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    return await asyncio.to_thread(_answered, request, config)


def _answered(request: RecordedRequest, config: SimulatorConfig) -> Response:
    found = PATHS.fullmatch(request.path)
    assert found is not None
    model, asked = found[1], found[2]
    keys = (request.header(b"x-goog-api-key") or b"").decode("latin-1"), request.query.decode("latin-1")
    if config.api_key and config.api_key != keys[0] and f"key={config.api_key}" not in keys[1].split("&"):
        raise GeminiError(401, "API key not valid. Please pass a valid API key.")
    body = decode_object(request.decompressed())
    if body is None:
        raise GeminiError(400, "Invalid JSON payload received.")
    window = config.window_of(model)
    if asked in (EMBED, EMBED_BATCH):
        return _whole(_embedded(body, asked, window, config))
    if asked not in (GENERATE, STREAM, COUNT):
        raise GeminiError(404, f"models/{model} is not found for API version v1beta, or is not supported for {asked}.")
    said = body.get("generateContentRequest") if asked == COUNT else None
    said = said if isinstance(said, dict) else body
    check(said, model)
    prompt = count_prompt(said)
    if asked == COUNT:
        return _whole({"totalTokens": prompt})
    if prompt > window:
        raise _too_long(prompt, window)
    chunks = list(_chunks(said, prompt, config))
    if asked == STREAM:
        return Response(200, SSE_HEADERS, (b"data: %b\r\n\r\n" % msgspec.json.encode(one) for one in chunks))
    words = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
    last = chunks[-1]
    last["candidates"][0]["content"]["parts"] = [{"text": "".join(str(part["text"]) for part in words)}]
    return _whole(last)


def _too_long(prompt: int, window: int) -> GeminiError:
    return GeminiError(400, chat_format("gemini").prompt_text.format(prompt=prompt, window=window))


def check(body: Mapping[str, Any], model: str) -> None:
    """Raises `GeminiError` for turns that Gemini refuses."""
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise GeminiError(400, "* GenerateContentRequest.contents: contents is not specified")
    for i, turn in enumerate(contents):
        if turn.get("role", "user") not in ROLES:
            raise GeminiError(400, "Please use a valid role: user, model.")
        if not turn.get("parts"):
            raise GeminiError(400, f"* GenerateContentRequest.contents[{i}].parts: contents.parts must not be empty.")
    if contents[0].get("role", "user") != "user" or _named(contents[0], "functionResponse"):
        raise GeminiError(400, "Please ensure that the first content has the role user.")
    _check_calls(contents)
    _check_signatures(contents, model)


def _check_calls(contents: Sequence[Mapping[str, Any]]) -> None:
    for before, turn in pairwise(({"role": "model"}, *contents, {"role": "model"})):
        calls, answers = _named(before, "functionCall"), _named(turn, "functionResponse")
        if len(calls) != len(answers):
            raise GeminiError(
                400,
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn.",
            )
        if _named(turn, "functionCall") and before.get("role", "user") != "user":
            raise GeminiError(
                400,
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn.",
            )


def _check_signatures(contents: Sequence[Mapping[str, Any]], model: str) -> None:
    """Of the current turn: what follows the last words of the user."""
    asked = [i for i, turn in enumerate(contents) if turn.get("role", "user") == "user" and _named(turn, "text")]
    for i, turn in enumerate(contents):
        for part in _named(turn, "functionCall")[:1]:
            signature = part.get("thoughtSignature")
            if signature is None and SIGNED_MODEL.match(model) and asked and i > asked[-1]:
                raise GeminiError(400, "Function call is missing a thought_signature in functionCall parts.")
            if signature not in (None, SIGNATURE):
                raise GeminiError(400, "Invalid thought signature.")


def _named(turn: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """The parts of a turn that have this field."""
    return [part for part in turn.get("parts") or () if kind in part]


def count_prompt(body: Mapping[str, Any]) -> int:
    """Tokens of a request: the words of its contents, instructions and tools."""
    read = [body.get(key) for key in ("contents", "systemInstruction", "tools")]
    return sum(len(TOKEN.findall(text)) for text in _texts(read))


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for inner in (inner for key, inner in value.items() if key != "role"):
            yield from _texts(inner)


def _chunks(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> Iterator[dict[str, Any]]:
    """The chunks of a reply; each reports what was used so far."""
    words = TOKEN.findall(config.text or f"The simulator read {prompt} tokens.")
    limit = (body.get("generationConfig") or {}).get("maxOutputTokens") or len(words)
    for i, word in enumerate(words[:limit], 1):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": word}], "role": "model"}, "index": 0}
        if i == min(limit, len(words)):
            candidate["finishReason"] = "STOP" if limit >= len(words) else "MAX_TOKENS"
        used = {"promptTokenCount": prompt, "candidatesTokenCount": i, "totalTokenCount": prompt + i}
        yield {"candidates": [candidate], "usageMetadata": used}


def _embedded(body: Mapping[str, Any], asked: str, window: int, config: SimulatorConfig) -> Json:
    """The vectors of texts; what is too long is cut at its end, unless the request forbids it."""
    requests = body.get("requests") if asked == EMBED_BATCH else [body]
    if not isinstance(requests, list) or len(requests) > MAX_BATCH:
        raise GeminiError(
            400, f"* BatchEmbedContentsRequest.requests: at most {MAX_BATCH} requests can be in one batch"
        )
    found: list[Json] = []
    for one in requests:
        texts = list(_texts((one.get("content") or {}).get("parts")))
        prompt = sum(len(TOKEN.findall(text)) for text in texts)
        if prompt > window and one.get("autoTruncate") is False:
            raise _too_long(prompt, window)
        words = TOKEN.findall(" ".join(texts))[:window]
        found.append({"values": vector("".join(words), DIMENSIONS, config.synonyms)})
    return {"embedding": found[0]} if asked == EMBED else {"embeddings": found}


def _whole(value: Json) -> Response:
    return whole(200, msgspec.json.encode(value), JSON_HEADERS)
