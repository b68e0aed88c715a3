"""What APIs share to count prompts: tokens of one text, by the recipes of `proxy.tokens`, and threads for large bodies.

How an API's own requests are counted is in its package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from proxy.simulator.json import Json
from proxy.tokens.meter import prompt_tokens

THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
EMBEDDED = "embeddings"  # the name in `proxy.tokens` of the recipe of texts that become vectors

Prompt = str | Sequence[int]
Found = TypeVar("Found")


async def counted(raw: bytes, count: Callable[[], Found]) -> Found:
    """What `count` returns of the body `raw`: it is called in a thread if the body is large."""
    return await asyncio.to_thread(count) if len(raw) > THREAD_MIN_BYTES else count()


def tokens_of(model: str, text: Prompt, recipe: str) -> int:
    """Tokens of one text or list of ids."""
    return (
        len(text) if isinstance(text, list) else prompt_tokens(model, {}, [[("", msgspec.json.encode(text))]], recipe)
    )


def is_ids(value: Json) -> bool:
    """Whether a value is a prompt of token ids."""
    return isinstance(value, list) and bool(value) and all(type(i) is int and i >= 0 for i in value)
