"""Fields without a change to the others, in small bodies and in those that are read by their outline."""

import json
from typing import Any

import msgspec
import pytest

from proxy.model import oversized_json
from proxy.wire import body
from proxy.wire.scan import NULL, NotUnderstood

LONG = "é\\n" * (oversized_json.APART + 1)


def listing(*turns: dict[str, Any]) -> bytes:
    """A body with these turns, spaces around each value and a field of every other kind."""
    written = b" , ".join(json.dumps(turn).encode() for turn in turns)
    return b'{"z" : 1.0, "turns": [' + written + b' ], "text":"\\u00e9", "n":null}'


@pytest.fixture(params=[oversized_json.LONGEST, 64], ids=["small", "outlined"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size above which a body is read by its outline."""
    monkeypatch.setattr(oversized_json, "LONGEST", request.param)
    return int(request.param)


@pytest.mark.usefixtures("limit")
def test_every_value_keeps_its_bytes_and_its_order() -> None:
    sent = b'{"b" : 1.0,"a":{"x" : [1, 2]},"content":"' + LONG.encode() + b'"}'
    fields = body.fields_of(sent)
    assert list(fields.items()) == [
        ("b", b"1.0"),
        ("a", b'{"x" : [1, 2]}'),
        ("content", b'"' + LONG.encode() + b'"'),
    ]
    assert body.without_fields(sent, ("b", "a", "unknown")) == b'{"content":"' + LONG.encode() + b'"}'


@pytest.mark.usefixtures("limit")
def test_the_key_of_ours_leaves_and_what_it_pins_is_told() -> None:
    pinned = {"content": LONG, "plimsoll": {"pin": True}}
    sent = listing({"content": "a"}, pinned, {"content": "b", "plimsoll": {"pin": 1}}, {"x": 1.5, "plimsoll": "pin"})
    bare, pins = body.without_message_key(sent, "turns")
    assert pins == {1}
    assert bare.startswith(b'{"z":1.0,"turns":[') and bare.endswith(b'],"text":"\\u00e9","n":null}')
    assert json.loads(bare)["turns"] == [{"content": "a"}, {"content": LONG}, {"content": "b"}, {"x": 1.5}]
    assert body.without_message_key(bare, "turns") == (bare, frozenset())


def test_messages_are_counted_from_the_index_of_the_first() -> None:
    sent = listing({"plimsoll": {"pin": True}})
    assert body.without_message_key(sent, "turns", first=lambda fields: len(fields))[1] == {4}


def test_an_api_reads_its_own_list() -> None:
    def nothing_or_one(raw: msgspec.Raw) -> list[msgspec.Raw]:
        return [] if raw == NULL else [raw]

    assert body.without_message_key(b'{"one":{"plimsoll":{"pin":true},"a":1}}', "one", nothing_or_one) == (
        b'{"one":[{"a":1}]}',
        frozenset({0}),
    )
    assert body.without_message_key(b"{}", "one", nothing_or_one) == (b"{}", frozenset())


@pytest.mark.parametrize("wrong", [b"[", b"[]", b"1", b'"x"', b"\xff", b'{"turns":[1]}', b'{"turns":1}', b"{}"])
def test_what_is_no_body_with_messages_is_not_understood(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood):
        body.without_message_key(wrong, "turns")


@pytest.mark.parametrize("wrong", [b"[", b"[]", b"1", b'"x"', b'{"a":\xff}'])
def test_what_is_no_object_has_no_fields(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood):
        body.fields_of(wrong)
    with pytest.raises(NotUnderstood):
        body.without_fields(wrong, ())


def test_one_field_of_a_large_body_is_a_view() -> None:
    small, large = b'{"a":[1],"b":2}', b'{"a":[1],"b":2}' + b" " * oversized_json.OUTSIZE
    for sent, kind in ((small, bytes), (large, msgspec.Raw)):
        fields = body.copied(*body.decoded(sent), body.view_of("a", sent))
        assert isinstance(fields["a"], kind) and isinstance(fields["b"], bytes)
        assert bytes(fields["a"]) == b"[1]"
