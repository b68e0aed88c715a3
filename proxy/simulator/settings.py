"""How the simulator behaves, for all requests or for one; and what it keeps of a request."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from proxy.errors import ClientError
from proxy.model.lenient_json import Json
from proxy.simulator.words import SPEECHES


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """How the simulator behaves. Windows are in tokens, delays in seconds.

    `speaks` names the provider whose words it uses (`proxy.simulator.words.SPEECHES`); `in_stream` makes it refuse
    streams by an event inside a 200. `window` holds for models that `windows` does not name; `max_output` is the
    longest reply that may be asked for. `system` must be found in a system message. The first `fail_first` requests
    get `fail_status`, and all get `status` where it is set. `break_after` breaks an answer off after so many chunks,
    without an end. `text` is what is replied. `listed` is the field under which GET /v1/models tells a window; ""
    leaves it out. The last `remembered` requests are kept. `count` replaces the simulator's own count of a body.
    `meanings` are words (in lower case) that embeddings take for others: {"vessel": "boat"}.
    """

    speaks: str = "openai-old"
    window: int = 8192
    windows: Mapping[str, int] = field(default_factory=dict)
    max_output: int | None = None
    in_stream: bool = False
    system: str = ""
    api_key: str = ""
    text: str = ""
    head_delay: float = 0.0
    chunk_delay: float = 0.0
    break_after: int | None = None
    fail_first: int = 0
    fail_status: int = 429
    status: int = 0
    listed: str = "max_model_len"
    remembered: int = 1_000
    count: Callable[[bytes], int] | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `ValueError` for a provider whose words are not known."""
        if self.speaks not in SPEECHES:
            raise ValueError(f"nobody speaks like {self.speaks}; known are {', '.join(SPEECHES)}")


# What one request may ask for itself, by header.
OVERRIDES: Mapping[bytes, tuple[str, Callable[[str], Any]]] = {
    b"x-sim-speaks": ("speaks", str),
    b"x-sim-window": ("window", int),
    b"x-sim-in-stream": ("in_stream", lambda text: text == "1"),
    b"x-sim-text": ("text", str),
    b"x-sim-delay": ("head_delay", float),
    b"x-sim-chunk-delay": ("chunk_delay", float),
    b"x-sim-break": ("break_after", int),
    b"x-sim-status": ("status", int),
}


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in. `body` is as it was on the wire."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """A header's value; `name` in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Json:
        """The body parsed. Raises `msgspec.DecodeError`."""
        return msgspec.json.decode(self.plain())

    def plain(self) -> bytes:
        """The body without gzip; as it is where that fails."""
        if (self.header(b"content-encoding") or b"").lower() != b"gzip":
            return self.body
        try:
            return gzip.decompress(self.body)
        except (OSError, EOFError, zlib.error):
            return self.body


def overridden(config: SimulatorConfig, request: Received) -> SimulatorConfig:
    """The configuration with what this request's x-sim-* headers say. Raises `ClientError`."""
    try:
        values: dict[str, Any] = {
            name: read(told.decode("latin-1"))
            for header, (name, read) in OVERRIDES.items()
            if (told := request.header(header)) is not None
        }
        if "window" in values:
            values["windows"] = {}
        return replace(config, **values)
    except ValueError as reason:
        raise ClientError(400, f"Invalid x-sim header: {reason}") from None
