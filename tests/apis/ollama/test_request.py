"""A request of Ollama's API as a Prompt, and a Draft as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from proxy.apis.ollama.request import parse, recognises, render, without_extension
from proxy.fit.blocks import runs
from proxy.fit.plan import plan, start
from proxy.model import oversized_json
from proxy.model.conversation import Call, Kind, Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, Plan
from proxy.model.structs import replace
from proxy.wire.ollama.options import without_stream, without_truncation
from proxy.wire.scan import NotUnderstood
from tests.laws.cases import Case, cases
from tests.laws.dialects import OLLAMA
from tests.makers import WordMeter, facts, ladder

HELLO = {"role": "user", "content": "hello"}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields, "messages": messages or (HELLO,)}).encode()


def calls(*names: str) -> dict[str, Any]:
    made = [{"function": {"name": name, "arguments": {}}} for name in names]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(name: str = "") -> dict[str, Any]:
    return {"role": "tool", "content": "r", **({"tool_name": name} if name else {})}


def planned(sent: Prompt) -> Plan:
    """A plan that changed nothing, for a draft to be put into."""
    return plan(sent, ladder(), facts(10_000))


def test_a_request_is_read() -> None:
    told = [{"role": "system", "content": "s"}, HELLO, {"role": "odd", "content": "x"}]
    found = parse(body(*told, options={"num_predict": 9}, x_own=[1]), pins=[1])
    assert (found.model, found.stream, found.reply.limit, found.api) == ("m", True, 9, "ollama")
    assert [m.kind for m in found.messages] == [Kind.INSTRUCTION, Kind.USER, Kind.OTHER]
    assert [json.loads(m.raw) for m in found.messages] == told and found.pins == frozenset({1})
    assert found.head["x_own"] == b"[1]" and not parse(body(stream=False)).stream
    assert parse(body(options=None)).reply.limit is None
    assert parse(body(options={"num_predict": -1})).reply.limit is None


def test_a_body_is_recognised_by_what_only_this_api_has() -> None:
    own: list[dict[str, Any]] = [{"options": {}}, {"think": True}, {"keep_alive": 5}]
    for fields in own:
        assert recognises(raw_fields(body(**fields)))
    assert not recognises(raw_fields(body())) and not recognises(raw_fields(b'{"options":{}}'))


def test_results_belong_to_calls_by_the_tools_name_else_by_their_order() -> None:
    told = parse(body(HELLO, calls("f", "g"), result("g"), result(), calls("f", "f"), result("f"), result("f")))
    assert told.messages[1].calls == (Call("1.0", "f"), Call("1.1", "g"))
    assert [m.answers for m in told.messages] == [(), (), ("1.1",), ("1.0",), (), ("4.0",), ("4.1",)]
    assert [[m.index for m in run] for run in runs(told.messages)] == [[0], [1, 2, 3], [4, 5, 6]]


def test_a_result_too_many_stands_alone_and_is_read_with_what_is_before_it() -> None:
    told = parse(body(HELLO, calls("f"), result(), result(), HELLO, result()))
    assert [m.answers for m in told.messages] == [(), (), ("1.0",), ("",), (), ("",)]
    assert [m.index for m in parse(body(HELLO, calls("f"), result()), start=2).messages] == [2]
    assert parse(body(HELLO, calls("f"), result()), start=2).messages[0].answers


def test_what_a_model_must_be_able_to_do_is_read_off_the_request() -> None:
    picture = parse(body({**HELLO, "images": ["AAAA"]}))
    assert picture.needs == {"vision"} and picture.opaque and not parse(body()).opaque
    assert parse(body(tools=[{}])).needs == {"tools"} and parse(body(tools=[])).needs == frozenset()


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":"m"}',
        b'{"model":"m","messages":[]}',
        b'{"model":1,"messages":[{"role":"user"}]}',
        b'{"model":"m","messages":[{"role":"user"}],"options":{"num_predict":"x"}}',
        b'{"model":"m","messages":[{"role":1}]}',
        b"\xff",
    ],
)
def test_what_is_no_request_is_not_understood(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse(wrong)


def test_what_was_not_changed_keeps_its_bytes() -> None:
    raw = b'{"x":[ 1.50 ],"model":"m","messages":[{"role" : "user","content":"a"}],"options":{ "num_predict":5}}'
    sent = parse(raw)
    assert render(sent, planned(sent)) == raw


def test_model_limit_and_messages_are_written_where_they_changed_and_nothing_is_truncated() -> None:
    sent = parse(body(HELLO, {"role": "assistant", "content": "a"}, HELLO, options={"top_k": 1.50, "num_predict": 50}))
    made = planned(sent)
    less = replace(made.draft.with_blocks(made.draft.blocks[1:]), model="n", reply=7)
    found = json.loads(render(sent, replace(made, draft=less)))
    assert found == {
        "model": "n",
        "options": {"top_k": 1.5, "num_predict": 7},
        "messages": [{"role": "assistant", "content": "a"}, HELLO],
        "truncate": False,
    }


def test_what_the_client_says_of_truncation_stays() -> None:
    sent = parse(body(HELLO, HELLO, truncate=True))
    made = planned(sent)
    less = made.draft.with_blocks(made.draft.blocks[1:])
    assert json.loads(render(sent, replace(made, draft=less)))["truncate"] is True
    for own in (True, False, None):
        raw = body(truncate=own)
        assert without_truncation(raw) is raw


def test_a_request_that_is_to_be_refused_is_the_same_otherwise() -> None:
    assert json.loads(without_truncation(body(a=1))) == json.loads(body(a=1)) | {"truncate": False}


@given(case=cases(dialects=[OLLAMA]))
def test_a_request_written_again_is_the_same_request(case: Case) -> None:
    sent = case.prompt
    made: Draft = start(sent, ladder(), Facts(Window(10**6), WordMeter()))
    assert parse(render(sent, Plan(made, made)), case.pins) == sent
    moved = replace(made, blocks=tuple(made.blocks))  # other blocks of the same messages
    again = parse(render(sent, Plan(replace(made, blocks=()), moved)), case.pins)
    assert again.messages == sent.messages


def test_our_key_is_taken_out_and_says_what_is_pinned() -> None:
    pinned = {**HELLO, "plimsoll": {"pin": True}}
    plain, found = without_extension(body(HELLO, pinned, {**HELLO, "plimsoll": 1}))
    assert found == {1} and json.loads(plain) == json.loads(body(HELLO, HELLO, HELLO))
    assert without_extension(plain) == (plain, frozenset())


def test_a_request_without_its_stream_says_so() -> None:
    for fields in ({}, {"stream": True}):
        assert json.loads(without_stream(body(**fields))) == json.loads(body(stream=False))


@pytest.mark.parametrize("change", [without_extension, without_stream, without_truncation])
def test_what_is_no_json_is_not_changed(change: Any) -> None:
    with pytest.raises(NotUnderstood):
        change(b'{"messages":')


def test_a_body_too_long_to_be_decoded_at_once_is_read_and_written_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = body({"role": "user", "content": "x" * 900}, {**HELLO, "plimsoll": {"pin": True}}, stream=True)
    monkeypatch.setattr(oversized_json, "LONGEST", 100)
    monkeypatch.setattr(oversized_json, "OUTSIZE", 100)
    sent = parse(raw)
    assert [len(m.raw) > 900 for m in sent.messages] == [True, False]
    assert json.loads(render(sent, planned(sent))) == json.loads(raw)
    assert json.loads(without_truncation(raw)) == json.loads(raw) | {"truncate": False}
    assert without_extension(raw)[1] == {1}


def test_a_call_without_a_function_has_no_name() -> None:
    told = parse(body(HELLO, {"role": "assistant", "tool_calls": [{}]}))
    assert told.messages[1].calls == (Call("1.0", ""),)
