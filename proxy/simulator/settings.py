"""The simulator's configuration, its overrides by request headers, and the requests that it records."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from proxy.simulator.check import ApiError
from proxy.simulator.embedding_refusals import EMBEDDERS
from proxy.simulator.json import Json
from proxy.simulator.refusals import PROVIDERS


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """How the simulator behaves. Windows and limits are in tokens, delays in seconds.

    `provider`: whose refusals it sends (a key of `PROVIDERS` in `proxy.simulator.refusals`, or of `EMBEDDERS`).
    `window`: of models that `windows` does not name.
    `batch`: of a server of embeddings that takes an input in one pass, the tokens of a pass.
    `max_output`: the largest reply limit that it accepts.
    `in_stream`: it refuses streams by an event inside a 200.
    `refusal_status`: the status of its refusals, as a gateway between may change it; 0 for the provider's own.
    `refusal_event`: the event by which it refuses a stream of the Responses API.
    `forgets`: it ignores the stored response that a request goes on from, and says nothing of it.
    `truncates`: it cuts what is too long without a word, as Ollama does behind the APIs of others.
    `system`: a text that a system message must contain.
    `api_key`: the key that clients must send; "" for none.
    `text`: the reply; "" for a default.
    `cached`: the prompt tokens, at most, that it reports as read from its prompt cache.
    `head_delay`, `chunk_delay`: before the response, and between its chunks.
    `fail_after`: a stream of the Messages API, or of Ollama, ends with an error after so many events.
    `abort_after`: it closes the connection after this many chunks.
    `fail_first`, `fail_status`: the first requests get this status.
    `status`: all requests get this status, where it is not 0.
    `window_field`: the field of GET /v1/models that has the window; "" for none.
    `owner`: whom GET /v1/models names as the owner of models.
    `max_recorded`: how many of the last requests it keeps.
    `count`: replaces its own count of a body's prompt tokens.
    `synonyms`: words (in lower case) that embeddings treat as other words: {"vessel": "boat"}.
    `deployments`: the model that each of Azure's deployments runs, by its name.
    """

    provider: str = "openai-old"
    window: int = 8192
    windows: Mapping[str, int] = field(default_factory=dict)
    batch: int = 512
    max_output: int | None = None
    in_stream: bool = False
    refusal_status: int = 0
    refusal_event: str = "response.failed"
    forgets: bool = False
    truncates: bool = False
    system: str = ""
    api_key: str = ""
    text: str = ""
    cached: int = 0
    head_delay: float = 0.0
    chunk_delay: float = 0.0
    fail_after: int | None = None
    abort_after: int | None = None
    fail_first: int = 0
    fail_status: int = 429
    status: int = 0
    window_field: str = "max_model_len"
    owner: str = "simulator"
    max_recorded: int = 1_000
    count: Callable[[bytes], int] | None = None
    synonyms: Mapping[str, str] = field(default_factory=dict)
    deployments: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `ValueError` for an unknown provider."""
        known = dict.fromkeys((*PROVIDERS, *EMBEDDERS))
        if self.provider not in known:
            raise ValueError(f"unknown provider {self.provider}; known are {', '.join(known)}")

    def window_of(self, model: str) -> int:
        """The window of a model."""
        return self.windows.get(model, self.window)


# Request headers that override the configuration for one request.
OVERRIDES: Mapping[bytes, tuple[str, Callable[[str], Any]]] = {
    b"x-sim-provider": ("provider", str),
    b"x-sim-window": ("window", int),
    b"x-sim-in-stream": ("in_stream", lambda text: text == "1"),
    b"x-sim-refusal-status": ("refusal_status", int),
    b"x-sim-refusal-event": ("refusal_event", str),
    b"x-sim-truncates": ("truncates", lambda text: text == "1"),
    b"x-sim-text": ("text", str),
    b"x-sim-cached": ("cached", int),
    b"x-sim-delay": ("head_delay", float),
    b"x-sim-chunk-delay": ("chunk_delay", float),
    b"x-sim-fail": ("fail_after", int),
    b"x-sim-abort": ("abort_after", int),
    b"x-sim-status": ("status", int),
}


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it was received. `body` is still compressed if the client compressed it."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """A header's value; `name` in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Json:
        """The parsed body. Raises `msgspec.DecodeError`."""
        return msgspec.json.decode(self.decompressed())

    def decompressed(self) -> bytes:
        """The decompressed body; the body itself where it is not gzip."""
        if (self.header(b"content-encoding") or b"").lower() != b"gzip":
            return self.body
        try:
            return gzip.decompress(self.body)
        except (OSError, EOFError, zlib.error):
            return self.body


def with_overrides(config: SimulatorConfig, request: RecordedRequest) -> SimulatorConfig:
    """The configuration with this request's x-sim-* headers applied. Raises `ApiError` (400)."""
    try:
        values: dict[str, Any] = {
            name: parse(value.decode("latin-1"))
            for header, (name, parse) in OVERRIDES.items()
            if (value := request.header(header)) is not None
        }
        if "window" in values:
            values["windows"] = {}
        return replace(config, **values)
    except ValueError as reason:
        raise ApiError(400, f"Invalid x-sim header: {reason}") from None
