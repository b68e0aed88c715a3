"""What the scans of all APIs share: numbers, and lone halves of surrogate pairs; tests of APIs cover the prefixes."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from proxy.model.scan import KnownPrefix, PrefixDigest, ScanState
from proxy.wire.scan import (
    MAX_NUMBER,
    MAX_REPAIRED,
    NotUnderstood,
    check_count,
    decoded_request,
    token_limit,
    without_lone_surrogates,
)


class Talk(msgspec.Struct):
    """A request with a list under the key `said`."""

    said: list[int]


TALK = msgspec.json.Decoder(Talk)
OLD = b'{"said":[1,2'
KNOWN = KnownPrefix(OLD.index(b"1"), len(OLD), b"", ScanState(), PrefixDigest(0, 0, 0, (), None))


@pytest.mark.parametrize("more", [b",3]}", b" , 3 ] }"])
def test_a_body_that_continues_a_known_prefix_is_decoded_without_it(more: bytes) -> None:
    request, text, known = decoded_request(TALK, OLD + more, KNOWN, "said")
    assert request == Talk([3]) and known is KNOWN and TALK.decode(text) == request


@pytest.mark.parametrize("more", [b"0]}", b'],"said":[5]}'])
def test_what_is_no_list_behind_a_known_prefix_is_decoded_whole(more: bytes) -> None:
    body = OLD + more
    assert decoded_request(TALK, body, KNOWN, "said") == (TALK.decode(body), body, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"x":' + b"[" * 100_000, "it is not valid JSON"),
        (OLD + b",", "its JSON ends too early, as if it was cut off"),
        (OLD + b",x]}", "JSON is malformed: invalid character (byte 13)"),
    ],
)
@pytest.mark.parametrize("known", [None, KNOWN])
def test_why_a_body_is_not_understood_is_about_all_of_it(body: bytes, reason: str, known: KnownPrefix | None) -> None:
    with pytest.raises(NotUnderstood, match=f"^{re.escape(reason)}"):
        decoded_request(TALK, body, known if body.startswith(OLD) else None, "said")


@pytest.mark.parametrize("count", [0, -1, MAX_NUMBER + 1])
def test_a_number_of_choices_that_cannot_be_is_not_understood(count: int) -> None:
    check_count(1)
    with pytest.raises(NotUnderstood):
        check_count(count)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (None, None),
        (-1, None),
        (0, None),
        (-1e300, None),
        (1, 1),
        (100.0, 100),
        (1e15, MAX_NUMBER),
        (MAX_NUMBER, MAX_NUMBER),
    ],
)
def test_a_limit_is_a_whole_number_and_under_one_it_means_none(said: float | None, limit: int | None) -> None:
    found = token_limit(said)
    assert found == limit and type(found) is type(limit)


@pytest.mark.parametrize("said", [1.5, -0.5, MAX_NUMBER + 1, 1e16, float("inf"), float("-inf"), float("nan")])
def test_what_is_no_limit_is_not_understood(said: float) -> None:
    with pytest.raises(NotUnderstood):
        token_limit(said)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (rb"\ud83d", rb"\ufffd"),
        (rb"a\uDE00b", rb"a\ufffdb"),
        (rb"\ud83d\ud83d\ude00\ude00", rb"\ufffd\ud83d\ude00\ufffd"),
        (rb"\\\ud83d", rb"\\\ufffd"),
        (rb"\ud83d\\ude00", rb"\ufffd\\ude00"),
        (rb"\ud83d\n\ude00", rb"\ufffd\n\ufffd"),
    ],
)
def test_a_lone_half_of_a_surrogate_pair_becomes_the_replacement_character(said: bytes, read: bytes) -> None:
    text = b'{"content":"%b"}'
    assert without_lone_surrogates(text % said) == text % read
    kept = json.loads(text % said)["content"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(text % read)["content"] == kept


WHOLE = [b"", rb"\ud83d\ude00", rb"\\ud83d", rb"\\\\ude00", rb"\u00e9", rb"ud83d", b"\xed\xa0\xbd"]


@pytest.mark.parametrize("said", WHOLE)
def test_what_has_no_half_of_a_pair_is_not_without_lone_surrogates(said: bytes) -> None:
    assert without_lone_surrogates(said) is None


def test_a_very_long_body_is_not_without_lone_surrogates() -> None:
    assert without_lone_surrogates(rb"\ud83d" + b" " * MAX_REPAIRED) is None
