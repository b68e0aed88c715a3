"""What request paths mean: which may carry the operator's key, and what logs and metrics may show of them.

Much follows from the APIs; the rest are paths of providers that are not fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from proxy.apis import apis, servers
from proxy.wire.paths import one_path

LONGEST_PATH = 256  # bytes of a path that a log shows
PREFIX = "/v1"  # the prefix of providers' paths; some clients omit it
PREFIX_BYTES = PREFIX.encode()

# Requests that may carry PLIMSOLL_API_KEY: calls of models (`Api.paths`, `Api.calls`), and the list of models. Not
# files, batches, fine-tuning, stored responses or an organisation's keys (`GET /v1/organization/admin_api_keys`): a
# client that may call a model may not be allowed to see those.
KEYED = (
    ("GET", "/models"),
    ("POST", "/tokenize"),  # vLLM and llama.cpp: counts of prompts
    ("POST", "/apply-template"),
)


COUNTS = (b"/count_tokens", b"/input_tokens", b":countTokens", b"/tokenize")  # how paths end that only count a prompt


@cache
def keyed() -> frozenset[tuple[str, bytes]]:
    """Method and path, without its prefix, of each request that may carry the operator's key."""
    calls = [call for api in apis() for call in (("POST", api.path), *api.calls)]
    return frozenset((method, path.removeprefix(PREFIX).encode()) for method, path in (*KEYED, *calls))


def takes_key(method: str, target: bytes) -> bool:
    """Whether the operator's key is added to a request that has none. Percent signs and dots are not resolved: a path
    that upstreams may read in two ways gets no key."""
    path = one_path(target.partition(b"?")[0])
    return (method, path.removeprefix(PREFIX_BYTES)) in keyed()


# What a log may show of a path: the words of known APIs (`words`). Anything else may be an id, a name, even a key.
WORDS = (
    "v1 input_items input_tokens cancel batches results models audio speech transcriptions translations voices "
    "images generations edits variations videos remix moderations files content uploads parts complete "
    "fine_tuning jobs events checkpoints permissions pause resume vector_stores file_batches search assistants "
    "threads runs steps submit_tool_outputs conversations items containers evals output_items organization "
    "projects usage costs admin_api_keys users invites audit_logs realtime sessions transcription_sessions "
    "client_secrets calls engines rerank score tokenize detokenize pooling classify openai deployments extensions "
    "v2 health ping docs metrics inspect"
).split()
MOST_SEGMENTS = 8
HIDDEN = "*"
OTHER = "other"

# The label in metrics of a path that is not fitted, by its first segment (after /v1), besides those of APIs.
FAMILIES = (
    "models realtime audio images videos moderations files uploads batches fine_tuning vector_stores assistants "
    "threads conversations containers evals organization rerank tokenize"
).split()


@cache
def words() -> frozenset[bytes]:
    """The segments of paths that a log may show."""
    paths = [path for api in apis() for path in (*api.paths, *(path for _, path in api.calls))]
    spoken = [word for path in paths for word in path.split("/") if word]
    return frozenset(word.encode() for word in (*WORDS, *spoken, *(w for one in servers().values() for w in one.words)))


@cache
def families() -> Mapping[str, str]:
    """The labels of paths by their first segment."""
    spoken = {_first(path): _first(path) for api in apis() for path in api.paths}
    named = {segment: label for server in servers().values() for segment, label in server.labels.items()}
    return {**{word: word for word in FAMILIES}, **spoken, **named}


@lru_cache(maxsize=512)
def _shown(path: bytes) -> str:
    segments, known = one_path(path).split(b"/")[1:], words()
    parts = [s.decode("ascii") if s in known else HIDDEN if s else "" for s in segments[:MOST_SEGMENTS]]
    return "/" + "/".join(parts) + ("/..." if len(segments) > MOST_SEGMENTS else "")


def shown(target: bytes) -> str:
    """A target's path for the log: without its query, and with `*` for every segment that is not a known word."""
    path = target.partition(b"?")[0]
    return _shown(path) if len(path) <= LONGEST_PATH else "/..."


def family(path: str) -> str:
    """The label in metrics of a path that `shown` returned; one of a fixed set."""
    return families().get(_first(path), OTHER)


def _first(path: str) -> str:
    """The first segment of a path, after its prefix."""
    return path.removeprefix(PREFIX).lstrip("/").partition("/")[0]


def only_counts(target: bytes) -> bool:
    """Whether a path with its query only counts a prompt, which costs nothing."""
    return target.partition(b"?")[0].rstrip(b"/").endswith(COUNTS)
