"""The scan of a request of Ollama's API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.ollama import request
from proxy.apis.ollama.scan import known_prefix, scan
from proxy.model.scan import PrefixDigest
from proxy.wire.scan import NotUnderstood

USER = {"role": "user", "content": "hello"}
CALL = {"function": {"name": "f", "arguments": {"n": 1}}}
PICTURE = {**USER, "images": ["AAAA"]}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "llama3.2", **fields, "messages": messages}).encode()


def digest(raw: bytes, seed: int = 1) -> PrefixDigest:
    marks = scan(raw).marks
    assert marks is not None
    found = marks(seed)
    assert found is not None
    return found


def test_the_model_the_limits_and_the_stream_are_read() -> None:
    found = scan(body(USER, options={"num_predict": 9, "num_ctx": 4096, "top_k": 3}))
    assert (found.model, found.reserve, found.window, found.stream) == ("llama3.2", 9, 4096, True)
    assert not scan(body(USER, stream=False)).stream and scan(body(USER, stream=None)).stream


@pytest.mark.parametrize("options", [None, {}, {"num_predict": -1, "num_ctx": 0}, {"num_predict": -2}])
def test_what_sets_no_limit_is_none(options: Any) -> None:
    found = scan(body(USER, options=options))
    assert found.reserve is None and found.window is None


def test_a_plain_body_is_bounded_by_its_bytes_and_what_is_written_again_by_twice() -> None:
    raw = body(USER, tools=[{"type": "function", "function": {"name": "f"}}])
    assert scan(raw).most == len(raw)
    raw = body({"role": "assistant", "content": "", "tool_calls": [CALL]})
    assert scan(raw).most == len(raw) + len(json.dumps(CALL))


def test_images_and_references_have_no_bound() -> None:
    found = scan(body(PICTURE))
    assert found.most is None and found.marks is None and found.seen.opaque
    assert scan(body({**USER, "images": []}, {**USER, "images": None})).most is not None
    assert scan(body(USER, tools=[{"$ref": "#"}])).most is None


def test_other_tools_make_another_head() -> None:
    others: list[dict[str, Any]] = [{}, {"tools": [{}]}, {"tools": []}]
    heads = {scan(body(USER, **fields)).head for fields in others}
    assert len(heads) == 3 and all(head.startswith(b"ollama\0") for head in heads)


def test_everything_that_a_count_depends_on_is_hashed() -> None:
    told: list[dict[str, Any]] = [
        USER,
        {**USER, "role": "tool"},
        {**USER, "role": "us\\er"},
        {**USER, "content": "other"},
        {**USER, "thinking": "t"},
        {**USER, "tool_name": "t"},
        {**USER, "tool_calls": [CALL]},
    ]
    assert len({digest(body(m)).latest[-1] for m in told}) == len(told)


def test_a_grown_conversation_is_scanned_from_where_it_was_known() -> None:
    first, grown = body(USER), body(USER, {"role": "assistant", "content": "a"}, PICTURE)
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None and grown.startswith(first[: known.end])
    found = scan(grown, known)
    assert b"hello" in found.text and found.text.count(b"hello") == 1 and found.seen.count == 3 and found.seen.opaque
    rest = request.parse(found.text, plain=True, known=known)
    assert [m.index for m in rest.messages] == [1, 2]


def test_digests_of_a_grown_conversation_are_those_of_the_whole() -> None:
    first, grown = body(USER), body(USER, USER)
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None and (marks := scan(grown, known).marks) is not None
    assert (again := marks(1)) is not None
    assert list(again.latest) == list(digest(grown).latest) and again.count == 2


def test_what_does_not_continue_a_known_prefix_is_scanned_whole() -> None:
    first = body(USER)
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None
    assert scan(first[: known.end] + b"]}", known).seen.count == 1
    for rest in (b"x]}", b",{]}"):
        with pytest.raises(NotUnderstood):
            scan(first[: known.end] + rest, known)


def test_the_proxys_own_key_is_seen() -> None:
    assert scan(body({**USER, "plimsoll": {"pin": True}})).seen.keyed and not scan(body(USER)).seen.keyed


@pytest.mark.parametrize("raw", [b"", b" ", b"{}", b'{"model":"m"}', b'{"model":"m","messages":{}}', b"\xff"])
def test_what_is_no_request_is_not_understood(raw: bytes) -> None:
    with pytest.raises(NotUnderstood):
        scan(raw)
    with pytest.raises(NotUnderstood):
        scan(body(USER, options={"num_ctx": 1.5}))


def test_no_messages_are_scanned_as_none() -> None:
    assert scan(body()).seen.count == 0
