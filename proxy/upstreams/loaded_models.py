"""The models that a server has loaded, each with the window that it was loaded with, if its kind of server tells.

The server tells it in a millisecond, so it is asked often; no client waits long for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from proxy.apis import servers
from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.model.server import LoadedList
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import Sender

WAIT_S = 0.5  # how long a request waits for the answer
MAX_AGE_S = 5.0  # another client may have the model loaded again with another window
RETRY_S = 60.0  # pause where the server has no such path
NO_PATH = frozenset({404, 405, 501})
MAX_BYTES = 1 << 20
MAX_MODELS = 1_000
NOT_FORWARDED = (b"content-", b"accept-enc", b"transfer-", b"if-")  # what describes the client's own request


# The one kind of server that tells. Others are not asked: the request's API decides that.
(_FORM,) = (server.loaded for server in servers().values() if server.loaded is not None)


@dataclass(slots=True)
class LoadedModels:
    """What one upstream has loaded, as it said last."""

    upstream: Sender
    _form: LoadedList = field(default_factory=lambda: _FORM)
    _windows: dict[str, int] = field(default_factory=dict)
    _requested: Bounded[str, bool] = field(default_factory=lambda: Bounded(MAX_MODELS))
    _due_at: float = 0.0

    def window(self, model: str) -> int | None:
        """The window that a model is loaded with, in tokens; None if it is not known to be loaded, or may be loaded as
        a request wanted it: for one that asks for no window the server loads its own again. No I/O."""
        windows = self._windows
        if not windows:  # as of nearly all upstreams
            return None
        name = self._form.full_name(model)
        return None if self._requested.get(name) else windows.get(name)

    def request(self, model: str) -> bool:
        """Notes that a request makes the server load a model with a window of its own. Returns whether that changes
        what is known of the model."""
        known = self.window(model) is not None
        self._requested.put(self._form.full_name(model), True)
        return known

    async def load(self, headers: Headers) -> bool:
        """Asks with the client's credentials, unless the last answer is fresh. Waits at most `WAIT_S`. Returns whether
        a window has changed. Never raises."""
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + MAX_AGE_S  # before the call: one request asks, others use what is known
        try:
            async with asyncio.timeout(WAIT_S):
                status, body = await self._get(headers)
            found = self._form.windows_in(body) if status == 200 else self._windows
        except (UpstreamError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if status in NO_PATH:
            self._due_at = now + RETRY_S
        elif status != 200:  # it may be about this client's key alone: the next one asks
            self._due_at = now
        changed = found != self._windows
        self._windows = found
        return changed

    async def _get(self, headers: Headers) -> tuple[int, bytes]:
        """Status and body of the answer; the body is empty unless the status is 200."""
        forwarded = [header for header in headers if not header[0].startswith(NOT_FORWARDED)]
        answer = await self.upstream.send("GET", self._form.path, forwarded, None)
        try:
            return answer.status, await answer.read(MAX_BYTES) if answer.status == 200 else b""
        finally:
            await answer.close()
