"""Reads a model's window and owner from the response of an upstream's `GET /v1/models`. It sends no request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.model.lenient_json import UNREADABLE
from proxy.model.limits import Window

SOURCE = "upstream"
MAX_DEPTH = 5  # levels of JSON that are searched
MAX_TOKENS = 10**9  # a larger figure means "no limit"
# The names of the window's field. The loaded window comes before the trained one: a server may run a model with less
# than it was trained for. Sources: LM Studio; llama.cpp; vLLM, SGLang; OpenRouter, Together, Fireworks, Cohere; Groq,
# Vercel; Mistral; GitHub Copilot; Novita; llama.cpp.
WINDOW_KEYS = (
    "loaded_context_length",
    "n_ctx",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_context_window_tokens",
    "context_size",
    "max_context_tokens",
    "max_sequence_length",
    "n_ctx_train",
)
INPUT_KEYS = ("max_input_tokens", "inputTokenLimit", "input_token_limit", "max_prompt_tokens")
OUTPUT_KEYS = ("max_output_tokens", "max_completion_tokens", "outputTokenLimit", "output_token_limit")
OWNER_KEY = "owned_by"
LIST_KEYS = ("data", "models")
NAME_KEYS = ("id", "name", "model", "slug", "key")


def window_from_models(body: bytes, model: str) -> Window | None:
    """The window of a model in the response body of GET /v1/models or GET /v1/models/{model}.

    Never raises; returns None if the body has no window for the model. Of several figures under one key (a model's
    hosts, OpenRouter's top provider) the smallest is returned: it is valid for each of them.
    """
    try:
        response = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    return next((window for row in _rows_of(response, model) if (window := _window(row))), None)


def owner_from_models(body: bytes, model: str) -> str:
    """The owner of a model in such a body: vLLM and llama.cpp name themselves. Empty if it has none. Never raises."""
    try:
        response = msgspec.json.decode(body)
    except UNREADABLE:
        return ""
    named = [row.get(OWNER_KEY) for row in _rows_of(response, model)]
    owners = {owner for owner in named if isinstance(owner, str)}
    return owners.pop() if len(owners) == 1 else ""


def _rows_of(response: Any, model: str) -> list[Mapping[str, Any]]:
    lists = list(_lists(response))
    rows = [row for rows in lists for row in rows]
    names = [{name.lower() for name in _names(row)} for row in rows]
    variants = [{v for name in own for v in model_names.variants(name)} for own in names]
    for candidates in (names, variants):
        for variant in model_names.variants(model):
            if matching := [row for row, own in zip(rows, candidates, strict=True) if variant in own]:
                return matching
    # A server with one model: many of them ignore the name. llama.cpp has its model in both lists.
    return rows if all(len(rows) <= 1 for rows in lists) else []


def _lists(response: Any) -> Iterator[list[Mapping[str, Any]]]:
    if isinstance(response, dict) and not any(isinstance(response.get(key), list) for key in LIST_KEYS):
        yield [response]
        return
    for rows in [response.get(key) for key in LIST_KEYS] if isinstance(response, dict) else [response]:
        if isinstance(rows, list):
            yield [row for row in rows if isinstance(row, dict)]


def _names(row: Mapping[str, Any]) -> list[str]:
    aliases = row.get("aliases")
    found = [row.get(key) for key in NAME_KEYS] + (aliases if isinstance(aliases, list) else [])
    return [name for name in found if isinstance(name, str) and len(name) <= model_names.MAX_LENGTH]


def _window(row: Mapping[str, Any]) -> Window | None:
    figures: dict[str, int] = {}
    for key, value in _figures(row, MAX_DEPTH):
        figures[key] = min(value, figures.get(key, value))
    window, max_input, max_output = (_first(figures, keys) for keys in (WINDOW_KEYS, INPUT_KEYS, OUTPUT_KEYS))
    tokens = window or max_input  # a bound on the prompt alone is the window, as in litellm's table
    if tokens is None:
        return None
    return Window(tokens, _below(max_input, tokens), _below(max_output, tokens), SOURCE)


def _figures(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if not depth:
        return
    if isinstance(value, list):
        for item in value:
            yield from _figures(item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if (figure := _positive(item)) is not None:
                yield key, figure
            yield from _figures(item, depth - 1)


def _positive(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 < value < MAX_TOKENS else None


def _first(figures: Mapping[str, int], keys: tuple[str, ...]) -> int | None:
    return next((figures[key] for key in keys if key in figures), None)


def _below(limit: int | None, tokens: int) -> int | None:
    return limit if limit is not None and limit < tokens else None
