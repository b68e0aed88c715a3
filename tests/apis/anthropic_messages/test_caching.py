"""`cache_control` marks of messages that are not sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages.caching import blocks_of, with_marks
from proxy.model.conversation import Message
from proxy.model.structs import replace
from proxy.wire.cache_marks import without_marks
from tests.apis.anthropic_messages.test_messages import conversation, result, text, use

MARK = {"type": "ephemeral", "ttl": "1h"}
ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
MARKED = {"role": "user", "content": [text("x"), text("y", cache_control=MARK)]}


def sent(told: tuple[Message, ...], *kept: int) -> list[Any]:
    """What is sent of a conversation of which these messages are kept."""
    return [json.loads(m.raw) for m in with_marks(told, [told[i] for i in kept])]


def test_the_mark_of_a_dropped_message_moves_to_the_last_one_that_stays_before_it() -> None:
    told = conversation(ASK, ANSWER, MARKED, ANSWER, ASK)
    now = sent(told, 0, 1, 4)
    assert now == [ASK, {"role": "assistant", "content": [text("a", cache_control=MARK)]}, ASK]


def test_the_mark_of_a_message_that_stays_is_not_touched() -> None:
    told = conversation(ASK, MARKED, ANSWER, ASK)
    kept = with_marks(told, [told[1], told[3]])
    assert kept[0] is told[1] and kept[1] is told[3]


def test_one_that_has_a_mark_gets_no_second_one() -> None:
    told = conversation(MARKED, ANSWER, MARKED, ASK)
    assert sent(told, 0, 3) == [MARKED, ASK]


def test_a_mark_before_everything_that_stays_is_gone() -> None:
    assert sent(conversation(MARKED, ASK), 1) == [ASK]


def test_calls_results_and_the_system_prompt_can_have_a_mark_and_thinking_cannot() -> None:
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    for content in ([use()], [result("a")], [thinking, use()], [use(), thinking]):
        now = sent(conversation({"role": "user", "content": content}, MARKED, ASK), 0, 2)[0]["content"]
        assert [b for b in now if "cache_control" in b] == [
            {**next(b for b in content if b is not thinking), "cache_control": MARK}
        ]
    assert sent(conversation(MARKED, ASK, system="s"), 0, 2)[0] == [text("s", cache_control=MARK)]
    assert sent(conversation(MARKED, ASK, system=[text("s")]), 0, 2)[0] == [text("s", cache_control=MARK)]


def test_a_block_whose_type_is_no_text_can_have_a_mark() -> None:
    told = conversation(ASK, MARKED, ASK)
    first = replace(told[0], raw=b'{"role":"user","content":[{"type":{"a":1}}]}')
    (now, _) = with_marks((first, *told[1:]), [first, told[2]])
    assert json.loads(now.raw)["content"] == [{"type": {"a": 1}, "cache_control": MARK}]


def test_where_no_block_can_have_it_the_mark_is_gone() -> None:
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}]}
    for first in (thinking, {"role": "user", "content": ""}, {"role": "user", "content": None}):
        assert sent(conversation(first, MARKED, ASK), 0, 2) == [first, ASK]


def test_a_word_that_is_no_mark_moves_nothing() -> None:
    for content in ('"cache_control"', [text("x", cache_control=None)], [text('"cache_control"')]):
        assert sent(conversation(ASK, {"role": "user", "content": content}, ASK), 0, 2) == [ASK, ASK]


def test_what_cannot_be_decoded_neither_has_nor_gets_a_mark() -> None:
    first, marked, last = conversation(ASK, MARKED, ASK)
    broken = replace(marked, raw=marked.raw[:-1])
    assert with_marks([first, broken, last], [first, last]) == [first, last]
    odd = replace(first, raw=first.raw[:-1])
    assert with_marks([odd, marked, last], [odd, last]) == [odd, last]


def test_our_own_messages_count_for_nothing() -> None:
    told = conversation(ASK, MARKED, ASK)
    ours = Message(b'{"role":"user","content":"note"}', "user", told[0].kind, told[0].format)
    now = with_marks(told, [told[0], ours, told[2]])
    assert b"cache_control" in now[0].raw and now[1] is ours


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (b'{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}', b'{"type":"text","text":"a"}'),
        (b'{"cache_control": {"type": "ephemeral", "ttl": "1h"}, "text": "a"}', b'{"text": "a"}'),
        (b'{"a":1 , "cache_control" : null, "b":2}', b'{"a":1 , "b":2}'),
        (b'{"cache_control":null}', b"{}"),
        (b'{"text":"\\"cache_control\\": null"}', b'{"text":"\\"cache_control\\": null"}'),
    ],
)
def test_marks_are_taken_out_of_json(marked: bytes, plain: bytes) -> None:
    assert without_marks(marked) == plain


def test_a_message_has_blocks_in_each_of_its_forms() -> None:
    (said,) = conversation({"role": "user", "content": "Hi"})
    (listed,) = conversation({"role": "user", "content": [text("a"), text("b")]})
    assert list(map(bytes, blocks_of(said))) == [b'{"type":"text","text":"Hi"}'] and len(blocks_of(listed)) == 2
