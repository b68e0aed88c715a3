"""What the proxy knows of one API: how its JSON is scanned, read, changed and written.

It is a module of its own, beside `ports`, because it uses `Plan`, which itself uses `ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from proxy.model.conversation import Message, Prompt
from proxy.model.lenient_json import RawFields
from proxy.model.outcome import Usage
from proxy.model.plan import Plan
from proxy.model.ports import Meter
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan
from proxy.model.server import Header, Server


class EventKind(Enum):
    """What an event of a stream, or a complete response, is."""

    CONTENT = "content"  # something of a reply
    FRAME = "frame"  # a part of a response without content: the role, ids, usage
    FINISH = "finish"  # a part of a response that ends it for an unusual reason, perhaps because it was too long
    OTHER = "other"  # an error, or nothing that the API defines


class ResponseState(msgspec.Struct, frozen=True):
    """What was read of a response so far: the last `usage` and `finish` reason, the first `error` as its JSON.

    `content` means that something of a reply came: text, reasoning, a tool call, a refusal to answer. `ended` means
    that the API's last event came.
    """

    usage: Usage | None = None
    finish: str | None = None
    error: bytes | None = None
    content: bool = False
    ended: bool = False


class ErrorFields(Protocol):
    """What an API shows of an error of the proxy's own (`proxy.errors.ClientError`)."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def message(self) -> str:
        """The text for people. It holds no content of the request."""

    @property
    def code(self) -> str:
        """The code for programs; empty if there is none."""

    @property
    def param(self) -> str | None:
        """The field or header that is wrong; None if it is not one of them."""

    @property
    def figures(self) -> tuple[int, int, int] | None:
        """Of a request that is too long: the prompt that was asked, the reply and the window, in tokens."""


class RequestFormat(Protocol):
    """The requests of one API, as a set of pure functions: a module is one. None does I/O, and none keeps state."""

    def recognises(self, fields: RawFields) -> bool:
        """Whether a body with these fields may be one of this API. Of a file without a path, the first API decides."""

    def scan(self, body: bytes, known: KnownPrefix | None = None) -> Scan:
        """The model, the reply limit and the byte bound of a request, in one pass over its JSON (microseconds).

        `known` is a prefix of `body` that was scanned before; the caller has compared its bytes. Raises
        `NotUnderstood`.
        """

    def known_prefix(self, body: bytes, scan: Scan, digest: PrefixDigest) -> KnownPrefix | None:
        """All messages of a scanned body, as a prefix that a later body may begin with.

        None if nothing in it is new, or if their place in the body is not certain.
        """

    def parse(
        self,
        body: bytes,
        pins: Collection[int] = (),
        start: int = 0,
        plain: bool = False,
        known: KnownPrefix | None = None,
    ) -> Prompt:
        """The request as a neutral prompt.

        `pins` are indices of messages that must stay. Of the messages before `start` only the first instructions are
        read. `plain` means that the scan found no parts but text. With `known`, `body` is `Scan.text`, which is
        without the known messages. Raises `NotUnderstood`.
        """

    def render(self, prompt: Prompt, plan: Plan) -> bytes:
        """The JSON of the planned request. Fields that no step changed keep their bytes and their order."""

    def without_extension(self, body: bytes) -> tuple[bytes, frozenset[int]]:
        """The body without the proxy's own key in its messages, and the indices of the messages that it pins.

        Returns `body` itself if no message has the key. Raises `NotUnderstood`.
        """

    def without_stream(self, body: bytes) -> bytes:
        """The same request for an answer in one piece. Raises `NotUnderstood`."""


class ResponseFormat(Protocol):
    """The responses of one API, and the proxy's own errors in its shape, as a set of pure functions: a module is one.
    None does I/O, none keeps state, and none raises."""

    def complete_usage(self, body: bytes) -> Usage | None:
        """The usage of a complete, ordinary response in the API's own shape, in a microsecond; None for any other."""

    def event_kind(self, data: bytes) -> EventKind:
        """What the data of an event, or a complete response, is. `FINISH` and `OTHER` may be refusals."""

    def read(self, data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
        """The state after an event with the name `event` and this data, or after a complete response."""

    def read_tail(self, tail: bytes, state: ResponseState) -> ResponseState:
        """The state after the end of an event or response whose beginning is missing."""

    def with_more_prompt(self, data: bytes, more: int) -> bytes:
        """An event's data, or a complete response, with `more` tokens in the prompt of the usage that it reports, as if
        none of them came from a cache. All its other bytes stay; the same bytes if it reports no usage."""

    def landmarks(self, data: bytes) -> Sequence[int]:
        """Offsets in a stream's bytes: the last of a usage, of a finish reason, of an error, of the end event.

        The events around them are all that `read` needs of the rest of a stream once it has found content.
        """

    def is_end_of_stream(self, tail: bytes) -> bool:
        """Whether a stream's last bytes (32 are enough) are the API's last event."""

    def error_body(self, error: ErrorFields) -> bytes:
        """The body of an error response of the proxy's own."""

    def error_event(self, error: ErrorFields) -> bytes:
        """The event of a stream that reports an error in one that has begun."""


def no_known_prefix(body: bytes, scan: Scan, digest: PrefixDigest) -> None:
    """None: `RequestFormat.known_prefix` of an API whose requests do not grow by messages."""


def no_extension(body: bytes) -> tuple[bytes, frozenset[int]]:
    """The body itself: `RequestFormat.without_extension` of an API whose texts are not objects, and have no keys."""
    return body, frozenset()


def no_middle(body: bytes, most: tuple[int, int]) -> None:
    """None: `Api.without_middle` of an API whose requests are no conversations."""
    return None


def never_joined(bodies: Sequence[bytes], counts: Sequence[int]) -> None:
    """None: `Api.joined` of an API whose requests are never sent in pieces."""


@dataclass(frozen=True, slots=True, eq=False)
class SummaryCall:
    """How a model is asked in an API for a summary.

    `request_body(model, instructions, text, most)`: the body for a summary of about `most` tokens. `text_in`: the text
    in a response, None for what is no response of the API. `headers`: those that a request needs where no client's own
    are at hand.
    """

    request_body: Callable[[str, str, str, int], bytes]
    text_in: Callable[[bytes], str | None]
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ContextEdits:
    """The edits that requests of an API may have its provider make, for servers that do not know them.

    `name`: the field that asks for them. `field`, `mark`: bytes that every request with edits contains, and every part
    of an answer that reports them.
    `apply(body, meter_of)`: the body after its edits, without what asks for them, and the JSON of those that were
    applied; `meter_of` counts a request. It raises `NotUnderstood`. `report(data, applied)`: an event's data, or a
    complete response, with that JSON where the API has it; else the same bytes. It never raises.
    """

    name: str
    field: bytes
    mark: bytes
    apply: Callable[[bytes, Callable[[Prompt], Meter]], tuple[bytes, bytes]]
    report: Callable[[bytes, bytes], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One API: its name and paths, the formats of its requests and responses, and what only some APIs have.

    A package in `proxy/apis/` exports one as `API`; `proxy.apis.apis` finds it there. The fields:

    `name`: the label of its requests in metrics and logs, e.g. `chat`.
    `paths`: the request paths that are fitted, for POST; the first is the usual one. None, if all name the model.
    `server`: the kind of server that speaks it.
    `usage_key`: bytes that every report of usage contains: their absence is a quick test.
    `compact_paths`: those of `paths` on which the provider compacts a conversation: such a request is never refused by
    us.
    `named_paths`: further paths that are fitted and name the model, which stands in the place of `{model}`.
    `calls`: method and path of its further calls that may carry the operator's key.
    `operation`: the operation in OpenTelemetry's names (`gen_ai.operation.name`).
    `summary`: how a model is asked in it for a summary; None: it is not.
    `cache_blocks(message)`: the pieces of a message's JSON that a client can mark as the end of what a provider is to
    cache, in an API where these are not messages. It raises one of `proxy.model.lenient_json.BROKEN`.
    `numeric`: whether its bodies may be long lists of numbers, which are decoded one list at a time.
    `hold_s`: how long a stream's first events may wait for one that proves that the request is not refused, in seconds,
    if its length is near the window.
    `without_truncation`: where servers of the API drop what is too long and say nothing: makes of a body the same
    request for a server that refuses it, or returns the body itself if the client said what is to be done. It raises
    `NotUnderstood`. None: the API's servers refuse.
    `without_middle(body, most)`: of a conversation that is too crowded to be parsed, the same body with its first and
    its newest messages, `most` values and messages, and how many are left out; None if it is not certain that this is
    sound. It raises one of `proxy.model.lenient_json.UNREADABLE`, or `KeyError`.
    `joined(bodies, counts)`: one response of those to the pieces of a request (`Plan.pieces`), which had so many inputs
    each, in parts. None if they are no such responses. Never raises.
    `refusal_stream(error, model, created)`: the whole stream that tells a client which asked for one that its request
    is too long, if clients look for it there; `created` is in seconds since 1970. None instead of a stream, or of the
    function: an error response tells it.
    `edits`: those that its requests may ask for.
    """

    name: str
    paths: tuple[str, ...]
    request: RequestFormat
    response: ResponseFormat
    usage_key: bytes
    server: Server
    compact_paths: tuple[str, ...] = ()
    named_paths: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    operation: str = "chat"
    summary: SummaryCall | None = None
    cache_blocks: Callable[[Message], Sequence[bytes]] | None = None
    numeric: bool = False
    hold_s: float = 1.0  # a refusal comes in the first event, or in the one that follows the role
    without_truncation: Callable[[bytes], bytes] | None = None
    without_middle: Callable[[bytes, tuple[int, int]], tuple[bytes, int] | None] = no_middle
    joined: Callable[[Sequence[bytes], Sequence[int]], list[bytes] | None] = never_joined
    refusal_stream: Callable[[ErrorFields, str, int], bytes | None] | None = None
    edits: ContextEdits | None = None

    @property
    def path(self) -> str:
        """The usual path of its requests, by which they are routed whichever path they have."""
        return (self.paths or self.named_paths)[0]
