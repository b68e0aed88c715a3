"""The simulator as an ASGI application: an OpenAI-compatible upstream, as strict as the real ones.

It runs no model: it counts tokens, refuses what a provider would refuse in that provider's wording, and replies by a
fixed script.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from proxy.simulator import (
    anthropic_messages,
    azure,
    completions,
    embedding,
    gemini,
    ollama,
    ollama_embed,
    ollama_generate,
    reranking,
    responses,
    tokenizing,
)
from proxy.simulator.anthropic_threads import Threads
from proxy.simulator.asgi import (
    ClientDisconnected,
    Headers,
    Receive,
    Response,
    ResponseAborted,
    Scope,
    Send,
    lifespan,
    read_body,
    respond,
)
from proxy.simulator.check import ApiError
from proxy.simulator.counting import count_prompt
from proxy.simulator.json import decode_object
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.replies import CREATED, chunks, completion, event, reply_to
from proxy.simulator.settings import RecordedRequest, SimulatorConfig, with_overrides
from proxy.simulator.validation import checks_for, validate

__all__ = ["RecordedRequest", "ResponseAborted", "Simulator", "SimulatorConfig", "simulator"]

THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
SSE_HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))

# Message, type and code of injected failures, in OpenAI's wording.
FAILURES: Mapping[int, tuple[str, str, str]] = {
    429: ("Rate limit reached for requests per min (RPM): Limit 1, Used 1.", "requests", "rate_limit_exceeded"),
    503: ("The engine is currently overloaded, please try again later.", "server_error", ""),
}
OTHER_FAILURE = ("The server had an error while processing your request. Sorry about that!", "server_error", "")

CHAT_PATHS = ("/v1/chat/completions", "/openai/v1/chat/completions")
METHODS = {
    **dict.fromkeys((*CHAT_PATHS, *completions.PATHS, *embedding.PATHS, *reranking.PATHS, *tokenizing.PATHS), "POST"),
    "/v1/models": "GET",
}


def simulator(config: SimulatorConfig | None = None) -> Simulator:
    """The simulator as an ASGI application."""
    return Simulator(config or SimulatorConfig())


class Simulator:
    """The application, and what tests read from it: the last requests received (newest last), how many clients
    disconnected early, how many requests are in flight, how many failures were injected, which responses it stored,
    which threads it holds, and which of Ollama's models it loaded."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.received: deque[RecordedRequest] = deque(maxlen=config.max_recorded)
        self.disconnects = 0
        self.in_flight = 0
        self.failures = 0
        self.stored: responses.Stored = {}
        self.threads: Threads = {}
        self.loaded: ollama.Loaded = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI scope: HTTP and lifespan. A WebSocket is closed at once."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.in_flight += 1
        try:
            body = await read_body(receive)
            headers = tuple((bytes(k).lower(), bytes(v)) for k, v in scope["headers"])
            request = RecordedRequest(scope["method"], scope["path"], scope.get("query_string", b""), headers, body)
            self.received.append(request)
            await self._answer(request, receive, send)
        except ClientDisconnected:
            self.disconnects += 1
        finally:
            self.in_flight -= 1

    async def _answer(self, request: RecordedRequest, receive: Receive, send: Send) -> None:
        config = self.config
        try:
            config = with_overrides(config, request)
            self._authorize(request, config)
            if azure.serves(request.path):
                request = azure.as_openai(request, config)
            response = await self._route(request, config)
        except ApiError as found:
            error = _in_shape(found, request.path)
            extra = ((b"retry-after-ms", b"10"),) if error.status == 429 else ()
            response = _json(error.status, error.body(), extra)
        await respond(response, config, receive, send)

    def _authorize(self, request: RecordedRequest, config: SimulatorConfig) -> None:
        """Raises the errors that do not depend on the body: injected failures and a wrong key."""
        if config.status:
            raise failure(config.status)
        if azure.serves(request.path):
            azure.authorize(request, config)
        own = (
            azure.serves(request.path) or gemini.serves(request.path) or request.path in anthropic_messages.PATHS
        )  # it has its own header for the key
        if config.api_key and not own and request.header(b"authorization") != f"Bearer {config.api_key}".encode():
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")
        if self.failures < config.fail_first:
            self.failures += 1
            raise failure(config.fail_status)

    async def _route(self, request: RecordedRequest, config: SimulatorConfig) -> Response:
        if request.path in ollama.PATHS:
            return await ollama.answer(request, config, self.loaded)
        if request.path in ollama_generate.PATHS:
            return await ollama_generate.answer(request, config, self.loaded)
        if request.path in ollama_embed.PATHS:
            return await ollama_embed.answer(request, config, self.loaded)
        if request.path in anthropic_messages.PATHS:
            return await anthropic_messages.answer(request, config, self.threads)
        if gemini.serves(request.path):
            return await asyncio.to_thread(gemini.answer, request, config)
        name = request.path.removeprefix("/v1/models/") if request.path.startswith("/v1/models/") else ""
        method = "POST" if responses.serves(request.path) else METHODS.get("/v1/models" if name else request.path)
        if method is None:
            raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
        if request.method != method:
            raise ApiError(405, f"Not allowed to {request.method} on {request.path}.")
        if method == "GET":
            return _json(200, _models(name, config))
        raw = request.decompressed()
        body = decode_object(raw)
        if body is None:
            raise ApiError(400, "We could not parse the JSON body of your request.")
        if request.path in embedding.PATHS:
            return _json(200, await asyncio.to_thread(embedding.embeddings, body, config))
        if request.path in reranking.PATHS:
            return await asyncio.to_thread(reranking.reranked, body, config)
        if request.path in completions.PATHS:
            return await completions.respond_to(raw, body, config)
        if responses.serves(request.path):
            return await responses.respond_to(request.path, raw, body, config, self.stored)
        if request.path in tokenizing.PATHS:
            return await tokenizing.respond_to(request.path, raw, body, config)
        return await _chat(raw, body, config)


def _in_shape(error: ApiError, path: str) -> ApiError:
    """An error as the API of a path shows it."""
    if path in (*ollama.PATHS, *ollama_embed.PATHS, *ollama_generate.PATHS):
        return ollama.failure(error)
    if gemini.serves(path):
        return gemini.failure(error)
    return anthropic_messages.failure(error) if path in anthropic_messages.PATHS else error


def failure(status: int) -> ApiError:
    """An injected failure, which does not mention the length of the request."""
    message, kind, code = FAILURES.get(status, OTHER_FAILURE)
    return ApiError(status, message, kind, code)


async def _chat(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> Response:
    error = validate(body, checks_for(config.provider, config.system, config.max_output))
    if error is not None:
        raise error
    count = config.count or count_prompt
    prompt = await asyncio.to_thread(count, raw) if len(raw) > THREAD_MIN_BYTES else count(raw)
    return _complete(body, prompt, config)


def _complete(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> Response:
    """The response to a valid request with a prompt of `prompt` tokens."""
    provider = chat_format(config.provider)
    window = config.windows.get(body["model"], config.window)
    if config.truncates:
        prompt = read_of(prompt, window)
    requested = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    refusal = provider.refusal(window, prompt, requested)
    streams = bool(body.get("stream"))
    if refusal is not None and not provider.finish:
        status, text = config.refusal_status or refusal[0], refusal[1]
        in_stream = streams and config.in_stream
        return Response(200, SSE_HEADERS, _refusal_stream(text)) if in_stream else _json(status, text)
    reply = reply_to(body, prompt, config.text, provider.finish if refusal else "")
    reply = replace(reply, cached=min(config.cached, prompt))
    if not streams:
        return _json(200, completion(reply))
    options = body.get("stream_options")
    return Response(200, SSE_HEADERS, chunks(reply, isinstance(options, dict) and options.get("include_usage") is True))


def _refusal_stream(refusal: bytes) -> list[bytes]:
    """A refusal as an event inside a stream, as SGLang sends it."""
    error = msgspec.json.decode(refusal or b"{}")
    return [event(error if "error" in error else {"error": error}), b"data: [DONE]\n\n"]


def _models(name: str, config: SimulatorConfig) -> bytes:
    """The list of models, or one of them."""
    listed = config.windows if not name else {name: config.windows.get(name, config.window)}
    if name and config.windows and name not in config.windows:
        raise ApiError(404, f"The model '{name}' does not exist", code="model_not_found", param="model")
    entries = [
        {"id": model, "object": "model", "created": CREATED, "owned_by": config.owner}
        | ({config.window_field: window} if config.window_field else {})
        for model, window in listed.items()
    ]
    return msgspec.json.encode(entries[0] if name else {"object": "list", "data": entries})


def _json(status: int, body: bytes, extra: Headers = ()) -> Response:
    length = (b"content-length", str(len(body)).encode())
    middle = len(body) // 2  # two chunks, so that `abort_after=1` aborts in the middle
    return Response(status, (*JSON_HEADERS, length, *extra), (body[:middle], body[middle:]))
