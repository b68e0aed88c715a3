"""What a server of the Responses API itself does with a prompt that is long: it drops the first items, or compacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.simulator.openai_responses.items import items_of
from proxy.simulator.openai_responses.stored import seal

COMPACTED, SIZE = "cmp_sim", 2_005  # the id of a compaction, and the characters that it encrypts
COMPACTED_TOKENS = 300  # of its output

Count = Callable[[Mapping[str, Any]], int]


def truncated(body: Mapping[str, Any], window: int, count: Count) -> int:
    """Prompt tokens of a request after `truncation: "auto"`: the first items go until it fits; the last one stays."""
    items = [item for _, _, item in items_of(body)]
    tokens = count(body)
    for start in range(1, len(items)):
        if tokens <= window:
            break
        tokens = count({**body, "input": items[start:]})
    return tokens


def compacts(body: Mapping[str, Any], prompt: int) -> bool:
    """Whether the request asks the server to compact a prompt of so many tokens."""
    limits = [edit.get("compact_threshold") for edit in body.get("context_management") or ()]
    return any(limit is not None and prompt > limit for limit in limits)


def compaction(owner: str) -> Mapping[str, Any]:
    """The item that stands for everything before it."""
    return {"id": COMPACTED, "type": "compaction", "encrypted_content": seal(COMPACTED, owner, SIZE)}
