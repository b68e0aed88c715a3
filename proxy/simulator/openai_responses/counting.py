"""The simulator's own count of a prompt of the Responses API: its items, and what of encrypted content is read.

It must not use the proxy's parser: an item that the proxy loses has to show up in the count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.simulator.openai_responses.items import items_of
from proxy.tokens.meter import prompt_tokens

RECIPE = "responses"  # its name in `proxy.tokens`
# What encrypted content costs, by its length, as the usage of recorded requests shows.
FREE, RATE, LEAST, STORED = 880, 0.144, 10, 200
REREADS = ("gpt-5.6", "gpt-5.7", "gpt-5.8", "gpt-5.9", "gpt-6")  # models that read all reasoning, not only the newest


def count_prompt(body: Mapping[str, Any]) -> int:
    """Prompt tokens of a request, without what it refers to."""
    model = body["model"]
    items = [item for _, _, item in items_of(body)]
    newest = max((i for i, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    items = items[newest:]
    asked = max((i for i, item in enumerate(items) if item.get("role") == "user"), default=-1)
    read = -1 if model.startswith(REREADS) else asked
    hidden = sum(_hidden(item) for i, item in enumerate(items) if i > read or item.get("type") == "compaction")
    given = [body["instructions"]] if body.get("instructions") else []
    raws = [("", msgspec.json.encode(item)) for item in (*given, *items)]
    fields = {key: msgspec.json.encode(value) for key, value in body.items() if key not in ("input", "instructions")}
    return hidden + prompt_tokens(model, fields, [raws] if raws else [], RECIPE)


def _hidden(item: Mapping[str, Any]) -> int:
    """Tokens of encrypted content."""
    if item.get("type") not in ("reasoning", "compaction") or item.get("content"):
        return 0
    size = len(item.get("encrypted_content") or "")
    return max(LEAST, round(RATE * (size - FREE))) if size else STORED
