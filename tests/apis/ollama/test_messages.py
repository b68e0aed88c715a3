"""The parts of a message of Ollama's API, and other texts in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.ollama import messages
from proxy.apis.ollama.request import parse
from proxy.model.conversation import Kind, Message, PartKind

CALLS: list[dict[str, Any]] = [
    {"function": {"name": "f", "arguments": {"n": 1}}},
    {"function": {"name": "g", "arguments": {}}, "x": 1.50},
]


def message(**fields: Any) -> Message:
    return parse(json.dumps({"model": "m", "messages": [{"role": "user", **fields}]}).encode()).messages[0]


def test_the_parts_of_a_message() -> None:
    told = message(role="assistant", content="a", thinking="t", images=["AA", "BB"], tool_calls=CALLS)
    assert [(p.kind, p.text, p.editable) for p in told.parts()] == [
        (PartKind.REASONING, "", False),
        (PartKind.TEXT, "a", True),
        (PartKind.MEDIA, "", False),
        (PartKind.MEDIA, "", False),
        (PartKind.CALL, '{"n":1}', True),
        (PartKind.CALL, "{}", True),
    ]
    assert [(p.call, p.name) for p in told.parts()[-2:]] == [("0.0", "f"), ("0.1", "g")]


def test_an_only_text_is_whole_and_a_result_is_a_result() -> None:
    assert [(p.text, p.whole) for p in message(content="a").parts()] == [("a", True)]
    assert not message(content="a", images=["AA"]).parts()[0].whole
    (found,) = message(role="tool", content="a").parts()
    assert found.kind is PartKind.RESULT and message(content=None).parts() == ()
    assert [p.kind for p in message(role="assistant", content="", tool_calls=CALLS[:1]).parts()] == [PartKind.CALL]


@pytest.mark.parametrize("raw", [b'{"role":"user","content":"x \xff"}', b'{"role":"user","content":"x","n":1e999}'])
def test_what_cannot_be_decoded_is_one_opaque_part_and_is_not_joined(raw: bytes) -> None:
    broken = Message(raw, "user", Kind.USER, messages)
    (part,) = broken.parts()
    assert part.kind is PartKind.OPAQUE and "x" in part.text and messages.join(broken, [broken]) is None


def test_an_edit_leaves_every_other_byte() -> None:
    raw = b'{ "a" : 1.50, "content": "x","images":[ "AA" ],"role":"user"}'
    told = Message(raw, "user", Kind.USER, messages, 4)
    assert told.edit([(told.parts()[0], "y")], "why").raw == b'{"a":1.50,"content":"y","images":[ "AA" ],"role":"user"}'


def test_arguments_are_edited_where_they_are() -> None:
    told = message(role="assistant", content="", tool_calls=CALLS)
    now = told.edit([(told.parts()[1], '{"k":2}')], "why")
    assert json.loads(now.raw)["tool_calls"] == [
        CALLS[0],
        {**CALLS[1], "function": {"name": "g", "arguments": {"k": 2}}},
    ]
    assert b'"x":1.5' in now.raw


def test_a_result_is_replaced_with_its_images() -> None:
    told = message(role="tool", content="long", tool_name="f", images=["AA"])
    assert json.loads(messages.with_results(told, [""], "gone")) == {
        "role": "tool",
        "content": "gone",
        "tool_name": "f",
    }


def test_messages_are_joined_with_their_images() -> None:
    a, b, c = message(content="a"), message(content="", images=["AA"]), message(content="c", images=["BB"])
    joined = json.loads(messages.join(a, [a, b, c]) or b"")
    assert joined == {"role": "user", "content": "a\n\nc", "images": ["AA", "BB"]}
    assert "images" not in json.loads(messages.join(a, [a, a]) or b"")
    assert messages.join(a, [a, message()]) is None


def test_what_we_write_is_the_users() -> None:
    assert json.loads(messages.write("x")) == {"role": "user", "content": "x"}


def test_arguments_of_calls_that_have_no_ids_are_read_too() -> None:
    raw = json.dumps({"role": "assistant", "content": "", "tool_calls": [*CALLS, 1]}).encode()
    found = Message(raw, "assistant", Kind.ASSISTANT, messages).parts()
    assert [(p.call, p.name) for p in found] == [("", "f"), ("", "g"), ("", "")]


def test_thinking_is_taken_out_of_a_message() -> None:
    told = message(role="assistant", thinking="t", content="a")
    assert json.loads(messages.without_reasoning(told) or b"") == {"role": "assistant", "content": "a"}
    assert messages.without_reasoning(message(role="assistant", thinking="t", content="")) == b""
    assert messages.without_reasoning(message(role="assistant", thinking="", content="thinking")) is None
    assert messages.without_reasoning(message(role="assistant", content="a")) is None
