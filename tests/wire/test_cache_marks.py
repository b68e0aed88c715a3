"""Marks of prompt caches, for any API. Those of the Messages API and of OpenAI have tests of their own."""

from __future__ import annotations

import msgspec

from proxy.model.conversation import Message
from proxy.model.structs import replace
from proxy.wire.cache_marks import moved
from tests.makers import assistant, message, user

KEY = b'"mark"'


def marked(message: Message, mark: msgspec.Raw) -> Message | None:
    return None if message.role == "assistant" else replace(message, raw=message.raw + bytes(mark))


def test_a_mark_goes_to_the_last_message_before_it_that_can_have_one() -> None:
    told = [
        message(user("a"), 0),
        message(assistant("b"), 1),
        message(b'{"role":"user","mark":1}', 2),
        message(user("c"), 3),
    ]
    sent = moved(told, [told[0], told[1], told[3]], KEY, lambda m: msgspec.Raw(b"!"), marked)
    assert [m.raw[-1:] for m in sent] == [b"!", b"}", b"}"]


def test_no_message_gets_a_second_mark() -> None:
    told = [message(b'{"role":"user","mark":1}', 0), message(b'{"role":"user","mark":2}', 1)]
    assert moved(told, told[:1], KEY, lambda m: msgspec.Raw(b"!"), marked) == told[:1]
