"""What became of a request: usage, refusals, and the outcome for metrics and log."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from proxy.model.plan import Note

# The endpoints of requests that are passed through; every other endpoint is the name of an API.
PASSTHROUGH, WEBSOCKET = "passthrough", "websocket"
UNFITTED = frozenset({PASSTHROUGH, WEBSOCKET})


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage of an error: its words, and those next to it. `figure` says that it is a number that was read."""

    words: tuple[str, ...]
    before: str = ""
    after: str = ""
    figure: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An upstream's answer that the request was too long, with whatever figures it named.

    `bounds` says what `limit` limits: the `window`, only the `input`, or what says nothing of a window: the `body` in
    bytes, or this `request` alone, in tokens; `roles` that no length was refused, but roles that do not alternate.
    `at_least` marks a prompt count that the upstream cut short and so only bounds from below. `rule` is the row of
    rules/refusals.toml that knew it. `quotes` are the words and figures that it was known by: what a client sent itself
    proves nothing.
    """

    rule: str
    limit: int | None = None
    bounds: str = "window"
    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    excess: int | None = None
    at_least: bool = False
    quotes: tuple[Quote, ...] = field(default=(), compare=False, repr=False)


class Usage(msgspec.Struct, frozen=True):
    """What the upstream said it counted."""

    prompt: int
    completion: int = 0
    cached: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """All that is to be told of one request once it is over; holds no content and no key. Times in seconds.

    `notes` is what was done to what was sent, `planned` what would have been done where the mode only observes. `path`
    is without its query and without what may be an id; `attempts` counts requests to the upstream, `request_id` is the
    upstream's or else the client's own. Extra calls are those of our own for this request, as far as they were over.
    """

    endpoint: str
    result: str
    status: int
    mode: str = ""
    ladder: str = ""
    model: str = ""
    model_sent: str = ""
    window: int = 0
    window_source: str = ""
    quality: str = ""
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    reply_asked: int | None = None
    reply_sent: int | None = None
    load_before: float | None = None
    load_after: float | None = None
    messages_in: int = 0
    messages_sent: int = 0
    notes: tuple[Note, ...] = ()
    refusals: tuple[str, ...] = ()
    healed: bool = False
    usage: Usage | None = None
    uncounted: bool = False  # its bytes proved that it fits, and there was no time to count it
    stream: bool = False
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    truncated: bool = False  # by the upstream, which says nothing but that it read far fewer tokens
    bytes_in: int = 0  # that a WebSocket's client sent through its tunnel
    bytes_out: int = 0  # that it was sent
    path: str = ""
    attempts: int = 0
    request_id: str = ""
    planned: tuple[Note, ...] = ()
    extra_calls: int = 0
    extra_tokens: int = 0
    extra_seconds: float = 0.0
