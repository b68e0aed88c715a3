"""How upstreams are asked for their own count of a prompt: the rows of rules/counters.toml, the bodies of the calls and
what their answers mean. It sends nothing."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proxy.model.lenient_json import Json, object_of, raw_fields, raw_value
from proxy.wire.headers import Header, value_of

BEARER = b"Bearer "
MODEL = "{model}"  # the place of the model's name in a path
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
PATH = re.compile(r"/[^\s?#{}]*")
HEADER = re.compile(r"[a-z0-9-]{1,80}")  # as the server reads names of headers: in lower case
MAX_CALLS = 2  # of one count: a template is applied, then its text is counted
MAX_TOKENS = 10**9


class NotCountable(Exception):
    """A request with something that has no place in a count. Its text is the reason, without content."""


class CounterCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a count: POST `path`, with `{model}` in the place of the model's name.

    It stands under `/v1` as a client's path does; with `beside`, where the upstream's base path ends with that, it
    stands beside it.

    The body has these `fields` of the client's body, the constant fields of `add`, and the previous call's answer in
    the field `into`. The answer stands in the field `answer`: a number of tokens, a list of tokens, or a text for the
    next call.
    """

    path: str
    answer: str
    fields: tuple[str, ...] = ()
    beside: str = ""
    into: str = ""
    add: dict[str, bool | int | str] = {}

    def __post_init__(self) -> None:
        if not PATH.fullmatch(self.path.replace(MODEL, "")):
            raise ValueError(f"path must begin with /, without a query; {MODEL} stands for the model's name")
        if self.beside and not PATH.fullmatch(self.beside):
            raise ValueError("beside must be the end of a path, such as /v1")
        if not self.answer:
            raise ValueError("answer must not be empty")

    def target(self, model: str) -> bytes | None:
        """The path for a model, named without what stands before its last slash; None if no path may have its name."""
        name = model.rpartition("/")[2]
        if MODEL not in self.path:
            return self.path.encode()
        return self.path.replace(MODEL, name).encode() if PLAIN_NAME.fullmatch(name) else None

    def body(self, head: Mapping[str, bytes], before: str = "") -> bytes:
        """The body of the call for a request with these top-level fields; `before` is the previous call's answer."""
        pairs = [(name, head[name]) for name in self.fields if name in head]
        pairs += [(name, msgspec.json.encode(value)) for name, value in self.add.items()]
        return object_of([*pairs, (self.into, msgspec.json.encode(before))] if self.into else pairs)

    def read(self, payload: bytes) -> int | str | None:
        """The tokens, or the text for the next call; None if the answer has neither. Never raises."""
        field = raw_fields(payload).get(self.answer)
        value: Json = None if field is None else raw_value(field)
        if isinstance(value, list):
            value = len(value)
        if isinstance(value, str):
            return value
        return value if type(value) is int and 0 < value <= MAX_TOKENS else None


class Counter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[counter]]`: how upstreams count prompts of an API.

    They are those with one of these `hosts`, by glob, or whose list of models names one of these `owners` of the model.
    `headers` are names of clients' headers that the count depends on. It is asked if it is `enabled`.
    `form`: the package of `proxy.apis` that writes the first body (`COUNT_BODY`); empty: it is made of `fields`.
    `key_header`: the header in which it takes the client's bearer token.
    """

    name: str
    api: str
    calls: tuple[CounterCall, ...]
    hosts: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    form: str = ""
    key_header: str = ""
    enabled: bool = True

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if not self.hosts and not self.owners:
            raise ValueError("needs hosts or owners")
        if any("/" in host or host.count(":") == 1 or not host.strip() for host in self.hosts):
            raise ValueError("hosts must be names or addresses, without scheme, port and path")
        if not all(map(HEADER.fullmatch, (*self.headers, *filter(None, [self.key_header])))):
            raise ValueError("headers and key_header must be names of headers in lower case")
        if not 0 < len(self.calls) <= MAX_CALLS:
            raise ValueError(f"calls must be 1 to {MAX_CALLS}")
        if [bool(call.into) for call in self.calls] != [False, True][: len(self.calls)]:
            raise ValueError("into must name the field of the second call for the first one's answer")

    def serves(self, api: str, host: str, owner: str) -> bool:
        """Whether it counts requests of an API to a model of this owner on an upstream."""
        if not self.enabled or api != self.api:
            return False
        return owner in self.owners or any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in self.hosts)


def in_header(headers: Sequence[Header], name: str) -> Sequence[Header]:
    """The headers with a bearer token in this header, as the plain token; the headers themselves without a name or
    token. A token of the client's in that header stays."""
    found = value_of(headers, b"authorization") or b""
    if not name or not found.startswith(BEARER) or value_of(headers, name.encode()) is not None:
        return headers
    return [*(h for h in headers if h[0] != b"authorization"), (name.encode(), found[len(BEARER) :])]


def counter_for(rows: Iterable[Counter], api: str, host: str, owner: str) -> Counter | None:
    """The first row that counts such requests; None if no upstream does."""
    return next((row for row in rows if row.serves(api, host, owner)), None)
