"""An upstream that is a library: litellm translates chat requests for its providers. Only this module uses it.

Theory of operation
===================

`import litellm` takes 2 to 5 seconds and 150 MiB, so it happens in a thread, before the rows that need it are used.
Requests go through its public `acompletion`; errors and streams come back in OpenAI's shape. It has its own
connections: the forward proxies and authorities of the environment apply to them.

What a client sends reaches litellm as the arguments that `translation.arguments` lists and in no other way: not as a
URL, a key, a callback or a header. Nothing that it logs, prints or reports is kept, and it reads no file and no network
address of its own: its model table is the one that is installed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import importlib.util
import logging
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from proxy.apis import servers
from proxy.apis.openai_chat import translation
from proxy.config.upstreams import UpstreamRow
from proxy.errors import CONTEXT_LENGTH_EXCEEDED, ConfigError
from proxy.http.callbacks import Event, ignore
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.pool import Timeouts
from proxy.http.client.response import Fault, Sink, TransportError
from proxy.upstreams.upstream import FORBIDDEN, UNAUTHORIZED, Body, httpx_timeout, refused_key
from proxy.wire.headers import Header, value_of

PACKAGE = "litellm"
# Read when it is imported: no .env file of the working directory, no model table from the network.
ENVIRONMENT = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
# It would log requests and answers, and print hints for errors.
SWITCHES = {
    "telemetry": False,
    "suppress_debug_info": True,
    "set_verbose": False,
    "turn_off_message_logging": True,
    "redact_messages_in_exceptions": True,
    "disable_streaming_logging": True,
    "user_url_validation": True,
}
# "litellm" is above those of its modules, which warn of keywords that a provider does not take.
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", PACKAGE)
SILENT = logging.CRITICAL + 1
WINDOW_EXCEEDED, TIMEOUT, UNCONNECTED = "ContextWindowExceededError", "Timeout", "APIConnectionError"
# Of the HTTP clients that litellm uses: there was no connection.
NO_CONNECTION = frozenset(("ClientConnectorError", "ClientConnectorDNSError", "ConnectError", "ConnectTimeout"))
JSON: Header = (b"content-type", b"application/json")
EVENTS: Header = (b"content-type", b"text/event-stream; charset=utf-8")
# litellm looks in the tools of each request for servers of its own gateway, with the package mcp, which is not
# installed: without this keyword every request with tools fails (502). It has no public switch for that. A version
# that does not know the keyword would do so again, or send the keyword to the provider: tests with tools show both.
# `translation` lets no tool but functions pass, so that no tool can name such a server in any case.
SKIP_MCP = "_skip_mcp_handler"
WAITING = 16  # pieces of a stream that wait for a slow client
INLINE_BYTES = 65_536  # a longer body is parsed in a thread
LONGEST = 2_000  # characters of an error
Complete = Callable[..., Awaitable[Any]]


def load(event: Event = ignore) -> Complete:
    """litellm's `acompletion`. Takes seconds at the first call; to be called in a thread."""
    began, first = time.monotonic(), PACKAGE not in sys.modules
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")  # its warnings quote answers
    module = importlib.import_module(PACKAGE)
    for name, switch in SWITCHES.items():
        setattr(module, name, switch)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate, logger.disabled = [logging.NullHandler()], False, True
        logger.setLevel(SILENT)
    if first:
        gc.freeze()  # the garbage collector does not scan what is loaded for good
        event("litellm is loaded", seconds=round(time.monotonic() - began, 1))
    complete: Complete = module.acompletion
    return complete


def is_installed() -> bool:
    """Whether litellm can be imported."""
    found = importlib.util.find_spec(PACKAGE)
    return found is not None and found.origin is not None


class LiteLLM:
    """A `Sender` of chat requests to one of litellm's providers. Raises `ConfigError` if litellm is not installed.

    `complete` replaces litellm's `acompletion`.
    """

    def __init__(
        self, row: UpstreamRow, key: str, timeouts: Timeouts, event: Event = ignore, complete: Complete | None = None
    ) -> None:
        if complete is None and not is_installed():
            text = 'api = "litellm" needs the package litellm: install plimsoll[litellm] or the image --target full'
            raise ConfigError(text)
        self._row, self._key, self._timeouts, self._event = row, key, timeouts, event
        self._complete = complete
        self._loading: asyncio.Task[Complete] | None = None

    @property
    def has_key(self) -> bool:
        """True: without a key of the row, litellm takes one from the operator's environment."""
        return True

    def load(self) -> None:
        """Imports litellm, unless that is done. Takes seconds: to be called in a thread."""
        if self._complete is None:
            self._complete = load(self._event)

    async def ready(self) -> Complete:
        """Waits until litellm is imported."""
        if self._complete is None:
            if self._loading is None:
                self._loading = asyncio.create_task(asyncio.to_thread(load, self._event))
            self._complete = await asyncio.shield(self._loading)
        return self._complete

    async def send(self, method: str, target: bytes, headers: Sequence[Header], body: Body = None) -> Answer:
        """Sends a chat request, and waits for its answer or for the first piece of its stream. Raises UpstreamError if
        the provider cannot be reached, is late, or refuses the operator's key."""
        path = target.partition(b"?")[0].decode("latin-1")
        if method != "POST" or path not in servers()[self._row.api].paths or not isinstance(body, bytes):
            return _refusal(404, "This upstream has chat completions only.")
        if value_of(headers, b"content-encoding") not in (None, b"identity"):
            return _refusal(415, "This upstream takes no compressed body.")
        try:
            if len(body) > INLINE_BYTES:
                wanted = await asyncio.to_thread(translation.arguments, body)
            else:
                wanted = translation.arguments(body)
        except translation.NotTranslatable as error:
            return _refusal(400, f"This request cannot be translated for its upstream: {error}.")
        complete = await self.ready()
        try:
            async with asyncio.timeout(self._timeouts.read):
                return await self._answer(complete, wanted)
        except TimeoutError:
            raise UpstreamError(504, "upstream_timeout", "The upstream did not answer in time.") from None
        except Exception as error:
            return self._failure(error)

    async def _answer(self, complete: Complete, wanted: translation.Fields) -> Answer:
        found = await complete(**{**wanted, **self._arguments(wanted["model"])})
        if not wanted.get("stream"):
            return Answer(Whole(200, [JSON], translation.answer(_fields(found))))
        first = await anext(found, None)
        return Answer(Stream(found, first, self._timeouts.read))

    def _arguments(self, model: str) -> translation.Fields:
        """What the operator decides: provider, key, URL, time; no retries, which are the gateway's."""
        row, prefix = self._row, f"{self._row.provider}/"
        timeout = httpx_timeout(replace(self._timeouts, read=2 * self._timeouts.read))  # ours is the one that ends it
        return {
            "model": prefix + model.removeprefix(prefix),
            **({"api_key": self._key} if self._key else {}),
            **({"api_base": row.url} if row.url else {}),
            **{"timeout": timeout, "max_retries": 0, "num_retries": 0, "drop_params": True, "no-log": True},
            SKIP_MCP: True,
        }

    def _failure(self, error: Exception) -> Answer:
        """An error of a provider as an answer in OpenAI's shape. Raises UpstreamError as `send`."""
        kind, status = type(error).__name__, getattr(error, "status_code", None)
        if not _connected(error):
            fault = TransportError(Fault.CONNECT, "No connection to the upstream.")
            raise UpstreamError.of(fault) from fault
        if kind == TIMEOUT:
            raise UpstreamError(504, "upstream_timeout", "The upstream did not answer in time.") from None
        if status in (UNAUTHORIZED, FORBIDDEN):
            raise refused_key(status) from None
        if kind == UNCONNECTED or not isinstance(status, int) or not 400 <= status < 600:  # perhaps a fault of its own
            self._event("litellm failed", upstream=self._row.name, kind=kind)
            raise UpstreamError(502, "upstream_error", "The upstream failed.") from None
        message = translation.provider_message(str(getattr(error, "message", "")))[:LONGEST]
        message = message.replace(self._key, "***") if self._key else message
        answer = _refusal(status, message, CONTEXT_LENGTH_EXCEEDED if kind == WINDOW_EXCEEDED else None)
        if after := (getattr(error, "litellm_response_headers", None) or {}).get("retry-after"):
            answer.headers.append((b"retry-after", after.encode("latin-1", "replace")))
        return answer

    async def upgrade(self, target: bytes, headers: Sequence[Header]) -> Answer:
        """Refuses: it has no WebSockets."""
        return _refusal(404, "This upstream has chat completions only.")

    async def close(self) -> None:
        """Waits for an import under way. litellm's connections end with the process."""
        if self._loading is not None:
            await asyncio.wait({self._loading})


def _connected(error: BaseException | None) -> bool:
    """Whether a request got to the provider, by the errors that led to this one."""
    for _ in range(8):
        if error is None:
            return True
        if type(error).__name__ in NO_CONNECTION:
            return False
        error = error.__cause__ or error.__context__
    return True


def _fields(found: Any) -> translation.Fields:
    fields: translation.Fields = found.model_dump(exclude_none=True, warnings=False)
    return fields


def _refusal(status: int, message: str, code: str | None = None) -> Answer:
    return Answer(Whole(status, [JSON], translation.error(status, message, code)))


class Whole:
    """A `Reply` of one piece."""

    def __init__(self, status: int, headers: list[Header], body: bytes) -> None:
        self.status, self.headers = status, [*headers, (b"content-length", b"%d" % len(body))]
        self._body = body

    async def read(self) -> bytes:
        """The body, then b""."""
        body, self._body = self._body, b""
        return body

    async def pipe_to(self, sink: Sink) -> None:
        """Does nothing: `read` has it all."""

    def buffered_body(self) -> bytes | None:
        """The body."""
        body, self._body = self._body, b""
        return body

    async def aclose(self) -> None:
        """Drops the body."""
        self._body = b""


class Stream:
    """A `Reply` whose pieces come from an iterator of litellm.

    A task of its own reads the iterator, because a read may be cancelled, and a cancelled iterator ends.
    """

    status = 200

    def __init__(self, pieces: Any, first: Any, seconds: float) -> None:
        self.headers: list[Header] = [EVENTS]
        self._queue: asyncio.Queue[bytes | TransportError] = asyncio.Queue(WAITING)
        self._over = False
        self._task = asyncio.create_task(self._pump(pieces, first, seconds))

    async def _pump(self, pieces: Any, piece: Any, seconds: float) -> None:
        try:
            while piece is not None:
                await self._queue.put(translation.event(_fields(piece)))
                async with asyncio.timeout(seconds):
                    piece = await anext(pieces, None)
            await self._queue.put(translation.DONE)
            await self._queue.put(b"")
        except TimeoutError:
            await self._queue.put(TransportError(Fault.READ_TIMEOUT, "The upstream's stream stalled."))
        except Exception:
            await self._queue.put(TransportError(Fault.INCOMPLETE, "The upstream's stream broke off."))
        finally:
            with contextlib.suppress(Exception):
                await pieces.aclose()

    async def read(self) -> bytes:
        """The events that came since the last call; b"" at the end. Raises TransportError."""
        if self._over:
            return b""
        found = await self._queue.get()
        if isinstance(found, TransportError):
            self._over = True
            raise found
        self._over = not found
        return found

    async def pipe_to(self, sink: Sink) -> None:
        """Passes no event: `read` does."""

    def buffered_body(self) -> bytes | None:
        """None: a stream is never here at once."""
        return None

    async def aclose(self) -> None:
        """Ends the request to the provider."""
        self._task.cancel()
        await asyncio.wait({self._task})
