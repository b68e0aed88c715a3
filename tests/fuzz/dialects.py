"""Each fitted API for bodies by chance: its path, its valid requests, and how the simulator counts them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.simulator.anthropic_messages.counting import count_prompt as count_messages
from proxy.simulator.counting import EMBEDDED, tokens_of
from proxy.simulator.ollama.answer import count_prompt as count_ollama
from proxy.simulator.ollama_generate.answer import count_prompt as count_generated
from proxy.simulator.openai_chat.counting import count_prompt
from proxy.simulator.openai_completions.answer import RECIPE, prompts_of
from proxy.simulator.openai_responses.counting import count_prompt as count_responses
from tests.fuzz.bodies import TOOL, WORDS, chat, text

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LIMITS = (16, 50, 500, 4_000)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API. `limit` is the field of the reply limit, `count` gives the prompt tokens of a body. `silent`: its
    servers shorten what is too long, and say nothing."""

    name: str
    path: str
    limit: str
    valid: Callable[[int], dict[str, Any]]
    count: Callable[[bytes], int]
    headers: tuple[bytes, ...] = ()
    silent: bool = False


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
    return count_responses(json.loads(body))


def _ids(chance: random.Random, most: int) -> list[int]:
    return [chance.randrange(50_000) for _ in range(chance.randrange(1, most))]


def completion(seed: int) -> dict[str, Any]:
    """A valid request of the Completions API: a text, ids, several of them, or what stands around a gap."""
    chance = random.Random(seed)
    prompts: tuple[Any, ...] = (
        text(chance, 2_000),
        _ids(chance, 900),
        [text(chance, 600) for _ in range(3)],
        [_ids(chance, 300) for _ in range(2)],
    )
    prompt = chance.choice(prompts)
    return _shuffled(
        chance,
        {"model": chance.choice(("gpt-3.5-turbo-instruct", "davinci-002")), "prompt": prompt},
        ("max_tokens", chance.choice(LIMITS)),
        ("n", chance.choice((1, 2))),
        ("stream", chance.choice((True, False))),
        *([("suffix", text(chance, 300))] if isinstance(prompt, str) else []),
    )


def embedded(seed: int) -> dict[str, Any]:
    """A valid request of the Embeddings API."""
    chance = random.Random(seed)
    inputs: tuple[Any, ...] = (
        text(chance, 1_000),
        _ids(chance, 900),
        [text(chance, 200) for _ in range(chance.choice((1, 4, 30)))],
        [_ids(chance, 300) for _ in range(3)],
    )
    return _shuffled(
        chance,
        {"model": "text-embedding-3-small", "input": chance.choice(inputs), "dimensions": 8},
        ("encoding_format", chance.choice(("float", "base64"))),
        ("user", "b"),
    )


def _options(chance: random.Random) -> dict[str, Any]:
    return {"temperature": 0.5} | ({"num_predict": chance.choice(LIMITS)} if chance.random() < 0.5 else {})


def ollama_chat(seed: int) -> dict[str, Any]:
    """A valid request of Ollama's chat."""
    chance = random.Random(seed)
    said: list[dict[str, Any]] = [{"role": "system", "content": text(chance)}] if chance.random() < 0.5 else []
    for _ in range(chance.choice((0, 1, 3, 10, 40))):
        said.append({"role": "user", "content": text(chance)})
        if chance.random() < 0.4:
            calls = [{"function": {"name": "search", "arguments": {"q": text(chance, 10)}}}] * chance.choice((1, 2))
            said.append({"role": "assistant", "content": "", "tool_calls": calls})
            said += [{"role": "tool", "tool_name": "search", "content": text(chance, 400)} for _ in calls]
        said.append({"role": "assistant", "content": text(chance)})
    said.append({"role": "user", "content": text(chance)})
    return _shuffled(
        chance,
        {"model": "llama3.2", "messages": said},
        ("options", _options(chance)),
        ("tools", [TOOL] * chance.choice((1, 8))),
        ("stream", chance.choice((True, False))),
        ("keep_alive", "5m"),
    )


def generated(seed: int) -> dict[str, Any]:
    """A valid request of Ollama that continues a text."""
    chance = random.Random(seed)
    others = {"system": text(chance), "context": _ids(chance, 900)} if chance.random() < 0.4 else {"raw": True}
    return _shuffled(
        chance,
        {"model": "llama3.2", "prompt": text(chance, 2_000), **(others if chance.random() < 0.6 else {})},
        ("options", _options(chance)),
        ("suffix", text(chance, 300)),
        ("stream", chance.choice((True, False))),
        ("keep_alive", "5m"),
    )


def _longest(body: bytes) -> int:
    """Tokens of the longest input."""
    asked = json.loads(body)
    said = asked["input"]
    texts = said if isinstance(said, list) and not isinstance(said[0], int) else [said]
    return max(tokens_of(asked["model"], one, EMBEDDED) for one in texts)


def _longest_prompt(body: bytes) -> int:
    asked = json.loads(body)
    beside = tokens_of(asked["model"], asked["suffix"], RECIPE) if "suffix" in asked else 0
    return beside + max(tokens_of(asked["model"], one, RECIPE) for one in prompts_of(asked))


DIALECTS = (
    Dialect("completions", "/v1/completions", "max_tokens", completion, _longest_prompt),
    Dialect("embeddings", "/v1/embeddings", "", embedded, _longest),
    Dialect("ollama", "/api/chat", "", ollama_chat, count_ollama, silent=True),
    Dialect("generate", "/api/generate", "", generated, count_generated, silent=True),
    Dialect("chat", "/v1/chat/completions", "max_tokens", chat, count_prompt),
    Dialect("responses", "/v1/responses", "max_output_tokens", response, _counted),
    Dialect(
        "messages",
        "/v1/messages",
        "max_tokens",
        message,
        count_messages,
        (b"anthropic-version: 2023-06-01",),
    ),
)
