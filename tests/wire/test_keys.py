"""Forty spellings of keys are hidden at any depth, and nothing else is changed."""

from __future__ import annotations

import json

import pytest

from proxy.model.bounded import Bounded
from proxy.wire.keys import LONG, hidden_text, without_keys
from tests.wire.key_spellings import CANARY, OWN, bodies_with_keys, harmless_bodies, is_told


class Remembered(Bounded[tuple[tuple[str, ...], bytes], str]):
    """Counts the look-ups that found something."""

    found = 0

    def get(self, key: tuple[tuple[str, ...], bytes]) -> str | None:
        """The text, or None."""
        value = super().get(key)
        self.found += value is not None
        return value


@pytest.mark.parametrize("name", bodies_with_keys())
def test_no_spelling_of_a_key_stays(name: str) -> None:
    body = bodies_with_keys()[name]
    made = without_keys(body, (OWN.encode(),))
    if name == "twice":
        assert made is None
        return
    assert made is not None and not is_told(made.decode())
    fields = json.loads(made)
    assert fields["model"] == "gpt-4o" and fields["messages"] == [{"role": "user", "content": "hi"}]
    assert fields["max_tokens"] == 16 and len(fields) == 4


@pytest.mark.parametrize("name", harmless_bodies())
def test_what_only_looks_like_a_key_stays_as_it_came(name: str) -> None:
    body = harmless_bodies()[name]
    assert without_keys(body, (OWN.encode(),)) is body


def test_a_schema_of_a_key_stays_a_schema() -> None:
    schema = {"type": "object", "properties": {"api_key": {"type": "string", "description": "Yours."}, "n": True}}
    body = json.dumps({"tools": [{"parameters": {**schema, "$defs": {"Token": schema}}}], "required": ["token"]})
    assert without_keys(body.encode()) == body.encode()


def test_values_that_say_nothing_stay() -> None:
    body = b'{"api_key": null, "token": "", "password": false, "secret": [], "cookie": {}}'
    assert without_keys(body) is body


def test_names_in_a_hidden_value_stay() -> None:
    made = without_keys(b'{"credentials":{"user":"CANARY","list":[1,{"a":"CANARY"}]}}')
    assert made is not None and json.loads(made) == {"credentials": {"user": "***", "list": ["***", {"a": "***"}]}}


def test_headers_that_are_no_keys_stay() -> None:
    made = without_keys(b'{"headers":{"Content-Type":"application/json","X-A":"CANARY"}}')
    assert made is not None and json.loads(made)["headers"] == {"Content-Type": "application/json", "X-A": "***"}
    assert without_keys(b'{"headers":["Name","Age"]}') == b'{"headers":["Name","Age"]}'


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":1,"a":2}', b'[{"a":{"b":1,"b":1}}]'])
def test_what_cannot_be_read_or_in_two_ways_is_nothing(body: bytes) -> None:
    assert without_keys(body) is None


@pytest.mark.parametrize(
    "body", [b'{"a":"\\ud800"}', b'{"a":1e999}', b'{ "a" : [1.0, "\\u00e9"] }', b'"text"', b"12345678901234567890123"]
)
def test_what_is_strange_is_read_all_the_same(body: bytes) -> None:  # fmt: skip
    assert without_keys(body) is body
    assert without_keys(b'{"token":"CANARY","b":%b}' % body) is not None


def test_long_texts_are_searched_once() -> None:
    seen, quiet = Remembered(100), "harbour " * LONG
    for text in (quiet, quiet + f"api_key='{CANARY}'"):
        body = json.dumps([text]).encode()
        first, again = (without_keys(body, (), seen) for _ in range(2))
        assert first == again and first is not None and CANARY not in first.decode()
    assert seen.found == 2
    assert quiet + CANARY in (without_keys(json.dumps([quiet + CANARY]).encode(), (), seen) or b"").decode()
    assert CANARY not in (without_keys(json.dumps([quiet + CANARY]).encode(), (CANARY.encode(),), seen) or b"").decode()


def test_a_text_alone_has_no_keys() -> None:
    assert hidden_text(f"password: {CANARY}") == "password: ***"
    assert hidden_text(f"it is {OWN}", (OWN,)) == "it is ***"
    text = "nothing here"
    assert hidden_text(text) is text
