"""Whatever a conversation of the Messages API consists of: what is sent is valid for a strict upstream, and it fits."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.anthropic_messages.request import parse, render
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.model.structs import replace
from proxy.simulator.anthropic_messages.counting import count_prompt
from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.anthropic_messages.thinking import sign
from proxy.simulator.anthropic_messages.validation import validate
from proxy.tokens.meter import meter_for
from tests.makers import words
from tests.tokens.remembering import Remembering

LADDERS = load_rules(None).ladders
BINDING = "claude-fable-5-1"
MODELS = ("claude-opus-4-8", BINDING, "claude-sim")
SIZES = (1, 5, 40, 150, 400)
MARK = {"cache_control": {"type": "ephemeral"}}
# 64 x 64 pixels: an image whose size is not shown cuts nothing by itself.
PNG = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4C"},
}
TOOLS = [{"name": "search", "description": "Searches.", "input_schema": {"type": "object"}}]
THINKING = {"claude-sim": {"type": "enabled", "budget_tokens": 1024}}  # newer models take "adaptive" only
Block = dict[str, Any]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def user(place: int, size: int, shape: int) -> dict[str, Any]:
    """A question: a text, blocks, or with an image or a document."""
    said = words(SIZES[size], f"u{place}x")
    documents: dict[int, list[Block]] = {
        3: [PNG],
        4: [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": words(60, f"d{place}x")},
            }
        ],
    }
    return {"role": "user", "content": said if shape % 3 == 0 else [*documents.get(shape % 6, []), text(said)]}


def answer(place: int, size: int, shape: int) -> list[Block]:
    """The blocks of an assistant's message: text, a server's tool, calls."""
    found = [text(words(SIZES[size], f"a{place}x"))] if shape % 4 != 2 else []
    if shape % 5 == 3:
        use = {"type": "server_tool_use", "id": f"srv_{place}", "name": "web_search", "input": {"query": "q"}}
        found += [use, {"type": "web_search_tool_result", "tool_use_id": f"srv_{place}", "content": []}]
    calls = 1 + shape % 3 if shape % 4 > 1 else 0
    for i in range(calls):
        arguments = {"q": words(4 + SIZES[size % 3], f"c{place}x")}
        found.append({"type": "tool_use", "id": f"toolu_{place}_{i}", "name": "search", "input": arguments})
    return found or [text("ok")]


def results(blocks: list[Block], size: int, shape: int) -> list[Block]:
    """The results of an assistant's calls, and perhaps what the user says behind them."""
    found: list[Block] = []
    for i, block in enumerate(b for b in blocks if b["type"] == "tool_use"):
        said = words(SIZES[(size + i) % 5], f"{block['id']}x")
        rows = json.dumps([{"id": n, "text": words(4, f"r{n}x")} for n in range(SIZES[(size + i) % 5] // 4)], indent=1)
        content: Any = (said, rows, [text(said), PNG], [text(rows)])[(shape + i) % 4]
        found.append({"type": "tool_result", "tool_use_id": block["id"], "content": content})
    return [*found, *([text(words(6, "more"))] if found and shape % 7 == 5 else [])]


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    model, thinks = draw(st.sampled_from(MODELS)), draw(st.booleans())
    body: dict[str, Any] = {"model": model, "max_tokens": 2000, "tools": TOOLS}
    if draw(st.booleans()):
        body["system"] = words(20, "s")
    if thinks:
        body["thinking"] = THINKING.get(model, {"type": "adaptive"})
    told: list[dict[str, Any]] = []
    for place, code in enumerate(draw(st.lists(st.integers(0, 2 * 5 * 84 - 1), min_size=2, max_size=9))):
        extra, size, shape = code // 420, code // 84 % 5, code % 84
        told.append(user(place, size, shape))
        for i in range(1 + shape % 3):
            if extra and shape % 2 and i == 0:
                told.append({"role": "system", "content": words(SIZES[size % 3], f"m{place}x")})
            blocks = answer(10 * place + i, size, shape // 3 + i)
            if thinks:
                signature = sign({**body, "messages": told}, len(told), f"t{place}")
                blocks.insert(0, {"type": "thinking", "thinking": f"t{place}", "signature": signature})
            told.append({"role": "assistant", "content": blocks})
            behind = results(blocks, size, shape)
            if not behind:
                break
            told.append({"role": "user", "content": behind})
    if told[-1]["role"] == "assistant":
        told.append(user(99, draw(st.integers(0, 2)), 0))
    for place in draw(st.sets(st.integers(0, len(told) - 1), max_size=4)):
        content = told[place]["content"]
        if isinstance(content, list) and content[-1]["type"] not in ("thinking",):
            told[place] = {**told[place], "content": [*content[:-1], {**content[-1], **MARK}]}
    return {**body, "messages": told}


@given(asked=requests(), ladder=st.sampled_from(sorted(LADDERS)), share=st.floats(0.1, 1.1))
def test_what_is_sent_is_valid_and_fits(asked: dict[str, Any], ladder: str, share: float) -> None:
    assert validate(Request(asked)) is None
    raw = json.dumps(asked).encode()
    prompt = parse(raw)
    window = Window(max(300, int(share * count_prompt(raw))), separate=True, binds=asked["model"] == BINDING)
    facts = Facts(window, meter_for(prompt, prompt.model, Remembering()))
    made = plan(prompt, replace(LADDERS[ladder], default_reserve=0), facts)
    body = render(prompt, made) if made.changed else raw
    error = validate(Request(json.loads(body)))
    assert error is None, error.message
    counted = count_prompt(body)
    assert counted == made.draft.prompt
    assert not made.fits or counted <= window.tokens
