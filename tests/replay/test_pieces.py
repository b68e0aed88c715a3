"""Prompts in pieces."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis import api_of
from proxy.apis.anthropic_messages import API
from proxy.fit.plan import plan
from proxy.fit.prompt_cache import Pieces
from proxy.model.limits import Window
from proxy.model.plan import Facts, Ladder
from proxy.model.structs import replace
from proxy.replay.pieces import GRAIN, pieces_of
from tests.makers import WordMeter


def pieces(body: dict[str, Any], head: bytes = b"") -> Pieces:
    """The pieces of a body, and its tokens."""
    raw = json.dumps({"model": "gpt-4o", **body}).encode()
    api = api_of(raw)
    assert api is not None
    prompt = api.request.parse(raw)
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


MARK = {"cache_control": {"type": "ephemeral"}}


def marked(*messages: list[dict[str, Any]], **fields: Any) -> Pieces:
    """The pieces of a request of the Messages API with these blocks."""
    return pieces({"system": "s", "messages": [{"role": "user", "content": blocks} for blocks in messages], **fields})


def test_marks_stand_where_the_client_put_them() -> None:
    first, second, said = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, [{"type": "text", "text": "c"}]
    assert list(marked([{**first, **MARK}, second], said).marks) == [2]
    assert list(marked([first, {**MARK, **second}], said).marks) == [3]
    assert list(marked([first, second], said, **MARK).marks) == [3]
    assert list(marked([{"type": "text", "text": '"cache_control"'}]).marks) == []


def test_marked_tools_are_the_same_tools() -> None:
    request = {"system": "s", "messages": [{"role": "user", "content": "a"}]}
    one, other = (
        pieces(request, b'[{"name":"x","cache_control":{"type":"ephemeral"}}]'),
        pieces(request, b'[{"name":"x"}]'),
    )
    assert shared(one, other) >= 1 and list(one.marks) == [0] and list(other.marks) == []


def test_a_mark_that_moves_changes_no_prompt() -> None:
    first, second = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    before = marked([first, {**second, **MARK}])
    after = marked([first, second], [{**MARK, "type": "text", "text": "c"}])
    assert shared(before, after) == len(before.digests) == 4
    assert shared(marked([{**first, **MARK}]), marked([{**MARK, **first}])) == 3


def test_a_message_that_cannot_be_read_is_one_piece() -> None:
    prompt = API.request.parse(b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}')
    odd = replace(prompt.messages[0], raw=b'{"cache_control":')
    made = plan(replace(prompt, messages=(odd,)), Ladder("none", ()), Facts(Window(100_000), WordMeter()))
    assert len(pieces_of(prompt, b"", made.before).digests) == 2
