"""An OpenAI-compatible upstream that is as strict as the real ones, for the demo and for users' own tests.

It has no model: it counts, refuses what a provider would refuse, in that provider's words, and replies by a script.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.errors import ClientError
from proxy.simulator.counting import count_prompt
from proxy.simulator.embedding import embeddings
from proxy.simulator.laws import complaint, laws_for
from proxy.simulator.replies import CREATED, answer, chunks, event, reply_to
from proxy.simulator.sending import (
    Answer,
    BrokenOff,
    ClientDisconnected,
    Headers,
    Receive,
    Scope,
    Send,
    body_of,
    lifespan,
    respond,
)
from proxy.simulator.settings import Received, SimulatorConfig, overridden
from proxy.simulator.words import SPEECHES

__all__ = ["BrokenOff", "Received", "Simulator", "SimulatorConfig", "simulator"]

LONG = 65_536  # bytes of a body that is counted in a thread: a shorter one is counted before the thread would start
JSON: Headers = ((b"content-type", b"application/json"),)
EVENTS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))

FAILURES: Mapping[int, tuple[str, str, str]] = {
    429: ("Rate limit reached for requests per min (RPM): Limit 1, Used 1.", "requests", "rate_limit_exceeded"),
    503: ("The engine is currently overloaded, please try again later.", "server_error", ""),
}
FAILURE = ("The server had an error while processing your request. Sorry about that!", "server_error", "")


METHODS = {"/v1/chat/completions": "POST", "/v1/embeddings": "POST", "/v1/models": "GET"}


def simulator(config: SimulatorConfig | None = None) -> Simulator:
    """The simulator as an ASGI application."""
    return Simulator(config or SimulatorConfig())


class Simulator:
    """The application. `received` holds what came in, newest last; `gone` counts clients that hung up on it,
    `open` the requests that it is at."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.received: deque[Received] = deque(maxlen=config.remembered)
        self.gone = 0
        self.open = 0
        self.failed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.open += 1
        try:
            body = await body_of(receive)
            headers = tuple((bytes(k).lower(), bytes(v)) for k, v in scope["headers"])
            request = Received(scope["method"], scope["path"], scope.get("query_string", b""), headers, body)
            self.received.append(request)
            await self._answer(request, receive, send)
        except ClientDisconnected:
            self.gone += 1
        finally:
            self.open -= 1

    async def _answer(self, request: Received, receive: Receive, send: Send) -> None:
        config = self.config
        try:
            config = overridden(config, request)
            self._admit(request, config)
            answer = await _routed(request, config)
        except ClientError as error:
            extra = ((b"retry-after-ms", b"10"),) if error.status == 429 else ()
            answer = _json(error.status, error.body(), extra)
        await respond(answer, config, receive, send)

    def _admit(self, request: Received, config: SimulatorConfig) -> None:
        """Raises what a provider answers before it looks at a body."""
        if config.status:
            raise failure(config.status)
        if config.api_key and request.header(b"authorization") != f"Bearer {config.api_key}".encode():
            raise ClientError(401, "Incorrect API key provided.", code="invalid_api_key")
        if self.failed < config.fail_first:
            self.failed += 1
            raise failure(config.fail_status)


async def _routed(request: Received, config: SimulatorConfig) -> Answer:
    name = request.path.removeprefix("/v1/models/") if request.path.startswith("/v1/models/") else ""
    known = METHODS.get("/v1/models" if name else request.path)
    if known is None:
        raise ClientError(404, f"Invalid URL ({request.method} {request.path})")
    if request.method != known:
        raise ClientError(405, f"Not allowed to {request.method} on {request.path}.")
    if known == "GET":
        return _json(200, _models(name, config))
    raw = request.plain()
    body = _object(raw)
    if request.path == "/v1/embeddings":
        return _json(200, embeddings(body, config.meanings))
    return await _chat(raw, body, config)


def failure(status: int) -> ClientError:
    """A failure that says nothing of length."""
    message, kind, code = FAILURES.get(status, FAILURE)
    return ClientError(status, message, kind, code)


def _object(raw: bytes) -> dict[str, Any]:
    """A body's JSON. Raises `ClientError` where it is none, or no object."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ClientError(400, "We could not parse the JSON body of your request.")
    return body


async def _chat(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> Answer:
    broken = complaint(body, laws_for(config.speaks, config.system, config.max_output))
    if broken is not None:
        raise broken
    count = config.count or count_prompt
    prompt = await asyncio.to_thread(count, raw) if len(raw) > LONG else count(raw)
    return _counted(body, prompt, config)


def _counted(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> Answer:
    """The answer to a lawful request whose prompt has so many tokens."""
    speech = SPEECHES[config.speaks]
    window = config.windows.get(body["model"], config.window)
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    refusal = speech.refusal(window, prompt, asked)
    streams = bool(body.get("stream"))
    if refusal is not None and not speech.finish:
        status, text = refusal
        return Answer(200, EVENTS, _broken_stream(text)) if streams and config.in_stream else _json(status, text)
    reply = reply_to(body, prompt, config.text, speech.finish if refusal else "")
    if not streams:
        return _json(200, answer(reply))
    options = body.get("stream_options")
    return Answer(200, EVENTS, chunks(reply, isinstance(options, dict) and options.get("include_usage") is True))


def _broken_stream(refusal: bytes) -> list[bytes]:
    """A refusal as an event inside a stream, as SGLang sends it."""
    told = msgspec.json.decode(refusal or b"{}")
    return [event(told if "error" in told else {"error": told}), b"data: [DONE]\n\n"]


def _models(name: str, config: SimulatorConfig) -> bytes:
    """The list of models, or one of them."""
    shown = config.windows if not name else {name: config.windows.get(name, config.window)}
    if name and config.windows and name not in config.windows:
        raise ClientError(404, f"The model '{name}' does not exist", code="model_not_found", param="model")
    entries = [
        {"id": model, "object": "model", "created": CREATED, "owned_by": "simulator"}
        | ({config.listed: window} if config.listed else {})
        for model, window in shown.items()
    ]
    return msgspec.json.encode(entries[0] if name else {"object": "list", "data": entries})


def _json(status: int, body: bytes, extra: Headers = ()) -> Answer:
    length = (b"content-length", str(len(body)).encode())
    middle = len(body) // 2  # in two parts, so that there is a middle to break off in
    return Answer(status, (*JSON, length, *extra), (body[:middle], body[middle:]))
