"""What an upstream's own `GET /v1/models` says a model can hold, whatever it calls it; it asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.model.limits import Window

SOURCE = "upstream"
DEEPEST = 5  # folders of JSON in which figures are looked for
LARGEST = 10**9  # tokens; a larger figure stands for "no limit"
# What servers call the window. What is loaded comes before what could be: a server may run a model with less than it
# was trained for. Sources: LM Studio; llama.cpp; vLLM and SGLang; OpenRouter, Together, Fireworks, Cohere; Groq and
# Vercel; Mistral; GitHub Copilot; Novita; llama.cpp.
WINDOW = (
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
INPUT = ("max_input_tokens", "inputTokenLimit", "input_token_limit", "max_prompt_tokens")
OUTPUT = ("max_output_tokens", "max_completion_tokens", "outputTokenLimit", "output_token_limit")
LISTS = ("data", "models")
NAMES = ("id", "name", "model", "slug", "key")


def from_models_answer(body: bytes, model: str) -> Window | None:
    """The window of a model in the body of a models answer, one model's or the list; None where it does not say.

    Of several figures of one name (a model's hosts, OpenRouter's top provider) the least is taken: it holds at each.
    """
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return next((window for row in _rows_of(answer, model) if (window := _window(row))), None)


def _rows_of(answer: Any, model: str) -> list[Mapping[str, Any]]:
    lists = list(_lists(answer))
    rows = [row for rows in lists for row in rows]
    own = [{name.lower() for name in _names(row)} for row in rows]
    forms = [{form for name in called for form in model_names.forms(name)} for called in own]
    for called in (own, forms):
        for form in model_names.forms(model):
            if named := [row for row, known in zip(rows, called, strict=True) if form in known]:
                return named
    # A server of one model: many of them do not heed the name. llama.cpp's lists its model in either list.
    return rows if all(len(rows) <= 1 for rows in lists) else []


def _lists(answer: Any) -> Iterator[list[Mapping[str, Any]]]:
    if isinstance(answer, dict) and not any(isinstance(answer.get(key), list) for key in LISTS):
        yield [answer]
        return
    for rows in [answer.get(key) for key in LISTS] if isinstance(answer, dict) else [answer]:
        if isinstance(rows, list):
            yield [row for row in rows if isinstance(row, dict)]


def _names(row: Mapping[str, Any]) -> list[str]:
    aliases = row.get("aliases")
    found = [row.get(key) for key in NAMES] + (aliases if isinstance(aliases, list) else [])
    return [name for name in found if isinstance(name, str) and len(name) <= model_names.LONGEST]


def _window(row: Mapping[str, Any]) -> Window | None:
    figures: dict[str, int] = {}
    for key, value in _figures(row, DEEPEST):
        figures[key] = min(value, figures.get(key, value))
    held, bound, cap = (_first(figures, keys) for keys in (WINDOW, INPUT, OUTPUT))
    tokens = held or bound  # where only the prompt's bound is told, it is the window: as in litellm's table
    if tokens is None:
        return None
    return Window(tokens, _under(bound, tokens), _under(cap, tokens), SOURCE)


def _figures(value: Any, deep: int) -> Iterator[tuple[str, int]]:
    if not deep:
        return
    if isinstance(value, list):
        for item in value:
            yield from _figures(item, deep - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if (figure := _positive(item)) is not None:
                yield key, figure
            yield from _figures(item, deep - 1)


def _positive(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 < value < LARGEST else None


def _first(figures: Mapping[str, int], keys: tuple[str, ...]) -> int | None:
    return next((figures[key] for key in keys if key in figures), None)


def _under(bound: int | None, tokens: int) -> int | None:
    return bound if bound is not None and bound < tokens else None
