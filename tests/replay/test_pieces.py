"""Prompts in pieces."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis import api_of
from proxy.fit.plan import plan
from proxy.fit.prompt_cache import Pieces
from proxy.model.limits import Window
from proxy.model.plan import Facts, Ladder
from proxy.replay.pieces import GRAIN, pieces_of
from tests.makers import WordMeter


def pieces(body: dict[str, Any], head: bytes = b"") -> Pieces:
    """The pieces of a body, and its tokens."""
    raw = json.dumps({"model": "gpt-4o", **body}).encode()
    api = api_of(raw)
    assert api is not None
    prompt = api.parse(raw)
    made = plan(prompt, Ladder("none", ()), Facts(Window(100_000), WordMeter()))
    return pieces_of(prompt, head, made.before)


def said(*texts: str) -> dict[str, Any]:
    """Messages with these texts."""
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def shared(one: Pieces, other: Pieces) -> int:
    """How many pieces two prompts share."""
    return sum(1 for a, b in zip(one.digests, other.digests, strict=False) if a == b)


def test_a_prompt_that_grew_begins_with_the_pieces_it_had() -> None:
    before, after = pieces(said("a", "b")), pieces(said("a", "b", "c"))
    assert shared(before, after) == len(before.digests) == 3 and len(after.digests) == 4
    assert after.tokens[:3] == before.tokens[:3]


def test_a_change_early_changes_all_that_follows() -> None:
    assert shared(pieces(said("a", "b", "c")), pieces(said("a", "x", "c"))) == 2
    assert shared(pieces(said("a"), b"tools"), pieces(said("a"), b"others")) == 0


def test_a_long_message_is_in_pieces_that_are_shared() -> None:
    text = "word " * 1_000
    one, other = pieces(said(text + "end")), pieces(said(text + "another end"))
    assert len(one.digests) == 1 + -(-len(json.dumps(said(text + "end")["messages"][0])) // GRAIN)
    assert shared(one, other) == len(one.digests) - 1
    assert list(one.tokens) == sorted(one.tokens) and 1_000 <= one.tokens[-1] <= 1_020


def test_the_role_is_a_part_of_a_message() -> None:
    assert shared(pieces(said("a")), pieces({"messages": [{"role": "system", "content": "a"}]})) == 1


def test_marks_stand_where_the_client_put_them() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a", **mark}]},
        {"role": "user", "content": 'a text that says "cache_control"'},
    ]
    system = [{"type": "text", "text": "s"}]
    assert list(pieces({"system": system, "messages": messages}).marks) == [2]
    assert list(pieces({"system": system, "messages": messages, **mark}).marks) == [2, 3]
    assert list(pieces({"system": system, "messages": messages}, b'"cache_control"').marks) == [0, 2]
