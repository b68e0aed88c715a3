"""Bodies that are known are recorded as others are: byte for byte, without keys, each by its own line."""

from __future__ import annotations

import json
import os
import random

import pytest

from proxy.observe.recording import recorded_bodies
from proxy.observe.recording.recorded_bodies import BLOCK, KnownBodies, one_line
from proxy.wire.key_marks import may_have_key
from proxy.wire.keys import without_keys
from tests.wire.key_spellings import OWN, bodies_with_keys, harmless_bodies, is_told

KEY = b"sk-1234567890"
WORDS = ("harbour", "pilot", "tide", "ships", "é", "\u4e2d", 'a "word"', "\\", "\n")


def line(body: bytes, name: str = "request") -> bytes:
    return b',"bytes":%d,"content":"bodies","%b":%b}\n' % (len(body), name.encode(), body)


def conversation(turns: int, size: int = 700) -> bytes:
    """A body that begins as a shorter one does."""
    messages = [{"role": "user", "content": f"{turn} " + "harbour " * (size // 8)} for turn in range(turns)]
    return json.dumps({"model": "gpt-4o", "messages": messages}).encode()


@pytest.mark.parametrize("size", [2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK + 7])
def test_a_body_is_the_same_the_first_time_and_later(size: int) -> None:
    bodies, body = KnownBodies(), b'"' + os.urandom(size).hex().encode()[: size - 2] + b'"'
    assert bodies.fields(body, (KEY,)) == line(body) == bodies.fields(body, (KEY,))


def test_any_conversations_in_any_order_are_recorded_as_they_came() -> None:
    dice, bodies = random.Random(7), KnownBodies()
    texts = [" ".join(dice.choices(WORDS, k=dice.randrange(1, 400))) for _ in range(30)]
    for _ in range(200):
        body = json.dumps(texts[: dice.randrange(30)], ensure_ascii=dice.random() < 0.5).encode()
        assert bodies.fields(body, (KEY,)) == line(body)


def test_what_a_conversation_began_with_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies, starts = KnownBodies(), list[int]()

    def noted(body: bytes, start: int) -> bool:
        starts.append(start)
        return may_have_key(body, start)

    monkeypatch.setattr(recorded_bodies, "may_have_key", noted)
    bodies.fields(conversation(50), ())
    assert bodies.fields(conversation(52), ()) == line(conversation(52)) == bodies.fields(conversation(52), ())
    assert starts == [0, len(conversation(50)) // BLOCK * BLOCK] and starts[1] > 3 * BLOCK


@pytest.mark.parametrize("place", range(BLOCK - 60, BLOCK + 8, 3))
def test_a_key_that_lies_across_two_blocks_is_found_behind_a_known_one(place: int) -> None:
    bodies = KnownBodies()
    start = b'{"a":"'.ljust(place, b"x")
    bodies.fields(start + b"y" * 2 * BLOCK + b'"}', (KEY,))
    text = start + KEY + b"y" * 2 * BLOCK + b'"}'
    assert KEY not in bodies.fields(text, (KEY,)) and KEY not in bodies.fields(text, (KEY,))
    field = start + b'","api_key" : "CANARY","b":"' + b"y" * 2 * BLOCK + b'"}'
    assert b"CANARY" not in bodies.fields(field, ()) and b"CANARY" not in bodies.fields(field, ())


PARTS = (
    *(
        b'"headers":{},',
        b'"headers":{"X-Token":"CANARY"},',
        b'"max_tokens":"b",',
        b'"my-api_key":"CANARY",',
        b'"api_key":7,',
    ),
    *(b'"c":"authorization",', b'"d":"' + KEY + b'",', b'"x":"' + b"harbour " * 9 + b'",', b'"authorization":"",'),
)


def test_keys_are_hidden_behind_a_known_beginning_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks, fields and keys lie before, in and across the ends of blocks."""
    monkeypatch.setattr(recorded_bodies, "BLOCK", 100)
    dice, bodies, found = random.Random(3), KnownBodies(), set[bool]()
    parts = [b"".join(dice.choices(PARTS, weights=(3, 1, 3, 1, 3, 3, 1, 30, 3), k=30)) for _ in range(40)]
    for _ in range(1500):
        text = dice.choice(parts)
        fields = text[: text.rindex(b",", 0, dice.randrange(150, 900))].split(b',"')
        named = b",".join(b'{"' + field.removeprefix(b'"') + b"}" for field in fields)
        body = b"[" + named + dice.choice((b"]", b',{"token":"e"}]'))
        expected = without_keys(body, (KEY,)) or b""
        found.add(expected == body)
        assert bodies.fields(body, (KEY,)) == line(body).replace(body, expected)
    assert found == {True, False}


@pytest.mark.parametrize("size", [0, BLOCK])
def test_no_spelling_of_a_key_is_recorded(size: int) -> None:
    """Of a short body and of a long one, the first time and later."""
    bodies = KnownBodies()
    for body in bodies_with_keys().values():
        longer = body[:-1] + b',"pad":"' + b"x" * size + b'"}'
        for _ in range(2):
            assert not is_told(bodies.fields(longer, (OWN.encode(),)).decode())


def test_what_only_looks_like_a_key_is_recorded_as_it_came() -> None:
    bodies = KnownBodies()
    for body in harmless_bodies().values():
        assert bodies.fields(body, (OWN.encode(),)) == line(body)


def test_what_cannot_be_read_and_may_have_a_key_is_dropped() -> None:
    for body in (b'{"api_key":"CANARY', b'{"api_key":"CANARY"}}', b'{"api_key":"CANARY","api_key":""}'):
        assert KnownBodies().fields(body, ()) == b',"bytes":%d,"content":"dropped"}\n' % len(body)


def test_a_key_is_not_in_the_body_that_another_sender_sent_before() -> None:
    """For the other it was a text as any."""
    bodies, body = KnownBodies(), conversation(40)[:-2] + b',"' + KEY + b'"]}'
    assert KEY in bodies.fields(body, (b"another key",))
    assert KEY not in bodies.fields(body, (KEY,)) and KEY not in bodies.fields(body, (KEY,))


@pytest.mark.parametrize("body", [b'{"a":' + b"[" * 9000, b"x" * 9000, b'"\xff' + b"x" * 9000 + b'"', b'{"a":1'])
def test_what_is_no_json_is_a_text_each_time(body: bytes) -> None:
    bodies = KnownBodies()
    for _ in range(2):
        found = json.loads(b"{" + bodies.fields(body, ())[1:])
        assert found["request_text"] == body.decode(errors="replace")


def test_a_known_beginning_does_not_make_json_of_what_is_none() -> None:
    bodies, body = KnownBodies(), conversation(40)
    bodies.fields(body, ())
    assert b'"request_text":' in bodies.fields(body[:-1], ())
    assert b'"request_text":' in bodies.fields(body + b"}", ())


def test_line_ends_become_spaces_each_time() -> None:
    bodies, body = KnownBodies(), json.dumps(["harbour " * 10] * 200, indent=1).encode()
    for _ in range(2):
        assert bodies.fields(body, ()) == line(body).replace(b"\n", b" ")[:-1] + b"\n"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_bodies, "MAX_KNOWN", 100)
    bodies = KnownBodies()
    for _ in range(50):
        bodies.fields(b'"' + os.urandom(20_000).hex().encode() + b'"', ())
    assert 0 < bodies.weight <= 100 * recorded_bodies.ENTRY_BYTES


def test_the_parts_are_as_their_names_say() -> None:
    body = b'{"content": 1}'
    assert one_line(body) is body and one_line(b"{") is None
