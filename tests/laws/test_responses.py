"""Whatever a conversation of Responses consists of: what is sent is valid for a strict upstream, and it fits."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.apis.openai_responses.request import parse, render
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.model.structs import replace
from proxy.simulator.check import validate
from proxy.simulator.openai_responses.counting import count_prompt
from proxy.simulator.openai_responses.validation import checks
from proxy.tokens.meter import meter_for
from tests.makers import words
from tests.tokens.remembering import Remembering

LADDERS = load_rules(None).ladders
MODELS = ("gpt-4o", "gpt-5", "gpt-5.2", "gpt-5.6")
SIZES = (0, 5, 40, 150, 400)
# Calls of hosted tools, which contain their results and cannot be sent without an id.
HOSTED: tuple[dict[str, Any], ...] = (
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "draught"}},
    {"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}", "output": words(60, "m")},
    {"type": "code_interpreter_call", "status": "completed", "container_id": "c", "code": words(9, "p"), "outputs": []},
    {"type": "file_search_call", "status": "completed", "queries": ["draught"], "results": None},
)
BLOB = "gAAAA" + "x" * 1500


def user(place: int, size: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_text", "text": words(SIZES[size], f"u{place}x") or "?"}]}]


def developer(place: int, size: int) -> list[dict[str, Any]]:
    return [{"role": "developer", "content": words(SIZES[size % 3], f"d{place}x")}]


def turn(place: int, size: int, shape: int, stored: bool) -> list[dict[str, Any]]:
    """What one response consists of, and the answers to its calls."""
    stem = f"t{place}r" if shape % 2 else f"t{place}"
    found: list[dict[str, Any]] = []
    if shape % 2:
        found.append({"type": "reasoning", "id": f"rs_{stem}_0", "summary": [], "encrypted_content": BLOB})
    if shape % 3 != 1:
        text = [{"type": "output_text", "text": words(SIZES[size], f"a{place}x") or "ok", "annotations": []}]
        found.append({"type": "message", "id": f"msg_{stem}_1", "role": "assistant", "content": text})
    if shape % 4 > 1:
        found.append({**HOSTED[place % len(HOSTED)], "id": f"hosted_{stem}_7"})
    calls = [(f"c{place}_{i}", f"fc_{stem}_{i + 2}") for i in range(1 + shape % 3)] if shape % 3 else []
    outputs = [_output(ident, size + i) for i, (ident, _) in enumerate(calls)]
    made = [_call(ident, item) for ident, item in calls]
    interleaved = [item for pair in zip(made, outputs, strict=True) for item in pair]
    found += interleaved if shape % 5 == 4 else [*made, *outputs]
    return found if stored else [_inline(item) for item in found]


def _inline(item: dict[str, Any]) -> dict[str, Any]:
    """The item without its id, unless its type requires one."""
    return (
        item if item.get("id", "").startswith("hosted") else {key: value for key, value in item.items() if key != "id"}
    )


def _call(ident: str, item: str) -> dict[str, Any]:
    fixed = {"type": "function_call", "id": item, "status": "completed"}
    return {**fixed, "call_id": ident, "name": "search", "arguments": json.dumps({"q": words(4, ident)})}


def _output(ident: str, size: int) -> dict[str, Any]:
    rows = [{"id": f"{ident}{i}", "text": words(5, f"{ident}r{i}x")} for i in range(SIZES[size % 5] // 4)]
    return {"type": "function_call_output", "call_id": ident, "output": json.dumps(rows, indent=1)}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    stored = draw(st.booleans())
    items: list[dict[str, Any]] = []
    for place, code in enumerate(draw(st.lists(st.integers(0, 8 * 5 * 12 - 1), min_size=3, max_size=14))):
        kind, size, shape = code // 60, code // 12 % 5, code % 12
        if kind < 2:
            items += user(place, size)
        elif kind == 2 and shape == 0:
            items += developer(place, size)
        else:
            items += turn(place, size, shape, stored)
    items += user(99, draw(st.integers(0, 2))) if draw(st.booleans()) else []
    told = {"instructions": words(20, "i")} if draw(st.booleans()) else {}
    return {"model": draw(st.sampled_from(MODELS)), **told, "store": stored, "input": items, "max_output_tokens": 50}


# An agent's calls after one question: a cut drops the reasoning, and with it the ids of the calls that stay.
AFTER_REASONING = {
    **{"model": "gpt-4o", "store": True, "max_output_tokens": 50},
    "input": [*user(0, 0), *turn(1, 3, 3, stored=True), *turn(2, 3, 4, stored=True)],
}
# The same with calls of hosted tools in responses without reasoning: they keep their ids, or go.
AFTER_HOSTED = {
    **{"model": "gpt-4o", "store": True, "max_output_tokens": 50},
    "input": [
        *user(0, 0),
        *(item for place in range(1, 6) for item in turn(place, 3, 7 if place == 1 else 10, stored=True)),
        *user(9, 0),
    ],
}


@example(asked=AFTER_HOSTED, ladder="agent", share=0.3)
@example(asked=AFTER_REASONING, ladder="agent", share=0.125)
@given(
    asked=requests(),
    ladder=st.sampled_from(sorted(LADDERS)),
    share=st.floats(0.1, 1.1),
)
def test_what_is_sent_is_valid_and_fits(asked: dict[str, Any], ladder: str, share: float) -> None:
    if validate(asked, checks()) is not None:
        return  # such as reasoning at the end: it was not valid to begin with
    prompt = parse(json.dumps(asked).encode())
    window = max(300, int(share * count_prompt(asked)))
    facts = Facts(Window(window), meter_for(prompt, prompt.model, Remembering()))
    made = plan(prompt, replace(LADDERS[ladder], default_reserve=0), facts)
    sent = json.loads(render(prompt, made)) if made.changed else asked
    error = validate(sent, checks())
    assert error is None, error.message
    counted = count_prompt(sent)
    assert counted == made.draft.prompt
    assert not made.fits or counted + made.draft.least_reply <= window
