"""Generated conversations: chats, agents' runs, tool cases, images; they grow turn by turn beyond the window."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.bench.identity.replies import Reply
from tests.bench.identity.texts import FOREIGN, NAMES, RESULTS, fact, image, prose, question

CHAT = "/v1/chat/completions"
CHARACTERS = 4.7  # per token, of these texts in JSON
MODELS = (
    *("gpt-4", "gpt-4o", "gpt-4o-2024-08-06", "gpt-4.1-mini", "gpt-5", "gpt-5-mini", "gpt-3.5-turbo", "o3-mini"),
    *("claude-3-5-sonnet-20241022", "anthropic/claude-sonnet-4", "claude-2.1", "mistral-large-latest"),
    *("mistralai/Mixtral-8x7B-Instruct-v0.1", "llama3.2:3b", "meta-llama/Llama-3.1-8B-Instruct", "llama-2-7b-chat"),
    *("grok-3", "grok-4-fast", "gemini-1.5-pro", "gemini-2.5-flash", "qwen2.5:7b", "deepseek-chat", "command-r-plus"),
    *("gemma2:9b", "phi3:mini", "acme/harbour-9b", "listed/harbour-12k", "listed/harbour-6k", "my-finetune:v2"),
)
WINDOWS = (1_500, 2_600, 4_096, 6_000, 8_192)


@dataclass(frozen=True, slots=True)
class Case:
    """One request. `replies`: what the upstream answers to its attempts, in order; then it sends default answers.
    `inspected`: the body is also sent to /inspect. `wire`: the raw bytes of a connection, instead of all else.
    `keyless`: without a credential; the other requests of a conversation share one."""

    body: bytes | None = None
    method: str = "POST"
    path: str = CHAT
    headers: tuple[tuple[str, str], ...] = ()
    replies: tuple[Reply, ...] = ()
    inspected: bool = False
    keyless: bool = False
    wire: bytes = b""


Messages = list[dict[str, Any]]
Maker = Callable[[random.Random, int], Iterator[Case]]


def written(dice: random.Random, body: Mapping[str, Any]) -> bytes:
    """A body as JSON, in the style of one of several clients."""
    if dice.random() < 0.5:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return json.dumps(body, ensure_ascii=dice.random() < 0.5).encode()


def options(dice: random.Random) -> dict[str, Any]:
    """A body's fields besides its messages."""
    found: dict[str, Any] = {"temperature": 0.2} if dice.random() < 0.5 else {}
    limit = dice.choice((None, None, 1, 50, 500, 1_000, 4_000, 100_000, 0, -5))
    if limit is not None:
        found[dice.choice(("max_tokens", "max_tokens", "max_completion_tokens"))] = limit
    if dice.random() < 0.15:
        found |= {"stream": True} | dice.choice(({}, {"stream_options": {"include_usage": True}}))
    if dice.random() < 0.1:
        found |= dice.choice(
            ({"n": 2}, {"seed": 7, "user": "u"}, {"metadata": {"a": "b"}}, {"reasoning_effort": "low"})
        )
    return found


def capped(dice: random.Random, tokens: int) -> tuple[tuple[str, str], ...]:
    """A window near the size of a request of `tokens` tokens, in most cases."""
    window = int(tokens * dice.choice((0.5, 0.8, 0.95, 1.05, 1.3)))
    return (("x-plimsoll-window", str(max(window, dice.choice(WINDOWS)))),) if dice.random() < 0.85 else ()


def turns(dice: random.Random, model: str, said: Messages, more: Sequence[Messages], **fields: Any) -> Iterator[Case]:
    """A growing conversation: one request for each of `more`, with all messages before it."""
    body = {"model": model, **options(dice), **fields}
    said = list(said)
    last = [*said, *itertools.chain(*more)]
    headers = capped(dice, int(len(json.dumps(last, ensure_ascii=False)) / CHARACTERS))
    for turn in more:
        said += turn
        yield Case(written(dice, {**body, "messages": said}), headers=headers, inspected=dice.random() < 0.3)


def chat(dice: random.Random, number: int) -> Iterator[Case]:
    """A chat of prose over three to six turns."""
    model, long = MODELS[number % len(MODELS)], dice.choice((40, 80, 160, 600))
    said: Messages = []
    if dice.random() < 0.7:
        role = dice.choice(("system", "system", "developer"))
        said.append({"role": role, "content": "You keep the harbour's books. " + prose(dice, dice.choice((10, 200)))})
    for _ in range(dice.choice((2, 6, 12, 24))):
        said.append({"role": "user", "content": prose(dice, long)})
        said.append({"role": "assistant", "content": prose(dice, long)})
    more: list[Messages] = [[{"role": "user", "content": question(dice)}]]
    for _ in range(dice.randrange(2, 6)):
        reply = {"role": "assistant", "content": prose(dice, long)}
        ask = question(dice) if dice.random() < 0.7 else prose(dice, 2 * long) + "\n\n" + question(dice)
        more.append([reply, {"role": "user", "content": ask}])
    if dice.random() < 0.1:
        said[0]["name"] = "harbour_master"
    yield from turns(dice, model, said, more)


def tool(name: str) -> dict[str, Any]:
    """A tool's definition."""
    what = {"type": "string", "description": "what to look for", "enum": ["a", "b"]} if len(name) % 2 else {}
    schema = {"type": "object", "properties": {"what": what or {"type": "string"}, "limit": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": schema}}


def step(dice: random.Random, number: int, size: int) -> Messages:
    """One step of an agent: up to three calls, and their results."""
    calls, results = [], []
    for place in range(dice.choice((1, 1, 1, 2, 3))):
        name, ident = dice.choice((*RESULTS, "TodoWrite")), f"call_{number}_{place}"
        if name == "TodoWrite":
            todos = [{"content": fact(dice), "status": dice.choice(("pending", "done"))} for _ in range(6)]
            arguments, result = json.dumps({"todos": todos}), "Todos have been modified successfully."
        else:
            arguments = json.dumps({"what": dice.choice(NAMES), "limit": dice.randrange(99)})
            result = RESULTS[name](dice, int(size * dice.choice((0.1, 0.5, 1, 1, 4)))) if dice.random() < 0.95 else ""
        calls.append({"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}})
        content: Any = result if dice.random() < 0.9 else [{"type": "text", "text": result}]
        results.append({"role": "tool", "tool_call_id": ident, "content": content})
    words = dice.choice((None, "", "I look at it.", prose(dice, 40)))
    return [{"role": "assistant", "content": words, "tool_calls": calls}, *results]


def agent(dice: random.Random, number: int) -> Iterator[Case]:
    """An agent's run over four to eight requests."""
    model, size = MODELS[(7 * number) % len(MODELS)], dice.choice((500, 1_500, 3_000))
    said: Messages = [{"role": "system", "content": "You are a careful agent. " + prose(dice, 100)}]
    said.append({"role": "user", "content": f"Find out why the crane controller fails. {fact(dice)}"})
    for at in range(dice.choice((2, 6, 14))):
        said += step(dice, at, size)
    more = [step(dice, 100 + at, size) for at in range(dice.randrange(3, 8))]
    if dice.random() < 0.5:
        ask = {"role": "user", "content": question(dice)}
        more.append([{"role": "assistant", "content": "It is the relay."}, ask])
    yield from turns(dice, model, said, more, tools=[tool(name) for name in (*RESULTS, "TodoWrite")])


def tools(dice: random.Random, number: int) -> Iterator[Case]:
    """A question about one large result, and one more."""
    model, name = MODELS[(3 * number) % len(MODELS)], tuple(RESULTS)[number % len(RESULTS)]
    result = RESULTS[name](dice, dice.choice((4_000, 15_000, 40_000)))
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"limit":200}'}}
    said: Messages = [
        {"role": "user", "content": question(dice)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": result, "name": name},
    ]
    more: list[Messages] = [[], [{"role": "assistant", "content": "42."}, {"role": "user", "content": question(dice)}]]
    extra: dict[str, Any] = {"tools": [tool(name)]} if number % 3 else {}
    if number % 4 == 0:
        schema = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
        extra["response_format"] = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    if number % 5 == 0:
        extra |= {"tool_choice": {"type": "function", "function": {"name": name}}, "parallel_tool_calls": False}
    yield from turns(dice, model, said, more, **extra)


def functions(dice: random.Random, number: int) -> Iterator[Case]:
    """The older call format: functions, and messages of that role."""
    said: Messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": question(dice)}]
    more: list[Messages] = []
    for _ in range(3):
        name = dice.choice(tuple(RESULTS))
        call = {"name": name, "arguments": '{"what": "crane"}'}
        said.append({"role": "assistant", "content": None, "function_call": call})
        said.append({"role": "function", "name": name, "content": RESULTS[name](dice, 6_000)})
        more.append([{"role": "assistant", "content": prose(dice, 60)}, {"role": "user", "content": question(dice)}])
    declared = [tool(name)["function"] for name in RESULTS]
    model = ("gpt-4", "gpt-3.5-turbo-0613", "gpt-4o", "acme/harbour-9b")[number % 4]
    yield from turns(dice, model, said, more, functions=declared, function_call="auto")


def images(dice: random.Random, number: int) -> Iterator[Case]:
    """Images, audio and files between texts."""
    media: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": image(dice.choice((8, 512, 1_300))), "detail": detail}}
        for detail in ("low", "high", "auto")
    ]
    media += [
        {"type": "image_url", "image_url": {"url": "https://example.org/crane.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4AAQSkZJRg=="}},
        {"type": "image_url", "image_url": "https://example.org/bare.png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRiQAAABXQVZF" * 40, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    ]
    said: Messages = []
    more: list[Messages] = []
    for at in range(5):
        parts = [{"type": "text", "text": prose(dice, 60)}, *dice.sample(media, dice.randrange(1, 4))]
        dice.shuffle(parts)
        reply = [{"role": "assistant", "content": prose(dice, 60)}]
        turn = [{"role": "user", "content": parts}]
        said, more = (said + turn + reply, more) if at < 2 else (said, [*more, reply + turn])
    model = ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "claude-3-5-sonnet", "gemini-1.5-pro", "llava:7b", "o1")[number % 7]
    yield from turns(dice, model, said, more)


def sized(dice: random.Random, tokens: int) -> Messages:
    """A chat of about `tokens` tokens."""
    said: Messages = []
    while tokens > 0:
        words = min(300, max(20, tokens // 12))
        said.append({"role": ("user", "assistant")[len(said) % 2], "content": prose(dice, words)})
        tokens -= int(len(said[-1]["content"]) / CHARACTERS) + 12
    if len(said) % 2:
        said.append({"role": "assistant", "content": "Noted."})
    return [*said, {"role": "user", "content": question(dice)}]


def long(dice: random.Random, number: int) -> Iterator[Case]:
    """Requests with one very long part; some cannot be made to fit."""
    cases: tuple[Messages, ...] = (
        [{"role": "user", "content": prose(dice, 9_000) + "\n\n" + question(dice)}],
        [{"role": "system", "content": prose(dice, 9_000)}, {"role": "user", "content": question(dice)}],
        [{"role": "user", "content": prose(dice, 30)} for _ in range(600)],
        [{"role": "user", "content": [{"type": "text", "text": fact(dice)} for _ in range(400)]}],
        [{"role": "user", "content": " ".join(dice.choices(FOREIGN, k=400))}],
        [{"role": "user", "content": "".join(dice.choices("abcdefghij0123456789", k=30_000))}],
    )
    said = cases[number % len(cases)]
    window = dice.choice(("200", "600", "3000", "8000"))
    fields: dict[str, Any] = {"max_tokens": 800} if number % 2 else {}
    if number % 5 == 0:
        fields["tools"] = [tool(f"tool_{n}") for n in range(60)]
    raw = written(dice, {"model": MODELS[number % len(MODELS)], "messages": said, **fields})
    yield Case(raw, headers=(("x-plimsoll-window", window),), inspected=True)
    again = [*said, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Are you sure?"}]
    raw = written(dice, {"model": MODELS[number % len(MODELS)], "messages": again, **fields})
    yield Case(raw, headers=(("x-plimsoll-window", window),))


def plain(dice: random.Random, number: int) -> Iterator[Case]:
    """Short requests, most of which fit: some by the byte bound, some by their count."""
    said = sized(dice, dice.choice((20, 100, 1_000, 4_000)))
    model = MODELS[(13 * number) % len(MODELS)]
    for _ in range(4):
        body = {"model": model, "messages": said, **options(dice)}
        yield Case(written(dice, body), inspected=dice.random() < 0.2, keyless=number % 7 == 0)
        said = [*said, {"role": "assistant", "content": fact(dice)}, {"role": "user", "content": question(dice)}]


def without_caps(asks: Iterator[Case]) -> Iterator[Case]:
    """The same requests without the header x-plimsoll-window."""
    for ask in asks:
        yield replace(ask, headers=tuple(pair for pair in ask.headers if pair[0] != "x-plimsoll-window"))
