"""What is kept of a request for the page."""

from __future__ import annotations

import json
import re
from typing import Any

from proxy.apis.openai_chat import API
from proxy.observe.recording.recorded_bodies import Headers
from proxy.request.shown import MAX_TEXT, BodyTexts, Keeping, PlannedTexts
from proxy.wire.breakdown import pack
from tests.makers import assistant, system, user
from tests.wire.test_rows import CUT, planned

BODY = json.dumps({"model": "m", "messages": [user("hi"), user("x" * (MAX_TEXT + 1))]}).encode()


def test_without_texts_nothing_of_a_message_is_kept() -> None:
    packed, texts, conversation = Keeping().of_plan(CUT)
    assert (packed, texts) == (pack(CUT), None) and re.fullmatch("[0-9a-f]{16}", conversation)
    assert b"and?" not in pack(CUT) and b"be kind" not in pack(CUT)


def test_the_turns_of_a_conversation_have_one_name_and_others_have_another() -> None:
    told = [system("You are kind. It is 10:01."), user("How deep is the harbour?")]
    later = [system("You are kind. It is 10:09."), *told[1:], assistant("Deep."), user("And the river?")]
    key = [(b"authorization", b"Bearer sk-a")]

    def name(messages: list[dict[str, Any]], headers: Headers = key) -> str:
        return Keeping().of_plan(planned(messages, 9_000), headers).conversation

    long = "You are kind. " * 20
    assert name([system(long + "It is 10:01."), *told[1:]]) == name([system(long + "It is 10:09."), *later[1:]])
    assert len({name(told), name([told[0], user("How wide?")]), name(told, [(b"authorization", b"Bearer sk-b")])}) == 3
    assert name([system("You are kind.")]) == "", "nobody has spoken yet"


def test_texts_of_a_plan_have_what_was_cut_marked() -> None:
    kept = Keeping(texts=True).of_plan(CUT).texts
    assert isinstance(kept, PlannedTexts) and kept.weight > sum(len(m.raw) for m in CUT.before.messages)
    found = kept.shown()
    assert [text["state"] for text in found] == ["kept", "kept", "dropped", "dropped", "kept", "kept"]
    assert found[0]["segments"] == [{"text": "be kind", "cut": False, "added": False}]
    assert found[2]["segments"][0]["cut"] and found[2]["segments"][0]["text"].startswith("search(")


def test_texts_of_a_body_that_was_sent_as_it_came_are_read_when_somebody_looks() -> None:
    kept = Keeping(texts=True).of_body(BODY, API)
    assert isinstance(kept.texts, BodyTexts) and kept.texts.weight == len(BODY)
    short, long = kept.texts.shown()
    assert (short["role"], short["state"], short["segments"][0]["text"], short["truncated"]) == (
        "user",
        "kept",
        "hi",
        False,
    )
    assert long["truncated"] and len(long["segments"][0]["text"]) == MAX_TEXT


def test_a_body_that_is_not_understood_has_no_texts() -> None:
    assert BodyTexts(API, b"{").shown() == []
