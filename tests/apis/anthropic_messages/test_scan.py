"""The scan of a request of the Messages API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import request
from proxy.apis.anthropic_messages.scan import known_prefix, scan
from proxy.model.scan import PrefixDigest
from proxy.wire.scan import NotUnderstood

USER = {"role": "user", "content": "hello"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, **fields, "messages": messages}).encode()


def digest(raw: bytes, seed: int = 1) -> PrefixDigest:
    marks = scan(raw).marks
    assert marks is not None
    found = marks(seed)
    assert found is not None
    return found


def test_the_model_the_limit_and_the_stream_are_read() -> None:
    found = scan(body(USER, stream=True))
    assert (found.model, found.reserve, found.stream) == ("claude-sonnet-4-5", 9, True)
    assert scan(body(USER, max_tokens=0)).reserve is None  # "0 = only warm the cache"


def test_a_plain_body_is_bounded_by_its_bytes() -> None:
    raw = body(USER, system="x", tools=[{"name": "f", "input_schema": {}}])
    assert scan(raw).most == len(raw)


def test_what_is_written_again_may_take_more_tokens_than_bytes() -> None:
    raw = body({"role": "assistant", "content": [USE]})
    assert scan(raw).most == len(raw) + len(json.dumps([USE]))


@pytest.mark.parametrize("content", [[IMAGE], [{"type": "document"}], [{"type": "container_upload"}]])
def test_parts_whose_cost_bytes_do_not_bound_are_opaque(content: list[dict[str, Any]]) -> None:
    found = scan(body({"role": "user", "content": content}))
    assert found.most is None and found.marks is None and found.seen.opaque
    again = {"role": "user", "content": content}
    assert scan(body(again, again)).seen.opaque


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "mcp_toolset"}]},
        {"mcp_servers": [{}]},
        {"container": "c"},
        {"thread": "t"},
    ],
)
def test_tools_and_state_of_the_server_have_no_bound(fields: dict[str, Any]) -> None:
    assert scan(body(USER, **fields)).most is None


def test_the_system_prompt_is_message_0_wherever_it_stands() -> None:
    assert scan(body(USER, system="x")).seen.count == 2 and scan(body(USER, system=None)).seen.count == 1
    before = json.dumps({"system": "x", "model": "m", "messages": [USER]}).encode()
    behind = json.dumps({"model": "m", "messages": [USER], "system": "x"}).encode()
    assert digest(before).latest == digest(behind).latest


def test_another_system_prompt_or_tool_makes_another_head() -> None:
    others: list[dict[str, Any]] = [{}, {"system": "x"}, {"system": "y"}, {"tools": [{}]}]
    heads = {scan(body(USER, **fields)).head for fields in others}
    assert len(heads) == 4 and all(head.startswith(b"messages\0") for head in heads)


def test_a_grown_conversation_is_scanned_from_where_it_was_known() -> None:
    first = body(USER, system="x", tools=[{"name": "f"}])
    grown = body(USER, {"role": "assistant", "content": "a"}, {"role": "user", "content": [IMAGE]}, system="x")
    grown = grown.replace(b'"system": "x"', b'"system": "x", "tools": [{"name": "f"}]')
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None and grown.startswith(first[: known.end])
    found = scan(grown, known)
    assert b"hello" not in found.text and found.seen.count == 4 and found.seen.opaque
    rest = request.parse(found.text, plain=True, known=known)
    assert [m.index for m in rest.messages] == [0, 2, 3] and rest.messages[0].raw == b'"x"'


def test_digests_of_a_grown_conversation_are_those_of_the_whole() -> None:
    first, grown = body(USER, system="x"), body(USER, USER, system="x")
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None
    marks = scan(grown, known).marks
    assert marks is not None and (again := marks(1)) is not None
    assert list(again.latest) == list(digest(grown).latest) and again.count == 3
    assert (other := marks(2)) is not None and list(other.latest) == list(digest(grown, 2).latest)


def test_what_does_not_continue_a_known_prefix_is_scanned_whole() -> None:
    first = body(USER)
    known = known_prefix(first, scan(first), digest(first))
    assert known is not None
    assert scan(first[: known.end] + b"]}", known).seen.count == 1
    cut = first[: known.end] + b"x]}"
    with pytest.raises(NotUnderstood):
        scan(cut, known)
    with pytest.raises(NotUnderstood):
        scan(first[: known.end] + b",{]}", known)


def test_an_invented_role_is_hashed_as_another() -> None:
    odd = {"role": "us\\er", "content": "hello"}
    assert digest(body(USER)).latest != digest(body(odd)).latest


def test_the_proxys_own_key_is_seen() -> None:
    assert scan(body({**USER, "plimsoll": {"pin": True}})).seen.keyed and not scan(body(USER)).seen.keyed


@pytest.mark.parametrize(
    "raw", [b"", b" ", b"{}", b'{"model":"m"}', b'{"model":"m","messages":{}}', b"\xff", b'{"model":']
)
def test_what_is_no_request_is_not_understood(raw: bytes) -> None:
    with pytest.raises(NotUnderstood):
        scan(raw)
    with pytest.raises(NotUnderstood):
        scan(body(USER, max_tokens=1.5))


def test_no_messages_are_scanned_as_none() -> None:
    assert scan(body()).seen.count == 0
