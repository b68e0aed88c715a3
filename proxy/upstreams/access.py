"""What goes to an upstream of upstreams.toml: headers that are known to carry no credential, and the operator's key.

A client's credentials belong to the default upstream. Any header may be one (gateways invent names for them), so only
headers and parameters of the query that are listed here, or by the row, go to another upstream. It sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from proxy.apis.paths import takes_key
from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.wire.headers import Header, to_upstream

# What a request says of its own form, and ids. OpenAI's clients describe themselves in x-stainless-*.
FORWARDED = frozenset(
    {
        *(b"accept", b"accept-encoding", b"accept-language", b"user-agent"),
        *(b"content-type", b"content-encoding", b"content-length"),
        *(b"anthropic-version", b"anthropic-beta", b"openai-beta"),
        *(b"idempotency-key", b"x-request-id", b"traceparent", b"tracestate"),
        *(b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions"),
    }
)
DESCRIBES_CLIENT = b"x-stainless-"
SUBPROTOCOL = b"sec-websocket-protocol"
SUBPROTOCOLS = frozenset((b"realtime", b"openai-beta.realtime-v1"))  # others may be a key
# Parameters of the query: versions, forms of answers, pages of lists.
PARAMETERS = frozenset(
    {
        *(b"api-version", b"beta", b"alt", b"model", b"stream", b"include", b"include[]", b"include%5B%5D"),
        *(b"limit", b"order", b"after", b"before", b"after_id", b"before_id", b"starting_after", b"purpose"),
    }
)
# Headers of answers that are about the operator's account, or that a client would send to another upstream.
NOT_TO_CLIENT = frozenset(
    (b"set-cookie", b"openai-organization", b"openai-project", b"anthropic-organization-id", b"www-authenticate")
)
# Where the operator's key would lead: an address of the operator's account, to which a client would send its own key.
LOCATIONS = frozenset((b"location", b"content-location", b"refresh"))
BEARER = "authorization"


@dataclass(frozen=True, slots=True)
class Access:
    """What goes to one upstream. `key` is the operator's, as a header; None if it needs none. It goes with calls of
    models, and where `keyed` says so (by path)."""

    key: Header | None = field(default=None, repr=False)
    keyed: Callable[[str], bool] = lambda path: False
    headers: frozenset[bytes] = frozenset()

    def request_headers(self, method: str, target: bytes, headers: Iterable[Header]) -> list[Header]:
        """The headers of a client's request that go along, and the operator's key."""
        allowed = FORWARDED | self.headers
        sent = [h for h in to_upstream(headers) if h[0] in allowed or h[0].startswith(DESCRIBES_CLIENT)]
        offered = [part.strip() for name, value in headers if name == SUBPROTOCOL for part in value.split(b",")]
        if known := [part for part in offered if part in SUBPROTOCOLS]:
            sent.append((SUBPROTOCOL, b", ".join(known)))
        path = target.partition(b"?")[0].decode("latin-1")
        if self.key is not None and (takes_key(method, target) or self.keyed(path)):
            sent = [*(h for h in sent if h[0] != self.key[0]), self.key]
        return sent

    def target(self, target: bytes) -> bytes:
        """The target with the known parameters of its query."""
        path, mark, query = target.partition(b"?")
        if not mark:
            return target
        kept = b"&".join(part for part in query.split(b"&") if part.partition(b"=")[0] in PARAMETERS)
        return path + b"?" + kept if kept else path


def response_headers(headers: Iterable[Header], *, keyed: bool = False) -> list[Header]:
    """The headers of an answer without those that no client of ours gets. `keyed`: it is one to the operator's key."""
    dropped = NOT_TO_CLIENT | LOCATIONS if keyed else NOT_TO_CLIENT
    return [header for header in headers if header[0] not in dropped]


def key_of(row: UpstreamRow, variables: Mapping[str, str] | None) -> str:
    """The key of a row; empty if it names none. Without `variables` no key is read: the name of its variable stands for
    it. Raises `ConfigError` if its variable is not set, or is no key."""
    if not row.key or variables is None:
        return row.key
    value = variables.get(row.key, "").strip()
    if not value or not value.isascii() or not value.isprintable():
        raise ConfigError(f"the variable {row.key} is not set, or is no key")
    return value


def access_of(row: UpstreamRow, key: str, keyed: Callable[[str], bool]) -> Access:
    """The access to the upstream of a row with its key; empty: it needs none."""
    value = f"Bearer {key}" if row.key_header == BEARER else key
    header = (row.key_header.encode(), value.encode()) if key else None
    return Access(header, keyed, frozenset(name.encode() for name in row.headers))
