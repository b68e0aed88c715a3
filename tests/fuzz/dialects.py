"""Each fitted API for bodies by chance: its path, its valid requests, and how the simulator counts them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.simulator import anthropic_messages, responses
from proxy.simulator.counting import count_prompt
from tests.fuzz.bodies import TOOL, WORDS, chat, text

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LIMITS = (16, 50, 500, 4_000)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API. `limit` is the field of the reply limit, `count` gives the prompt tokens of a body."""

    name: str
    path: str
    limit: str
    valid: Callable[[int], dict[str, Any]]
    count: Callable[[bytes], int]
    headers: tuple[bytes, ...] = ()


def _shuffled(chance: random.Random, body: dict[str, Any], *options: tuple[str, Any]) -> dict[str, Any]:
    body |= {name: value for name, value in options if chance.random() < 0.3}
    return dict(sorted(body.items(), key=lambda _: chance.random()))


def _round(chance: random.Random, place: int, stem: str, stored: bool) -> list[dict[str, Any]]:
    """The items of one response, and the answers to its calls."""
    found: list[dict[str, Any]] = []
    if stem.endswith("r"):
        found.append({"type": "reasoning", "id": f"rs_{stem}_0", "summary": [], "encrypted_content": "gAAAA" * 200})
    calls = chance.choice((0, 1, 3))
    if chance.random() < 0.6 or not calls:
        said = [{"type": "output_text", "text": text(chance), "annotations": []}]
        found.append({"type": "message", "id": f"msg_{stem}_1", "role": "assistant", "content": said})
    kind, asked = chance.choice((("function_call", "arguments"), ("custom_tool_call", "input")))
    for call in range(calls):
        ident = f"call_{place}_{call}"
        arguments = json.dumps({"q": text(chance, 10)})
        prefix = "fc" if kind == "function_call" else "ctc"
        one = {"type": kind, "id": f"{prefix}_{stem}_{call + 2}", "call_id": ident, "name": "search", asked: arguments}
        found.append(one)
    for call in range(calls):
        found.append({"type": f"{kind}_output", "call_id": f"call_{place}_{call}", "output": text(chance, 400)})
    return found if stored else [{key: value for key, value in item.items() if key != "id"} for item in found]


def _input(chance: random.Random) -> str | dict[str, Any]:
    if chance.random() < 0.6:
        return {"role": "user", "content": text(chance)}
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text(chance)} for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.2:
        parts.append({"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "low"})
    return {"type": "message", "role": "user", "content": parts}


def response(seed: int) -> dict[str, Any]:
    """A valid request of the Responses API."""
    chance = random.Random(seed)
    stored = chance.random() < 0.5
    items: Any = [{"role": "developer", "content": text(chance)}] if chance.random() < 0.3 else []
    for turn in range(chance.choice((0, 1, 3, 10, 40))):
        items.append(_input(chance))
        items += _round(chance, turn, f"t{turn}{'r' if chance.random() < 0.3 else ''}", stored)
    items.append(_input(chance))
    if len(items) == 1 and chance.random() < 0.5:
        items = text(chance, 3_000)
    return _shuffled(
        chance,
        {"model": chance.choice(("gpt-4o", "gpt-5", "gpt-5.6")), "input": items, "store": stored},
        ("instructions", text(chance, 300)),
        ("max_output_tokens", chance.choice(LIMITS)),
        ("tools", [{"type": "function", "strict": False, **TOOL["function"]}] * chance.choice((1, 8))),
        ("stream", chance.choice((True, False))),
        ("metadata", {"a": "b"}),
    )


def _blocks(chance: random.Random, mark: float = 0.1) -> str | list[dict[str, Any]]:
    if chance.random() < 0.6:
        return text(chance, 60) + "."
    found: list[dict[str, Any]] = [
        {"type": "text", "text": text(chance, 60) + "."} for _ in range(chance.randrange(1, 4))
    ]
    if chance.random() < 0.2:
        found.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}})
    if chance.random() < mark:
        found[-1]["cache_control"] = {"type": "ephemeral"}
    return found


def _tools(chance: random.Random, turn: int) -> list[dict[str, Any]]:
    """A message with calls, and one with their results."""
    calls = [f"toolu_{turn}_{i}" for i in range(chance.choice((1, 3)))]
    uses = [{"type": "tool_use", "id": i, "name": "search", "input": {"q": text(chance, 10)}} for i in calls]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": i, "content": text(chance, 400)} for i in calls
    ]
    if chance.random() < 0.2:
        results.append({"type": "text", "text": chance.choice(WORDS) + "?"})
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


def message(seed: int) -> dict[str, Any]:
    """A valid request of the Messages API."""
    chance = random.Random(seed)
    said: list[dict[str, Any]] = []
    marks = 0
    for turn in range(chance.choice((0, 1, 3, 10, 40))):
        said.append({"role": "user", "content": _blocks(chance, 0.1 if marks < 3 else 0)})
        marks += "cache_control" in json.dumps(said[-1])
        if chance.random() < 0.4:
            said += _tools(chance, turn)
        said.append({"role": "assistant", "content": text(chance) + "."})
    said.append({"role": "user", "content": _blocks(chance, 0)})
    model = chance.choice(("claude-3-haiku-20240307", "claude-sonnet-4-5-20250929", "claude-opus-4-8"))
    tool = {"name": "search", "input_schema": TOOL["function"]["parameters"]}
    return _shuffled(
        chance,
        {"model": model, "messages": said, "max_tokens": chance.choice(LIMITS), "tools": [tool]},
        ("system", _blocks(chance, 0)),
        ("stream", chance.choice((True, False))),
        ("metadata", {"user_id": "b"}),
    )


def _counted(body: bytes) -> int:
    return responses.count_prompt(json.loads(body))


DIALECTS = (
    Dialect("chat", "/v1/chat/completions", "max_tokens", chat, count_prompt),
    Dialect("responses", "/v1/responses", "max_output_tokens", response, _counted),
    Dialect(
        "messages",
        "/v1/messages",
        "max_tokens",
        message,
        anthropic_messages.count_prompt,
        (b"anthropic-version: 2023-06-01",),
    ),
)
