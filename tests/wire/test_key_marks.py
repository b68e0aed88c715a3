"""What is passed over quickly is what the walk would leave as it is."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.wire.key_marks import may_have_key
from proxy.wire.key_names import ENDINGS, HARMLESS, NAMES, STEMS
from proxy.wire.key_texts import SCHEMES, SHAPES
from proxy.wire.keys import without_keys
from tests.wire.key_spellings import CANARY, OWN, bodies_with_keys, harmless_bodies

SIGNS = [*" \t\n\r\"'`\\/:=-_.,;&?@#$%<>[](){}|~+*!^é\u212a\ud83d\ue000", "://", "--", " -u ", "=>", ":=", "%5f"]
WORDS = [
    *(*STEMS, *ENDINGS, *NAMES, *HARMLESS, *SCHEMES, "api", "access", "sig", "headers", "name", "value", "properties"),
    *("sk-", "ghp_", "AKIA", "eyJ", "A1b2", "a" * 20, "7" * 16, "user", "https", "-----BEGIN RSA PRIVATE KEY-----"),
    *("K", "rest", "the", "Bearer", "API_KEY", "n", "t", "\\u002d", "\\/", "\\n", "\\t", '\\"'),
]
PIECES = st.sampled_from([*SIGNS, *WORDS, *(word.upper() for word in WORDS), *(word.title() for word in WORDS)])
TEXTS = st.lists(PIECES, max_size=14).map("".join)
LEAVES = st.one_of(TEXTS, TEXTS.map(json.dumps), st.integers(0, 9), st.none(), st.booleans())
VALUES = st.recursive(
    LEAVES,
    lambda values: st.one_of(
        st.lists(values, max_size=3),
        st.dictionaries(TEXTS, values, max_size=3),
        st.dictionaries(TEXTS, values, max_size=2).map(lambda found: json.dumps(found)),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
@example({"key a-p-i-k-e-y": "x"}, True, (",", ":"))
@example("a\nexttoken=abc123", True, (",", ":"))
@example("a\ntoken\t\t=\tabc123", True, (",", ":"))
@example("api key: ABCDEFG", True, (",", ":"))
@example("?s.i.g=1&-key=2", True, (",", ":"))
@example("https://a\u00e9b:c@d", False, (",", ":"))
@example({"token" + "_" * 70: "x", "token" + "1" * 70: "y"}, True, (",", ":"))
def test_a_body_without_marks_has_nothing_to_hide(value: object, escaped: bool, separators: tuple[str, str]) -> None:
    body = json.dumps(value, ensure_ascii=escaped, separators=separators).encode("utf-8", "surrogatepass")
    if not may_have_key(body):
        made = without_keys(body)
        assert made is None or made is body  # None: what no line can have


@settings(max_examples=100, deadline=None)
@given(VALUES, st.integers(0, 400))
def test_a_rest_is_marked_where_the_beginning_is_not(value: object, start: int) -> None:
    """A mark of the body is one of the beginning or of the rest, also across the cut."""
    body = json.dumps([value, "x" * 100]).encode()
    if not may_have_key(body[:start]) and may_have_key(body):
        assert start == 0 or may_have_key(body, start)


@pytest.mark.parametrize("name", bodies_with_keys())
def test_every_spelling_has_a_mark(name: str) -> None:
    body = bodies_with_keys()[name]
    assert OWN.encode() in body or may_have_key(body)


def test_most_harmless_bodies_have_none() -> None:
    found = [may_have_key(body) for body in harmless_bodies().values()]
    assert sum(found) < len(found) / 2


@pytest.mark.parametrize("length", [1, 100, 300, 5000])
def test_a_mark_across_the_cut_is_found(length: int) -> None:
    """Wherever the cut is, and however long the user in a URL is."""
    dice = random.Random(length)
    bearer = '"a":"Bearer ' + "x1" * (length + 3)
    for mark in (f'"api_key":"{CANARY}"', f'"a":"https://{"u" * length}:{CANARY}@h/"', bearer):
        body = b'{"x":"' + b"harbour " * 200 + b'",' + mark.encode() + b'"}'
        at = body.index(b'",') + 2
        for start in {at, len(body), *(dice.randrange(at, len(body)) for _ in range(20))}:
            assert may_have_key(body[:start]) or may_have_key(body, start), start


def test_every_shape_has_a_mark() -> None:
    assert all(may_have_key(f'"{first}{"A1" * 20}.{"A1" * 20}"'.encode()) for first, _ in SHAPES if first != "xox")
    assert may_have_key(b'"xoxb-1234567890-abc"')


BUSY = (
    "token",
    "'token':'",
    "token ",
    "api_key=",
    "api_key='",
    "api_key=[]",
    "://a",
    "bearer ",
    "-u a:",
    "eyJ-",
    "--token-",
)


@pytest.mark.parametrize("piece", BUSY)
def test_no_body_keeps_the_search_busy(piece: str) -> None:
    """Each of them took minutes with an expression that has no bounds."""
    text = piece * (300_000 // len(piece))
    body = json.dumps({"text": text, "api_key": CANARY}).encode()
    may_have_key(body.replace(b"api_key", b"x"))
    assert CANARY.encode() not in (without_keys(body) or b"")
