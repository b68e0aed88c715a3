"""The parts of a message of the Messages API, and other texts in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import messages
from proxy.apis.anthropic_messages.request import parse
from proxy.fit.blocks import runs
from proxy.model.conversation import Kind, Message, PartKind

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}


def conversation(*told: dict[str, Any], **fields: Any) -> tuple[Message, ...]:
    return parse(json.dumps({"model": "m", **fields, "messages": told}).encode()).messages


def message(content: Any, role: str = "user") -> Message:
    return conversation({"role": role, "content": content})[0]


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(ident: str = "toolu_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": arguments}


def result(content: Any, ident: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content}


def document(source: dict[str, Any]) -> dict[str, Any]:
    return {"type": "document", "source": source}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a", [(PartKind.TEXT, "a")]),
        (None, []),
        ([text("a"), IMAGE, text("b")], [(PartKind.TEXT, "a"), (PartKind.MEDIA, ""), (PartKind.TEXT, "b")]),
        ([PDF], [(PartKind.MEDIA, "")]),
        ([document({"type": "text", "data": "a"})], [(PartKind.TEXT, "a")]),
        ([document({"type": "content", "content": "a"})], [(PartKind.TEXT, "a")]),
        ([document({"type": "content", "content": [text("a"), IMAGE]})], [(PartKind.TEXT, "a"), (PartKind.MEDIA, "")]),
        ([{"type": "search_result", "content": [text("a")]}], [(PartKind.TEXT, "a")]),
        ([{"type": "thinking", "thinking": "a", "signature": "s"}], [(PartKind.REASONING, "")]),
        ([{"type": "redacted_thinking", "data": "a"}], [(PartKind.REASONING, "")]),
        ([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}], [(PartKind.OPAQUE, "")]),
        ([{"type": "compaction", "content": "a"}], [(PartKind.OPAQUE, "")]),
        ([use(q=1)], [(PartKind.CALL, '{"q":1}')]),
        ([result("a")], [(PartKind.RESULT, "a")]),
        (
            [result([text("a"), IMAGE, {"type": "search_result", "content": [text("b")]}])],
            [(PartKind.RESULT, "a"), (PartKind.MEDIA, ""), (PartKind.RESULT, "b")],
        ),
    ],
)
def test_the_parts_of_any_content(content: Any, found: list[tuple[PartKind, str]]) -> None:
    assert [(part.kind, part.text) for part in message(content).parts()] == found


def test_a_part_names_its_call_and_only_texts_are_edited() -> None:
    (call,) = message([use(q=1)], "assistant").parts()
    (found,) = message([result("a")]).parts()
    (image,) = message([IMAGE]).parts()
    assert (call.call, call.name, found.call, found.kind) == ("toolu_1", "f", "toolu_1", PartKind.RESULT)
    assert call.editable and found.editable and not image.editable and image.name == "image"


def test_the_only_text_of_a_message_is_whole() -> None:
    for content in ("a", [text("a")], [result("a")], [result([text("a")])]):
        assert [part.whole for part in message(content).parts()] == [True]
    assert [part.whole for part in message([text("a"), text("b")]).parts()] == [False, False]
    assert not message([use()], "assistant").parts()[0].whole


def test_the_system_prompt_is_a_text_or_blocks() -> None:
    for system in ("a", [text("a")]):
        told = conversation({"role": "user", "content": "x"}, system=system)[0]
        assert told.text() == "a" and told.kind is Kind.INSTRUCTION
        (part,) = told.parts()
        assert json.loads(told.edit([(part, "b")], "why").raw) == ("b" if system == "a" else [text("b")])


@pytest.mark.parametrize("raw", [b'{"role":"user","content":"x \xff"}', b'{"role":"user","content":"x","n":1e999}'])
def test_what_cannot_be_decoded_is_one_opaque_part_and_is_not_joined(raw: bytes) -> None:
    broken = Message(raw, "user", Kind.USER, messages)
    (part,) = broken.parts()
    assert part.kind is PartKind.OPAQUE and "x" in part.text and messages.join(broken, [broken]) is None


def test_blocks_that_nest_too_deep_are_not_read() -> None:
    content: Any = [text("a")]
    for _ in range(400):
        content = [result(content)]
    assert message([text("b"), *content]).text() == "b"


def test_many_system_messages_are_read_in_no_time() -> None:
    told = conversation(ASK, *[SYSTEM] * 20_000, ASK, system="x")
    assert len(messages.misplaced(told)) == 20_000 and [len(run) for run in runs(told)] == [1, 20_001, 1]


def test_an_edit_leaves_every_other_byte() -> None:
    raw = (
        b'{ "a" : 1.50, "content":[ {"type":"text" , "text":"x", "cache_control":{ "type":"ephemeral" }},{"n":[ 1 ]}],'
        b'"role":"user"}'
    )
    told = Message(raw, "user", Kind.USER, messages, 4)
    now = told.edit([(told.parts()[0], "\u00e9")], "why")
    assert (
        now.raw
        == (
            '{"a":1.50,"content":[{"type":"text","text":"\u00e9","cache_control":{ "type":"ephemeral" }},{"n":[ 1 ]}],'
            '"role":"user"}'
        ).encode()
    )


def test_texts_are_edited_where_they_are() -> None:
    content = [
        use(q="long"),
        result([text("a"), IMAGE]),
        document({"type": "text", "media_type": "text/plain", "data": "b"}),
        {"type": "search_result", "title": "t", "content": [text("c")]},
    ]
    told = message(content)
    edits = [(p, '{"q":1}' if p.kind is PartKind.CALL else p.text + "!") for p in told.parts() if p.editable]
    now = json.loads(told.edit(edits, "why").raw)["content"]
    assert now[0]["input"] == {"q": 1} and now[1]["content"] == [text("a!"), IMAGE]
    assert now[2]["source"] == {"type": "text", "media_type": "text/plain", "data": "b!"}
    assert now[3] == {"type": "search_result", "title": "t", "content": [text("c!")]}


def test_one_result_is_replaced_whole() -> None:
    told = message([{**result([IMAGE], "a"), "is_error": True}, result("x", "b"), text("y")])
    now = json.loads(messages.with_results(told, ["a"], "gone"))["content"]
    assert now == [{**result("gone", "a"), "is_error": True}, result("x", "b"), text("y")]


def test_messages_are_joined_as_texts_or_as_blocks() -> None:
    a, b, c, empty = message("a"), message("b"), message([IMAGE]), message("")
    assert json.loads(messages.join(b, [a, empty, b]) or b"")["content"] == "a\n\nb"
    assert json.loads(messages.join(b, [a, c, empty]) or b"")["content"] == [text("a"), IMAGE]
    assert messages.join(a, [a, message(None)]) is None


def test_reasoning_is_taken_out_of_a_message() -> None:
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    told = message([thinking, text("a"), {"type": "redacted_thinking", "data": "x"}], "assistant")
    assert json.loads(messages.without_reasoning(told) or b"") == {"role": "assistant", "content": [text("a")]}
    assert messages.without_reasoning(message([thinking], "assistant")) == b""
    assert messages.without_reasoning(message([text("a")])) is messages.without_reasoning(message("a")) is None


def test_what_we_write_is_the_users() -> None:
    assert json.loads(messages.write("x")) == {"role": "user", "content": "x"}


SYSTEM = {"role": "system", "content": "s"}
ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def test_a_system_message_goes_with_what_it_follows() -> None:
    told = conversation(ASK, SYSTEM, SYSTEM, ANSWER, ASK, system="x")
    assert [[m.index for m in run] for run in runs(told)] == [[0], [1, 2, 3], [4], [5]]
    assert told[2].kind is Kind.OTHER


def test_calls_and_their_results_are_one_run_with_a_system_message_behind_them() -> None:
    told = conversation(
        ASK, {"role": "assistant", "content": [use()]}, {"role": "user", "content": [result("a")]}, SYSTEM
    )
    assert [[m.index for m in run] for run in runs(told)] == [[0], [1, 2, 3]]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([ASK, SYSTEM, ANSWER], set()),
        ([ASK, SYSTEM, SYSTEM, ANSWER], set()),
        ([ASK, SYSTEM], set()),
        ([ASK, SYSTEM, ASK], {1}),
        ([ASK, SYSTEM, SYSTEM, ASK, ANSWER], {1, 2}),
        ([SYSTEM, ANSWER], {0}),
        ([ASK, ANSWER, ASK], set()),
        ([SYSTEM], {0}),
    ],
)
def test_a_system_message_stands_between_user_and_assistant(told: list[dict[str, Any]], wrong: set[int]) -> None:
    assert set(messages.misplaced(conversation(*told))) == wrong


def test_the_system_prompt_is_no_user_before_a_system_message() -> None:
    assert set(messages.misplaced(conversation(SYSTEM, ANSWER, system="x"))) == {1}
