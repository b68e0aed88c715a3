"""Anthropic's kind of server."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.apis.anthropic_messages.call import VERSION
from proxy.apis.anthropic_messages.request import BARE_PATH, PATH
from proxy.model.server import Entry, ModelList, Server

EPOCH = "1970-01-01T00:00:00Z"


def _entry(name: str, owner: str) -> Entry:
    return {"type": "model", "id": name, "display_name": name, "created_at": EPOCH}


def _frame(names: Sequence[str]) -> tuple[Entry, Entry]:
    return {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}, {"has_more": False}


MODELS = ModelList(
    target=b"/v1/models?limit=1000",
    headers=(VERSION,),
    entry=_entry,
    window_keys=("max_input_tokens",),
    output_keys=("max_tokens",),
    frame=_frame,
)
ANTHROPIC = Server(
    "anthropic",
    roots=(PATH, BARE_PATH),
    asked_at=PATH,
    mark=VERSION[0],
    keys=frozenset((b"authorization", b"x-api-key")),
    prompt_cache="anthropic",
    models=MODELS,
    words=("count_tokens", "batches", "results"),
)
