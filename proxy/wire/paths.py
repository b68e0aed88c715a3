"""What a request's path means: which spellings are one path, and where the operator's key may go; it reads no body."""

from __future__ import annotations

PREFIX = b"/v1"  # below which providers have what the tables name; some clients leave it out

# Where PLIMSOLL_API_KEY goes: what asks a model, and the list of models. Not files, batches, fine-tuning, stored
# answers or an organisation's keys (`GET /v1/organization/admin_api_keys`): who may ask a model need not see those.
KEYED = frozenset(
    {
        ("POST", b"/chat/completions"),
        ("POST", b"/completions"),
        ("POST", b"/embeddings"),
        ("POST", b"/responses"),
        ("GET", b"/responses"),  # a WebSocket's handshake
        ("POST", b"/messages"),
        ("POST", b"/messages/count_tokens"),
        ("GET", b"/models"),
    }
)


def one_path(path: bytes) -> bytes:
    """A path without doubled and trailing slashes, which do not change it."""
    return b"/" + b"/".join(filter(None, path.split(b"/")))


def takes_key(method: str, target: bytes) -> bool:
    """Whether the operator's key goes with a request that brings none. Percent signs and dots are not resolved: a path
    that upstreams may read in two ways gets no key."""
    path = one_path(target.partition(b"?")[0])
    return (method, path.removeprefix(PREFIX)) in KEYED
