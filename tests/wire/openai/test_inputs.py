"""Texts and lists of token ids as messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proxy.model.conversation import HEAD, RULED, Kind, Message, PartKind
from proxy.wire.openai import inputs
from proxy.wire.openai.inputs import TAIL, count_ids, inputs_in, is_list, together
from proxy.wire.scan import NotUnderstood


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def message(value: Any, keep: str = "") -> Message:
    return Message(json.dumps(value).encode(), "prompt", Kind.USER, inputs, 0, keep=keep)


@pytest.mark.parametrize(
    ("value", "found", "listed"),
    [
        ("a", ["a"], False),
        ("", [""], False),
        (["a", "b"], ["a", "b"], True),
        ([1, 2], [[1, 2]], False),
        ([[1, 2], [3]], [[1, 2], [3]], True),
        (["a", [3]], ["a", [3]], True),
    ],
)
def test_a_field_is_one_input_or_a_list_of_them(value: Any, found: list[Any], listed: bool) -> None:
    assert [json.loads(bytes(one)) for one in inputs_in(raw(value))] == found
    assert is_list(raw(value)) is listed


@pytest.mark.parametrize("value", [[], None, {}, 1, [None], [{"text": "a"}], ["a", 1], [True]])
def test_anything_else_is_not_understood(value: Any) -> None:
    with pytest.raises(NotUnderstood):
        inputs_in(raw(value))


def test_ids_are_counted_and_a_text_has_none() -> None:
    assert count_ids(b"[1, 2,3]") == 3 and count_ids(b"[]") == 0 and count_ids(b'"1,2"') is None
    with pytest.raises(msgspec.ValidationError):
        count_ids(b'["a"]')


def test_a_short_text_is_one_part_and_the_end_of_a_long_one_stays() -> None:
    (part,) = message("hello").parts()
    assert (part.kind, part.text, part.whole, part.editable) == (PartKind.TEXT, "hello", True, True)
    text = "ab" * 5 * TAIL
    head, tail = message(text).parts()
    assert head.text + tail.text == text and len(tail.text) == TAIL
    assert head.editable and not tail.editable


def test_what_may_only_be_cut_at_an_end_is_no_text_for_the_steps() -> None:
    (text,) = message("x" * 5000, HEAD).parts()
    assert text.kind is PartKind.INPUT and not text.editable
    (ids,) = message([5, 6, 7], RULED).parts()
    assert ids.kind is PartKind.TOKENS and ids.text == "5,6,7" and not ids.editable
    (broken,) = message({"text": "a"}).parts()
    assert broken.kind is PartKind.OPAQUE


def test_a_part_gets_another_text_and_the_other_keeps_its_own() -> None:
    sent = message("ab" * 5 * TAIL)
    head, tail = sent.parts()
    assert json.loads(sent.edit([(head, "short ")], "why").raw) == "short " + tail.text
    ids = message([5, 6, 7], RULED)
    assert json.loads(ids.edit([(ids.parts()[0], "6,7")], "why").raw) == [6, 7]
    one = message("é")
    assert json.loads(one.edit([(one.parts()[0], 'q"')], "why").raw) == 'q"'


def test_messages_are_written_as_the_client_wrote_them() -> None:
    messages = [message("a"), message([1])]
    assert together(messages, listed=True) == b'["a",[1]]' and together(messages[:1], listed=False) == b'"a"'
    assert inputs.write("a") == b'"a"'


def test_they_are_no_conversation() -> None:
    one = message("a")
    assert inputs.runs([one, one]) == [(one,), (one,)]
    assert inputs.join(one, [one]) is None and inputs.with_results(one, [""], "x") == one.raw
    assert not inputs.misplaced([one]) and inputs.without_reasoning(one) is None
    assert not inputs.detached([one, one], [one])
