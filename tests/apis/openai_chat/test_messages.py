"""The parts of a chat message, and other texts in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_chat import messages
from proxy.model.conversation import Kind, Message, Part, PartKind
from proxy.model.structs import replace
from tests.makers import assistant, fields, message, tool_round, user

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}


def texts(found: Message) -> list[tuple[PartKind, str]]:
    return [(part.kind, part.text) for part in found.parts()]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a", [(PartKind.TEXT, "a")]),
        (None, []),
        (5, []),
        ([], []),
        ([{"text": 5}, "x"], [(PartKind.OPAQUE, "")]),
        (
            [{"type": "text", "text": "a"}, IMAGE, {"text": "b"}],
            [*[(PartKind.TEXT, "a"), (PartKind.MEDIA, "")], (PartKind.TEXT, "b")],
        ),
        ([{"type": "thinking", "thinking": []}], [(PartKind.REASONING, "")]),
        ([{"type": "refusal", "refusal": "no"}], [(PartKind.OPAQUE, "")]),
    ],
)
def test_the_parts_of_any_content(content: Any, found: list[tuple[PartKind, str]]) -> None:
    told = message({"role": "user", "content": content})
    assert texts(told) == found
    assert told.text() == told.own_text() == "".join(text for kind, text in found)


def test_a_text_that_is_the_content_is_whole() -> None:
    assert [part.whole for part in message(user("a")).parts()] == [True]
    assert [part.whole for part in message({"role": "user", "content": [{"type": "text", "text": "a"}]}).parts()] == [
        False
    ]


def test_a_part_that_is_no_plain_text_has_the_name_of_its_type() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, IMAGE, {"type": ["odd"]}]
    assert [p.name for p in message({"role": "user", "content": content}).parts()] == [
        "",
        "input_text",
        "image_url",
        "['odd']",
    ]


def test_a_result_is_of_its_call() -> None:
    call, result = tool_round("c", "found", "search", '{"q":1}')
    assert message(call).parts() == (Part(PartKind.CALL, '{"q":1}', "c", "search", ("tool_calls", 0)),)
    (part,) = message(result).parts()
    assert (part.kind, part.text, part.call) == (PartKind.RESULT, "found", "c")
    assert message(result).text() == "found" and message(result).own_text() == ""


def test_what_a_custom_tool_and_an_old_function_are_called_with_is_not_edited() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    both = {**assistant("a"), "tool_calls": [custom], "function_call": {"name": "g", "arguments": "{}"}}
    calls = [part for part in message(both).parts() if part.kind is PartKind.CALL]
    assert [(p.name, p.text, p.call, p.editable) for p in calls] == [("f", "x", "c", False), ("g", "{}", "", False)]


@pytest.mark.parametrize("calls", [7, [None, "x", {}, {"function": 7}, {"id": "a"}], {}])
def test_calls_of_another_shape_are_no_parts(calls: Any) -> None:
    odd = replace(message(assistant("a")), raw=json.dumps({**assistant("a"), "tool_calls": calls}).encode())
    assert texts(odd) == [(PartKind.TEXT, "a")]


def test_arguments_that_are_no_text_are_shown_as_one() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": said}} for said in ({"q": 1}, None)]
    assert [p.text for p in message({**assistant("a"), "tool_calls": calls}).parts()] == ["a", "{'q': 1}", ""]


@pytest.mark.parametrize("raw", [b'{"role":"user","content":"x \xff"}', b'{"role":"user","content":"x","n":1e999}'])
def test_what_cannot_be_decoded_is_one_opaque_part(raw: bytes) -> None:
    (part,) = message(raw).parts()
    assert part.kind is PartKind.OPAQUE and "x" in part.text and message(raw).text() == ""


def test_who_speaks() -> None:
    roles = ["system", "developer", "user", "assistant", "tool", "function", "strange"]
    kinds = [message({"role": role, "content": "x"}).kind for role in roles]
    assert kinds == [*[Kind.INSTRUCTION] * 2, Kind.USER, Kind.ASSISTANT, *[Kind.RESULT] * 2, Kind.OTHER]


def test_an_edit_leaves_every_other_byte() -> None:
    told = message(b'{ "a" : 1.50, "content":"x", "role":"user","z":[ 1 ]}', 4, tokens=9)
    now = told.edit([(told.parts()[0], "\u00e9")], "why")
    assert now.raw == '{"a":1.50,"content":"\u00e9","role":"user","z":[ 1 ]}'.encode()
    assert (now.index, now.tokens, now.why, now.role) == (4, 9, "why", "user")
    assert told.edit([(told.parts()[0], "x")], "why") is told


def test_texts_of_a_list_and_arguments_are_edited_where_they_are() -> None:
    call, _ = tool_round("c", "", arguments="{}")
    call["tool_calls"] = [{"id": "b", "custom": {"name": "f", "input": "x"}}, {**call["tool_calls"][0], "x-own": 1}]
    call["content"] = [IMAGE, {"type": "text", "text": "a", "cache": 1}, "odd"]
    told = message(call)
    edits = [(p, p.text + "!") for p in told.parts() if p.editable]
    after = fields(told.edit(edits, "why"))
    assert after["content"] == [IMAGE, {"type": "text", "text": "a!", "cache": 1}, "odd"]
    assert after["tool_calls"][0] == call["tool_calls"][0]
    assert after["tool_calls"][1]["function"]["arguments"] == "{}!" and after["tool_calls"][1]["x-own"] == 1


def test_a_result_is_replaced_whole() -> None:
    result = {**tool_round("c", "")[1], "content": [IMAGE, {"type": "text", "text": "a"}], "x-own": 1}
    after = json.loads(messages.with_results(message(result), ["c"], "gone"))
    assert after == {**result, "content": "gone"}


def test_messages_are_joined_as_texts_or_as_parts() -> None:
    a, b, empty, none = (message(user(text)) for text in ("a", "b", "", "x"))
    none = replace(none, raw=b'{"role":"user","content":null}')
    listed = message({"role": "user", "content": [IMAGE]})
    assert json.loads(messages.join(b, (a, empty, b)) or b"") == user("a\n\nb")
    joined = json.loads(messages.join(listed, (a, empty, listed)) or b"")
    assert joined["content"] == [{"type": "text", "text": "a"}, IMAGE]
    assert messages.join(a, (a, none)) is None
    assert messages.join(a, (a, replace(none, raw=b"\xff"))) is None


def test_what_is_written_is_a_user_message() -> None:
    written = message(messages.write("hello"))
    assert written.kind is Kind.USER and written.text() == "hello"


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_details"])
def test_reasoning_is_taken_out_of_whichever_field_has_it(key: str) -> None:
    told = message({"role": "assistant", "content": "a", key: [{"text": "t"}], "x": 1.50})
    assert messages.without_reasoning(told) == b'{"role":"assistant","content":"a","x":1.5}'
    assert messages.without_reasoning(message({"role": "assistant", "content": None, key: "t"})) == b""
    called = messages.without_reasoning(message({**tool_round("c", "r")[0], key: "t"}))
    assert json.loads(called or b"") == tool_round("c", "r")[0]


def test_thinking_among_the_parts_of_a_content_is_taken_out() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}
    told = message({"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]})
    left = json.loads(messages.without_reasoning(told) or b"")
    assert left == {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    assert messages.without_reasoning(message({"role": "assistant", "content": [thought]})) == b""


@pytest.mark.parametrize("told", [assistant("a"), assistant("reasoning"), {**assistant("a"), "reasoning": None}])
def test_a_message_without_reasoning_is_left_alone(told: dict[str, Any]) -> None:
    assert messages.without_reasoning(message(told)) is None
