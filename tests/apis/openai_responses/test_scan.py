"""What the bytes of a request show without its contents being decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_responses.scan import FOR_GOOD, UNTIL_USER, hidden_tokens, known_prefix, scan
from proxy.model.scan import KnownPrefix, Scan
from proxy.wire.scan import NotUnderstood

USER = {"role": "user", "content": "How deep may she lie?"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "g" * 2000}
IMAGE = {"type": "input_image", "image_url": "data:,"}


def body(*items: Any, model: str = "gpt-5", **fields: Any) -> bytes:
    return json.dumps({"model": model, "input": list(items) or "hello", **fields}).encode()


def digests(found: Scan, seed: int = 7) -> Any:
    assert found.marks is not None
    marks = found.marks(seed)
    assert marks is not None
    return marks


def prefix(found: Scan, given: bytes) -> KnownPrefix:
    known = known_prefix(given, found, digests(found))
    assert known is not None
    return known


def test_a_request_is_scanned() -> None:
    given = body(USER, CALL, OUTPUT, instructions="Be brief.", max_output_tokens=99, stream=True, background=True)
    found = scan(given)
    assert (found.model, found.reserve, found.stream, found.background) == ("gpt-5", 99, True, True)
    assert found.seen.count == 4 and found.text == given
    assert found.most == len(given) + len(json.dumps(CALL))  # calls may be written again
    plain = scan(body())
    assert plain.most == len(body()) and plain.seen.count == 1 and not plain.stream and plain.reserve is None


@pytest.mark.parametrize(
    "given",
    [
        body({"role": "user", "content": [IMAGE]}),
        body({**OUTPUT, "output": [IMAGE]}),
        body({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}),
        body({"type": "item_reference", "id": "rs_1"}),
        body({"id": "rs_1"}),
        body({"type": "web_search_call", "id": "ws"}),
        body(previous_response_id="resp_1"),
        body(conversation={"id": "c"}),
        body(prompt={"id": "p"}),
        body(tools=[{"type": "web_search"}]),
        body(reasoning={"mode": "pro"}),
        body(text={"format": {"type": "json_schema", "schema": {"$ref": "#"}}}),
    ],
)
def test_what_the_bytes_do_not_bound_is_not_bounded(given: bytes) -> None:
    assert scan(given).most is None


@pytest.mark.parametrize(
    "given",
    [
        body(previous_response_id=None, prompt=None, conversation=None),
        body(tools=[{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}]),
        body(tools=None, reasoning={"effort": "high"}),
        body({"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
        body({"role": "user", "content": 'he wrote "input_image" there'}),
        body(USER, THOUGHT),
    ],
)
def test_all_else_is_bounded(given: bytes) -> None:
    assert scan(given).most is not None


def test_reasoning_is_read_until_the_user_speaks_again_and_by_some_models_for_good() -> None:
    assert scan(body(USER, THOUGHT, CALL, OUTPUT)).seen.hidden == UNTIL_USER
    assert scan(body(USER, THOUGHT, CALL, OUTPUT)).marks is None
    assert scan(body(USER, THOUGHT, USER)).seen.hidden == 0
    assert scan(body(USER, THOUGHT, USER, model="openai/gpt-5.6-luna")).seen.hidden == FOR_GOOD
    assert scan(body(USER, THOUGHT, USER, reasoning={"context": "all_turns"})).seen.hidden == FOR_GOOD
    assert scan(body({"type": "compaction", "encrypted_content": "g"}, USER)).seen.hidden == FOR_GOOD
    assert (hidden_tokens(0), hidden_tokens(900), hidden_tokens(2880)) == (200, 10, 288)


def test_equal_items_have_equal_digests_and_others_do_not() -> None:
    once, again = digests(scan(body(USER, CALL, OUTPUT))), digests(scan(body(USER, CALL, OUTPUT, store=False)))
    assert once.latest == again.latest and once.count == 3
    assert digests(scan(body(USER, CALL, {**OUTPUT, "output": "y"}))).latest[:2] == once.latest[:2]
    assert digests(scan(body(USER, CALL, {**OUTPUT, "output": "y"}))).latest[2] != once.latest[2]
    told = digests(scan(body(USER, instructions="x")))
    assert told.count == 2 and told.first != once.first
    assert scan(body(USER)).head != scan(body(USER, instructions="x")).head
    assert scan(body(USER)).head != scan(body(USER, truncation="auto")).head
    assert scan(body({"role": "user", "content": [IMAGE]})).marks is None
    assert scan(body(USER, previous_response_id="resp_1")).marks is None


def test_a_grown_conversation_is_scanned_from_where_it_grew() -> None:
    before, after = body(USER, CALL, OUTPUT, instructions="x"), body(USER, CALL, OUTPUT, USER, USER, instructions="x")
    known = prefix(scan(before), before)
    assert known.lead == b'"x"' and known.seen.count == 4
    grown, whole = scan(after, known), scan(after)
    assert grown.known is known and grown.new < whole.new and grown.seen == whole.seen
    assert digests(grown).latest == digests(whole).latest
    assert digests(grown, 8).latest == digests(whole, 8).latest
    further = prefix(grown, after)
    assert (further.end, further.seen, further.lead) == (prefix(whole, after).end, whole.seen, b'"x"')


def test_a_prefix_is_not_taken_where_something_else_may_stand() -> None:
    given = body(USER, CALL)
    known = prefix(scan(given), given)
    assert scan(body(USER, CALL, USER, instructions="x"), known).known is None
    assert scan(given[: known.end] + b', {"type":"custom_tool_call","input":""}]}', known).known is None
    with pytest.raises(NotUnderstood):
        scan(given[: known.end] + b', {"role":', known)
    text = body()
    assert known_prefix(text, scan(text), digests(scan(text))) is None
    assert known_prefix(given, scan(given, known), known.marks) is None  # nothing is new


@pytest.mark.parametrize(
    "given",
    [
        *(b"", b"[]", b"{", b'{"model":"m"}', b'{"input":"x"}', b'{"model":1,"input":"x"}'),
        *(b'{"model":"m","input":5}', b'{"model":"m","input":["x"]}', b'{"model":"m","input":[{"type":1}]}'),
        *(b'{"model":"m","input":"x","max_output_tokens":1.5}', b'{"model":"m","input":"x","tools":5}'),
    ],
)
def test_what_is_no_request_is_not_understood(given: bytes) -> None:
    with pytest.raises(NotUnderstood):
        scan(given)


def test_a_request_to_compact_is_known_by_its_last_item() -> None:
    trigger = {"type": "compaction_trigger"}
    assert scan(body(USER, trigger)).compacts and not scan(body(trigger, USER)).compacts and not scan(body()).compacts
    given = body(USER, instructions="x")
    grown = scan(body(USER, trigger, instructions="x"), prefix(scan(given), given))
    assert grown.compacts and grown.known is not None


def test_our_own_key_is_seen() -> None:
    assert scan(body({**USER, "plimsoll": {"pin": True}})).seen.keyed and not scan(body(USER)).seen.keyed
