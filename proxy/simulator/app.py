"""The simulator as an ASGI application: an upstream of many APIs, as strict as the real ones.

It runs no model: it counts tokens, refuses what a provider would refuse in that provider's wording, and replies by a
fixed script. What an API says is in the API's package.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from proxy.simulator import apis, azure
from proxy.simulator.api import Api, Held, unchanged
from proxy.simulator.asgi import (
    ClientDisconnected,
    Receive,
    Response,
    ResponseAborted,
    Scope,
    Send,
    lifespan,
    read_body,
    respond,
    whole,
)
from proxy.simulator.check import ApiError
from proxy.simulator.settings import RecordedRequest, SimulatorConfig, with_overrides

__all__ = ["RecordedRequest", "ResponseAborted", "Simulator", "SimulatorConfig", "simulator"]

# Message, type and code of injected failures, in OpenAI's wording.
FAILURES: Mapping[int, tuple[str, str, str]] = {
    429: ("Rate limit reached for requests per min (RPM): Limit 1, Used 1.", "requests", "rate_limit_exceeded"),
    503: ("The engine is currently overloaded, please try again later.", "server_error", ""),
}
OTHER_FAILURE = ("The server had an error while processing your request. Sorry about that!", "server_error", "")


def simulator(config: SimulatorConfig | None = None) -> Simulator:
    """The simulator as an ASGI application."""
    return Simulator(config or SimulatorConfig())


class Simulator:
    """The application, and what tests read from it: the last requests received (newest last), how many clients
    disconnected early, how many requests are in flight, how many failures were injected, and what its APIs hold."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.received: deque[RecordedRequest] = deque(maxlen=config.max_recorded)
        self.disconnects = 0
        self.in_flight = 0
        self.failures = 0
        self.held: Held = defaultdict(dict)

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
        api = api_of(request.path)
        try:
            config = with_overrides(config, request)
            self._admit(request, config, api)
            if azure.serves(request.path):
                request = azure.as_openai(request, config, {one.deployed for one in apis() if one.deployed})
                api = api_of(request.path)
            if api is None:
                raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
            response = await api.answer(request, config, self.held)
        except ApiError as found:
            response = refused(found, api)
        await respond(response, config, receive, send)

    def _admit(self, request: RecordedRequest, config: SimulatorConfig, api: Api | None) -> None:
        """Raises the errors that do not depend on the body: injected failures and a wrong key."""
        if config.status:
            raise failure(config.status)
        if azure.serves(request.path):
            azure.authorize(request, config)
        elif api is None or not api.checks_keys:
            authorize(request, config)
        if self.failures < config.fail_first:
            self.failures += 1
            raise failure(config.fail_status)


def api_of(path: str) -> Api | None:
    """The API that serves a path."""
    return next((api for api in apis() if api.serves(path)), None)


def authorize(request: RecordedRequest, config: SimulatorConfig) -> None:
    """Raises `ApiError` (401) for a wrong key."""
    if config.api_key and request.header(b"authorization") != f"Bearer {config.api_key}".encode():
        raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")


def failure(status: int) -> ApiError:
    """An injected failure, which does not mention the length of the request."""
    message, kind, code = FAILURES.get(status, OTHER_FAILURE)
    return ApiError(status, message, kind, code)


def refused(found: ApiError, api: Api | None) -> Response:
    """The response to a request that failed, as its API shows errors."""
    error = (unchanged if api is None else api.failure)(found)
    return whole(error.status, error.body(), more=((b"retry-after-ms", b"10"),) if error.status == 429 else ())
