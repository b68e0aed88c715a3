"""Conversations that grew are known by all their bytes, and by no fewer."""

from __future__ import annotations

from typing import Any

from proxy.apis.openai_chat import API
from proxy.apis.openai_chat.scan import scan
from proxy.model.scan import KnownPrefix
from proxy.request import prefix_cache as module
from proxy.request.prefix_cache import KEY_LENGTHS, MAX_PER_KEY, PrefixCache
from tests.e2e.services import sentence
from tests.makers import body, user

FIRST = user(sentence(0, 3_000))


def kept(memory: PrefixCache, messages: list[dict[str, Any]], **fields: Any) -> KnownPrefix | None:
    """What is known of a body when it comes; and it is kept."""
    whole = body(messages, **fields)
    known = memory.find(API, whole)
    seen = scan(whole, known)
    assert seen.marks is not None
    marks = seen.marks(7)
    assert marks is not None
    memory.keep(API, whole, seen, marks)
    return known


def count(known: KnownPrefix | None) -> int:
    return 0 if known is None else known.seen.count


def test_a_conversation_that_grew_is_known_as_far_as_it_went_by() -> None:
    memory, told = PrefixCache(), [FIRST]
    assert kept(memory, told) is None
    for i in range(1, 40):
        told.append(user(sentence(i, 300)))
        assert count(kept(memory, told)) == i
    assert len(body(told)) > KEY_LENGTHS[1] and count(memory.find(API, body(told))) == 40


def test_a_short_one_is_not_remembered() -> None:
    memory = PrefixCache()
    kept(memory, [user("a")])
    assert memory.find(API, body([user("a"), user("b")])) is None and not memory._prefixes


def test_a_byte_that_differs_is_another_conversation() -> None:
    memory, told = PrefixCache(), [FIRST, user("a" * 9), user("b")]
    kept(memory, told)
    assert memory.find(API, body([FIRST, user("a" * 8 + "c"), user("b"), user("d")])) is None
    assert count(memory.find(API, body([*told, user("d")]))) == 3
    assert memory.find(API, body(told)[:-40]) is None


def test_several_may_begin_alike_and_the_latest_are_remembered() -> None:
    memory = PrefixCache()
    for i in range(MAX_PER_KEY + 1):
        kept(memory, [FIRST, user(f"question {i}")])
    assert count(memory.find(API, body([FIRST, user("question 0"), user("x")]))) == 0
    for i in range(1, MAX_PER_KEY + 1):
        assert count(memory.find(API, body([FIRST, user(f"question {i}"), user("x")]))) == 2


def test_another_model_or_other_tools_before_the_messages_are_another_body() -> None:
    memory = PrefixCache()
    kept(memory, [FIRST], model="gpt-4o")
    assert memory.find(API, body([FIRST], model="gpt-4")) is None


def test_the_memory_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 10)
    memory = PrefixCache()
    for i in range(100):
        kept(memory, [user(sentence(i, 3_000))])
        assert len(memory._prefixes) <= 10
    assert memory.find(API, body([user(sentence(99, 3_000))])) is not None
    assert memory.find(API, body([user(sentence(0, 3_000))])) is None
