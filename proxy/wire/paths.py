"""Request paths: which spellings are equal, which may carry the operator's key, and what logs may show of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from proxy.wire.headers import QUERY

LONGEST_PATH = 256  # bytes of a path that a log shows
PREFIX = b"/v1"  # the prefix of providers' paths; some clients omit it

# Requests that may carry PLIMSOLL_API_KEY: calls of models, and the list of models. Not files, batches, fine-tuning,
# stored responses or an organisation's keys (`GET /v1/organization/admin_api_keys`): a client that may call a model
# may not be allowed to see those.
KEYED = frozenset(
    {
        ("POST", b"/chat/completions"),
        ("POST", b"/completions"),
        ("POST", b"/embeddings"),
        ("POST", b"/responses"),
        ("POST", b"/responses/compact"),
        ("POST", b"/responses/input_tokens"),
        ("GET", b"/responses"),  # a WebSocket's handshake
        ("POST", b"/messages"),
        ("POST", b"/messages/count_tokens"),
        ("GET", b"/models"),
        ("POST", b"/api/chat"),
        ("POST", b"/api/generate"),
        ("POST", b"/tokenize"),  # vLLM and llama.cpp: counts of prompts
        ("POST", b"/apply-template"),
        ("GET", b"/api/ps"),  # the windows of the models that Ollama has loaded
    }
)
# Gemini's, Azure's and gateways' names for a credential in a query.
KEY_IN_QUERY = re.compile(rb"(?:^|[&;])(?:(?:api[_-]?)?key|(?:access[_-]?)?token|authorization)=", re.IGNORECASE)


def one_path(path: bytes) -> bytes:
    """A path without doubled and trailing slashes, which do not change its meaning."""
    return b"/" + b"/".join(filter(None, path.split(b"/")))


def brings_key(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request has a credential outside its usual headers: in its query, or, as browsers send it, as one of a
    WebSocket's subprotocols."""
    if KEY_IN_QUERY.search(target.partition(b"?")[2]):
        return True
    for name, value in headers:
        if name == b"sec-websocket-protocol" and b"key" in value.lower():
            return True
        if name == QUERY and KEY_IN_QUERY.search(value):
            return True
    return False


def takes_key(method: str, target: bytes) -> bool:
    """Whether the operator's key is added to a request that has none. Percent signs and dots are not resolved: a path
    that upstreams may read in two ways gets no key."""
    path = one_path(target.partition(b"?")[0])
    return (method, path.removeprefix(PREFIX)) in KEYED


DEPLOYMENTS = b"/openai/deployments/"  # Azure: /openai/deployments/NAME/chat/completions


def deployment_of(path: bytes) -> tuple[str, bytes] | None:
    """The name of a deployment in a path, as it is written there, and the path behind it; None for another path."""
    if not path.startswith(DEPLOYMENTS):
        return None
    name, _, rest = path[len(DEPLOYMENTS) :].partition(b"/")
    return (name.decode("latin-1"), b"/" + rest) if name and rest else None


# What a log may show of a path: the words of known APIs. Anything else may be an id, a name, even a key.
WORDS = frozenset(
    b"v1 chat completions embeddings responses input_items input_tokens cancel compact messages count_tokens batches "
    b"results models audio speech transcriptions translations voices images generations edits variations videos remix "
    b"moderations files content uploads parts complete fine_tuning jobs events checkpoints permissions pause resume "
    b"vector_stores file_batches search assistants threads runs steps submit_tool_outputs conversations items "
    b"containers evals output_items organization projects usage costs admin_api_keys users invites audit_logs realtime "
    b"sessions transcription_sessions client_secrets calls engines rerank score tokenize detokenize pooling classify "
    b"openai deployments extensions api generate embed tags show pull push create copy delete ps version v1beta v2 "
    b"health ping docs metrics inspect".split()
)
MOST_SEGMENTS = 8
HIDDEN = "*"
OTHER = "other"

# The label in metrics of a path that is not fitted, by its first segment (after /v1).
FAMILIES = {
    **{word: word for word in ("chat", "completions", "embeddings", "responses", "messages", "models", "realtime")},
    **{word: word for word in ("audio", "images", "videos", "moderations", "files", "uploads", "batches")},
    **{word: word for word in ("fine_tuning", "vector_stores", "assistants", "threads", "conversations")},
    **{word: word for word in ("containers", "evals", "organization", "rerank", "tokenize")},
    "openai": "azure",  # /openai/deployments/NAME/chat/completions
    "api": "ollama",  # /api/chat, /api/generate
}


@lru_cache(maxsize=512)
def _shown(path: bytes) -> str:
    segments = one_path(path).split(b"/")[1:]
    parts = [s.decode("ascii") if s in WORDS else HIDDEN if s else "" for s in segments[:MOST_SEGMENTS]]
    return "/" + "/".join(parts) + ("/..." if len(segments) > MOST_SEGMENTS else "")


def shown(target: bytes) -> str:
    """A target's path for the log: without its query, and with `*` for every segment that is not a known word."""
    path = target.partition(b"?")[0]
    return _shown(path) if len(path) <= LONGEST_PATH else "/..."


def family(path: str) -> str:
    """The label in metrics of a path that `shown` returned; one of a fixed set."""
    first = path.removeprefix("/v1").lstrip("/").partition("/")[0]
    return FAMILIES.get(first, OTHER)
