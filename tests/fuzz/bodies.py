"""Bodies by chance: valid requests, and what becomes of them where parts are swapped, nested, doubled or taken away."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.makers import tool_round

WORDS = "tide crane cargo pilot ballast harbour ledger rope Ägäis 漢字 🚢 {} [] <|endoftext|> \n \t".split(" ")
DEEP = 3_000
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}


def text(chance: random.Random, most: int = 120) -> str:
    """Some words."""
    return " ".join(chance.choices(WORDS, k=chance.randrange(1, most)))


def content(chance: random.Random) -> Any:
    """A user's content: a text, or parts."""
    if chance.random() < 0.7:
        return text(chance)
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    parts = [{"type": "text", "text": text(chance)} for _ in range(chance.randrange(1, 4))]
    return [*parts, image] if chance.random() < 0.3 else parts


def messages(chance: random.Random) -> list[dict[str, Any]]:
    """A conversation that a strict upstream takes."""
    said: list[dict[str, Any]] = []
    if chance.random() < 0.7:
        said.append({"role": chance.choice(("system", "developer")), "content": text(chance)})
    for turn in range(chance.choice((0, 1, 3, 10, 40))):
        said.append({"role": "user", "content": content(chance)})
        for call in range(chance.choice((0, 0, 1, 3))):
            arguments = json.dumps({"q": text(chance, 10)})
            said += tool_round(f"call_{turn}_{call}", text(chance, 400), arguments=arguments)
        if chance.random() < 0.9:
            said.append({"role": "assistant", "content": text(chance)})
    return [*said, {"role": "user", "content": content(chance)}]


def chat(seed: int) -> dict[str, Any]:
    """A valid chat; the same for the same seed."""
    chance = random.Random(seed)
    body: dict[str, Any] = {"model": "gpt-4", "messages": messages(chance)}
    for name, value in (
        ("max_tokens", chance.choice((1, 50, 500, 4_000))),
        ("n", chance.choice((1, 1, 2))),
        ("tools", [TOOL] * chance.choice((1, 1, 8))),
        ("temperature", 0.5),
        ("stream", chance.choice((True, False))),
        ("metadata", {"a": "b"}),
    ):
        if chance.random() < 0.3:
            body[name] = value
    return dict(sorted(body.items(), key=lambda _: chance.random()))


class Raw(str):
    """JSON as it is written."""


def nested(depth: int, inner: Any) -> Raw:
    """Lists in lists."""
    return Raw("[" * depth + json.dumps(inner) + "]" * depth)


JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**53 + 1,
    2**70,
    "",
    "x",
    [],
    {},
    [None],
    [[]],
    {"type": "text"},
    {"type": "text", "text": 5},
    {"type": "hologram"},
    {"role": "user"},
    "a" * 5_000,
    "\n" * 3_000,
    "\x00",
    Raw("NaN"),
    Raw("1e999"),
    Raw("-0.0"),
    Raw("9" * 5_000),
    Raw('"\\ud800"'),
    Raw('"\\udc00\\ud800"'),
    Raw('"\\u0041\\/"'),
    Raw('{"a":1,"a":2}'),
    Raw("tru"),
    nested(DEEP, 1),
    nested(DEEP, {"role": "user", "content": "x"}),
)
KEYS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "type",
    "text",
    "function",
    "arguments",
    "plimsoll",
    "x",
    "id",
    "call_id",
    "output",
    "summary",
    "encrypted_content",
    "tool_use_id",
    "input",
    "source",
    "cache_control",
)
FIELDS = (
    "max_tokens",
    "max_completion_tokens",
    "n",
    "stream",
    "tools",
    "model",
    "messages",
    "functions",
    "stream_options",
    "input",
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "reasoning",
    "truncation",
    "context_management",
    "store",
    "text",
    "system",
    "thinking",
    "container",
    "mcp_servers",
)


def junk(which: int) -> Any:
    """Something that hardly belongs there."""
    return copy.deepcopy(JUNK[which % len(JUNK)])


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Each place in a tree, as what holds it and its key."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            waiting.append(node[key])
    return found


def _replace(body: dict[str, Any], at: int, what: int) -> None:
    holder, key = _place(body, at)
    holder[key] = junk(what)


def _remove(body: dict[str, Any], at: int, what: int) -> None:
    holder, key = _place(body, at)
    del holder[key]


def _add(body: dict[str, Any], at: int, what: int) -> None:
    objects = [body, *(holder[key] for holder, key in places(body) if isinstance(holder[key], dict))]
    objects[at % len(objects)][KEYS[what % len(KEYS)]] = junk(at)


def _set(body: dict[str, Any], at: int, what: int) -> None:
    body[FIELDS[at % len(FIELDS)]] = junk(what)


def _swap(body: dict[str, Any], at: int, what: int) -> None:
    lists = [holder[key] for holder, key in places(body) if isinstance(holder[key], list) and len(holder[key]) > 1]
    if lists:
        chosen = lists[at % len(lists)]
        one, two = what % len(chosen), at % len(chosen)
        chosen[one], chosen[two] = chosen[two], chosen[one]


def _double(body: dict[str, Any], at: int, what: int) -> None:
    lists = [holder[key] for holder, key in places(body) if isinstance(holder[key], list) and holder[key]]
    if lists:
        chosen = lists[at % len(lists)]
        chosen.insert(at % (len(chosen) + 1), copy.deepcopy(chosen[what % len(chosen)]))


def _rename(body: dict[str, Any], at: int, what: int) -> None:
    told = body.get("messages", body.get("input"))
    roles = [m for m in told if isinstance(m, dict)] if isinstance(told, list) else []
    if roles:
        names = ("system", "user", "assistant", "tool", "function", "developer", "captain")
        roles[at % len(roles)]["role"] = names[what % len(names)]


def _place(body: dict[str, Any], at: int) -> tuple[Any, Any]:
    found = places(body)
    return found[at % len(found)] if found else (body, "model")


CHANGES: tuple[Callable[[dict[str, Any], int, int], None], ...] = (
    _replace,
    _remove,
    _add,
    _set,
    _swap,
    _double,
    _rename,
)


def written(tree: Any) -> bytes:
    """A tree as JSON; what is `Raw` as it is."""
    raws: list[str] = []

    def marked(node: Any) -> Any:
        if isinstance(node, Raw):
            raws.append(str(node))
            return f"\ue000{len(raws) - 1}\ue001"
        if isinstance(node, dict):
            return {key: marked(value) for key, value in node.items()}
        return [marked(value) for value in node] if isinstance(node, list) else node

    found = json.dumps(marked(tree), ensure_ascii=False)
    for place, raw in enumerate(raws):
        found = found.replace(f'"\ue000{place}\ue001"', raw)
    return found.encode("utf-8", "surrogatepass")


def mutated(valid: Mapping[str, Any], changes: list[tuple[int, int, int]], cuts: list[tuple[int, int]]) -> bytes:
    """A request after some changes of its tree, and of its bytes: at a place so many are lost, or (negative)
    doubled."""
    body = json.loads(json.dumps(valid))
    for kind, at, what in changes:
        try:
            CHANGES[kind % len(CHANGES)](body, at, what)
        except KeyError:
            pass  # what would be removed is not there any more
    raw = written(body)
    for at, count in cuts:
        at %= len(raw) + 1
        raw = raw[:at] + (raw[at + count :] if count > 0 else raw[at + count if at + count > 0 else 0 :])
    return raw


numbers = st.integers(0, 2**16)
seeds = st.integers(0, 2**32)
mutations = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=4)
scars = st.lists(st.tuples(numbers, st.integers(-3, 3)), max_size=1)
