"""Bytes prove before anything is counted: no request costs more tokens than a first look says that it may."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.openai_chat import API as CHAT
from proxy.apis.openai_chat import request
from proxy.apis.openai_chat.scan import scan
from proxy.apis.openai_responses.scan import scan as scan_responses
from proxy.fit.plan import start
from proxy.model.limits import Window
from proxy.model.plan import Facts, Mode
from proxy.model.structs import replace
from proxy.request.stages import Planned, Received, Record, Scanned
from proxy.tokens.meter import meter_for
from tests.apis import invented
from tests.laws.dialects import INVENTED, RESPONSES
from tests.laws.meters import ByteMeter
from tests.makers import ladder
from tests.request.planned import services
from tests.tokens.remembering import Remembering

PLANNER = services().gateway.default.planner
EXACT = ("gpt-4o", "gpt-4", "gpt-3.5-turbo-0613", "gpt-4.1-mini", "o1", "o3", "o4-mini", "gpt-5", "gpt-5-mini")
# What costs many tokens for its bytes: single digits, numbers that grow when written again, letters that are escaped.
DENSE = (
    "1,",
    "1e15,",
    "1E5,",
    "[1]",
    '"é",',
    "é",
    "日本",
    "😀 ",
    "\n\n",
    "\x7f",
    '"\\u00e9",',
    "{}",
    "a b ",
    "<|end|>",
    "",
)

texts = st.builds(
    lambda piece, count, framed: "[" + (piece * count).rstrip(",") + "]" if framed else piece * count,
    st.sampled_from(DENSE),
    st.sampled_from([0, 1, 3, 40, 300]),
    st.booleans(),
)


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    match draw(st.integers(0, 4)):
        case 0:
            return [{"role": draw(st.sampled_from(["user", "system", "developer"])), "content": draw(texts)}]
        case 1:
            return [{"role": "user", "name": "n", "content": [{"type": "text", "text": draw(texts)} for _ in range(2)]}]
        case 2:
            return [{"role": "assistant", "content": draw(texts)}]
        case _:
            count = draw(st.integers(1, 3))
            calls = [{"id": f"c{i}", "function": {"name": "f", "arguments": draw(texts)}} for i in range(count)]
            results = [{"role": "tool", "tool_call_id": f"c{i}", "content": draw(texts)} for i in range(count)]
            return [{"role": "assistant", "tool_calls": calls}, *results]


schemas = st.recursive(
    st.sampled_from(
        [{}, {"type": "string"}, {"type": ["null", "integer"], "description": "\n\na"}, {"enum": [1, "b"]}]
    ),
    lambda inner: st.builds(
        lambda kind, one, two: [
            {"type": "object", "properties": {"a": one, "b": two}, "title": "t"},
            {"type": "array", "items": one},
            {"anyOf": [one, two], "description": "d"},
        ][kind],
        st.integers(0, 2),
        inner,
        inner,
    ),
    max_leaves=8,
)


@given(
    told=st.lists(messages(), min_size=1, max_size=5),
    model=st.sampled_from(EXACT),
    schema=st.none() | schemas,
    answer=st.none() | schemas,
    plain=st.booleans(),
)
def test_no_prompt_is_larger_than_its_bytes_prove(
    told: list[list[dict[str, Any]]], model: str, schema: Any, answer: Any, plain: bool
) -> None:
    fields: dict[str, Any] = {"model": model, "messages": [m for one in told for m in one]}
    if schema is not None:
        fields["tools"] = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    if answer is not None:
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": answer}}
    body = json.dumps(fields, ensure_ascii=plain, separators=(",", ":")).encode()
    most = scan(body).most
    sent = request.parse(body)
    counted = start(sent, ladder(), Facts(Window(10**6), meter_for(sent, model, Remembering()))).prompt
    assert most is not None and counted <= most


def escaped(body: bytes) -> bytes:
    """The same JSON in ASCII. Characters outside it stand in strings only."""
    return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in body.decode()).encode()


def as_json(arguments: str) -> str:
    """The arguments as they are where they are JSON, else as a string in an object."""
    try:
        json.loads(arguments)
    except ValueError:
        return json.dumps({"q": arguments}, ensure_ascii=False)
    return arguments


@given(
    told=st.lists(messages(), min_size=1, max_size=5),
    encoding=st.sampled_from(["o200k_base", "cl100k_base"]),
    plain=st.booleans(),
)
def test_no_prompt_of_another_api_is_larger_than_its_bytes_prove(
    told: list[list[dict[str, Any]]], encoding: str, plain: bool
) -> None:
    talk = [{**m, "x-uid": i} for i, m in enumerate(m for one in told for m in one)]
    for m in talk:
        for call in m.get("tool_calls", ()):
            call["function"]["arguments"] = as_json(call["function"]["arguments"])
        m.setdefault("content", None)
    body = INVENTED.body(talk, {}, {"model": "m"}, {})
    body = escaped(body) if plain else body
    most = invented.scan(body).most
    counted = start(invented.parse(body), ladder(), Facts(Window(10**6), ByteMeter(encoding=encoding))).prompt
    assert most is not None and counted <= most


@given(
    told=st.lists(messages(), min_size=1, max_size=5),
    model=st.sampled_from((*EXACT, "gpt-5.2", "gpt-5.4", "gpt-5.6")),
    schema=st.none() | schemas,
    answer=st.none() | schemas,
    plain=st.booleans(),
)
def test_no_input_of_responses_is_larger_than_its_bytes_prove(
    told: list[list[dict[str, Any]]], model: str, schema: Any, answer: Any, plain: bool
) -> None:
    talk = [{"content": None, **m, "x-uid": i} for i, m in enumerate(m for one in told for m in one)]
    fields = json.loads(RESPONSES.body(talk, {}, {"model": model}, {}))
    if schema is not None:
        fields["tools"] = [{"type": "function", "name": "f", "parameters": schema}]
    if answer is not None:
        fields["text"] = {"format": {"type": "json_schema", "name": "a", "schema": answer}}
    body = json.dumps(fields, ensure_ascii=plain, separators=(",", ":")).encode()
    most, sent = scan_responses(body).most, RESPONSES.parse(body)
    counted = start(sent, ladder(), Facts(Window(10**6), meter_for(sent, model, Remembering()))).prompt
    assert most is not None and counted <= most


def test_what_bytes_do_not_prove_is_not_said_to_be_proven() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    body = INVENTED.body([{"role": "user", "content": [part], "x-uid": 0}], {"max_tokens": 9}, {"model": "m"}, {})
    found = invented.scan(body)
    assert (found.model, found.reserve, found.most) == ("m", 9, None)


@given(
    st.lists(messages(), min_size=1, max_size=6), st.sampled_from(("gpt-4o", "gpt-4", "o3", "nobody/knows")), st.data()
)
def test_what_is_planned_at_once_is_what_is_planned_in_all_other_cases(
    turns: list[list[dict[str, Any]]], model: str, data: st.DataObject
) -> None:
    """Most requests are planned without waiting: that way leads to the same stage as the long one, or to none."""
    limit = data.draw(st.sampled_from([{}, {"max_tokens": 100}, {"max_completion_tokens": 4_000, "n": 2}]))
    sent = json.dumps({"model": model, "messages": [m for turn in turns for m in turn], **limit}).encode()
    received = Received(CHAT, data.draw(st.sampled_from(list(Mode))), body=sent)
    found = PLANNER.at_once(received)
    planned = asyncio.run(PLANNER.prepare(received, Record()))
    if isinstance(found, Planned):
        assert found.payload is planned.payload is sent and found.proven and planned.proven
        assert (_plain(found), found.counted) == (_plain(planned), planned.counted)
        assert (found.descent, found.result, found.error) == (planned.descent, planned.result, planned.error)
    elif planned.proven:
        assert planned.scanned is not None and (planned.scanned.scan.seen.keyed or planned.scanned.scan.compacts)


def _plain(planned: Planned) -> Scanned:
    """What was scanned, without the function that makes its digests, which equals none but itself."""
    assert planned.scanned is not None
    return replace(planned.scanned, scan=replace(planned.scanned.scan, marks=None))
