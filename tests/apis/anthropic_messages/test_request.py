"""A request of the Messages API as a Prompt, and a Draft as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from proxy.apis.anthropic_messages.request import parse, recognises, render, without_extension, without_stream
from proxy.fit.plan import plan, start
from proxy.model import oversized_json
from proxy.model.conversation import Call, Kind, Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, Plan
from proxy.model.structs import replace
from proxy.wire.scan import NotUnderstood
from tests.apis.anthropic_messages.test_messages import result, text, use
from tests.laws.cases import Case, cases
from tests.laws.dialects import MESSAGES
from tests.makers import WordMeter, facts, ladder

HELLO = {"role": "user", "content": "hello"}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields, "messages": messages or (HELLO,)}).encode()


def planned(sent: Prompt) -> Plan:
    """A plan that changed nothing, for a draft to be put into."""
    return plan(sent, ladder(), facts(10_000))


def test_a_request_is_read() -> None:
    told: list[dict[str, Any]] = [
        HELLO,
        {"role": "assistant", "content": [text("a"), use("t1"), use("t2")]},
        {"role": "user", "content": [result("x", "t1"), result("y", "t2")]},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [result("x", "t3"), text("c")]},
        {"role": "system", "content": "s"},
    ]
    found = parse(body(*told, system="be brief", stream=True, max_tokens=9, x_own=[1]), pins=[1])
    assert (found.model, found.stream, found.reply.limit, found.reply.field, found.api) == (
        "m",
        True,
        9,
        "max_tokens",
        "messages",
    )
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "user", "assistant", "user", "system"]
    kinds = [Kind.INSTRUCTION, Kind.USER, Kind.ASSISTANT, Kind.RESULT, Kind.ASSISTANT, Kind.USER, Kind.OTHER]
    assert [m.kind for m in found.messages] == kinds
    assert [m.index for m in found.messages] == list(range(7)) and found.pins == frozenset({1})
    assert found.messages[2].calls == (Call("t1", "f"), Call("t2", "f"))
    assert found.messages[3].answers == ("t1", "t2") and found.messages[5].answers == ("t3",)
    assert found.messages[0].raw == b'"be brief"' and [json.loads(m.raw) for m in found.messages[1:]] == told
    assert found.head["x_own"] == b"[1]"


def test_what_a_program_adds_behind_results_is_no_users() -> None:
    reminder = text("<system-reminder>\nThere is a list of tasks.\n</system-reminder>\n")
    for blocks, kind in (([reminder], Kind.RESULT), ([reminder, text("Stop.")], Kind.USER), ([text("")], Kind.USER)):
        assert parse(body({"role": "user", "content": [result("x"), *blocks]})).messages[0].kind is kind
    assert parse(body({"role": "user", "content": [reminder]})).messages[0].kind is Kind.USER


def test_a_body_is_recognised_by_what_other_apis_do_not_have() -> None:
    for fields in ({"system": "s"}, {"tools": [{"name": "f", "input_schema": {}}]}):
        assert recognises(raw_fields(body(**fields)))
    assert recognises(raw_fields(body({"role": "assistant", "content": [use()]}).replace(b'": "', b'":"')))
    assert not recognises(raw_fields(body())) and not recognises({})


def test_a_strange_role_is_nobodys() -> None:
    assert parse(body({"role": "tool", "content": "x"})).messages[0].kind is Kind.OTHER


def test_a_compaction_stands_for_all_before_it() -> None:
    compaction = {"role": "assistant", "content": [{"type": "compaction", "content": "summary"}, text("a")]}
    assert [m.compacts for m in parse(body(HELLO, compaction, HELLO)).messages] == [False, True, False]


@pytest.mark.parametrize(("limit", "ask"), [(9, 9), (9.0, 9), (0, None), (None, None)])
def test_the_reply_limit(limit: float | None, ask: int | None) -> None:
    assert parse(body(max_tokens=limit)).reply.limit == ask


@pytest.mark.parametrize(
    ("thinking", "least"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, 1025),
        ({"type": "adaptive"}, 0),
        ({"budget_tokens": "x"}, 0),
        (None, 0),
    ],
)
def test_a_thinking_budget_is_the_least_reply(thinking: Any, least: int) -> None:
    assert parse(body(thinking=thinking)).reply.least == least


@pytest.mark.parametrize("thinking", [b'{"budget_tokens":%b}' % (b"9" * 5_000), b'"\xff"', b"1e999", b"[1]"])
def test_thinking_that_cannot_be_read_has_no_budget(thinking: bytes) -> None:
    assert parse(body(thinking=0).replace(b'"thinking": 0', b'"thinking": ' + thinking)).reply.least == 0


def test_what_a_model_must_be_able_to_do_is_read_off_the_request() -> None:
    image = {"role": "user", "content": [{"type": "image", "source": {}}]}
    assert parse(body(image)).needs == {"vision"} and parse(body(image)).opaque
    assert parse(body(tools=[{"name": "f"}])).needs == {"tools"} and parse(body(tools=[])).needs == frozenset()
    schema = {"type": "json_schema", "schema": {}}
    assert parse(body(output_format=schema)).needs == parse(body(output_config={"format": schema})).needs == {"schema"}


def test_a_prompt_that_the_upstream_shortens_itself_is_managed() -> None:
    def managed(kind: str) -> bool:
        return parse(body(context_management={"edits": [{"type": kind}]})).managed

    assert managed("clear_tool_uses_20250919") and managed("compact_20260112")
    assert not managed("clear_thinking_20251015") and not parse(body()).managed


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":"m"}',
        b'{"model":"m","messages":[]}',
        b'{"model":1,"messages":[{"role":"user"}]}',
        b'{"model":"m","messages":[{"role":"user"}],"max_tokens":"x"}',
        b'{"model":"m","messages":[{"role":1}]}',
        b"\xff",
    ],
)
def test_what_is_no_request_is_not_understood(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse(wrong)


def test_what_is_new_can_be_read_alone_with_the_system_prompt() -> None:
    found = parse(body(HELLO, HELLO, HELLO, system="s"), start=2)
    assert [m.index for m in found.messages] == [0, 2, 3]


def test_what_was_not_changed_keeps_its_bytes() -> None:
    raw = b'{"x":[ 1.50 ],"model":"m","messages":[{"role" : "user","content":"a"}],"system":"s","max_tokens":5}'
    sent = parse(raw)
    assert render(sent, planned(sent)) == raw


def test_model_limit_system_and_messages_are_written_where_they_changed() -> None:
    sent = parse(body(HELLO, {"role": "assistant", "content": "a"}, HELLO, system="s", max_tokens=50))
    made = planned(sent)
    system = replace(made.draft.blocks[0], messages=(replace(sent.messages[0], raw=b'"t"'),))
    less = replace(made.draft.with_blocks([system, *made.draft.blocks[2:]]), model="n", reply=7)
    found = json.loads(render(sent, replace(made, draft=less)))
    assert found == {
        "model": "n",
        "system": "t",
        "max_tokens": 7,
        "messages": [{"role": "assistant", "content": "a"}, HELLO],
    }
    assert list(found) == ["model", "system", "max_tokens", "messages"]


ENABLED, ADAPTIVE = {"type": "enabled", "budget_tokens": 2_000}, {"type": "adaptive"}
KEEPS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
CLEARS = {"edits": [{"type": "clear_tool_uses_20250919"}]}
RUN = ({"role": "assistant", "content": [use("t1")]}, {"role": "user", "content": [result("x", "t1")]})


@pytest.mark.parametrize(
    ("turns", "model", "fields", "gone"),
    [
        (RUN, "n", {"thinking": ENABLED, "context_management": KEEPS}, {"thinking", "context_management"}),
        (RUN, "n", {"thinking": ENABLED, "context_management": CLEARS}, {"thinking"}),
        (RUN, "n", {"thinking": ADAPTIVE, "context_management": KEEPS}, set()),
        (RUN, "m", {"thinking": ENABLED, "context_management": KEEPS}, set()),
        ((*RUN, {"role": "assistant", "content": "a"}, HELLO), "n", {"thinking": ENABLED}, set()),
        ((), "n", {"thinking": ENABLED}, set()),
    ],
)
def test_W9_a_run_of_tools_without_thinking_moves_to_another_model_without_it(
    turns: tuple[dict[str, Any], ...], model: str, fields: dict[str, Any], gone: set[str]
) -> None:
    sent = parse(body(HELLO, *turns, max_tokens=5_000, **fields))
    made = planned(sent)
    found = json.loads(render(sent, replace(made, draft=replace(made.draft, model=model))))
    assert {*sent.head} - {*found} == gone and found["model"] == model


def test_without_a_system_prompt_only_messages_are_written() -> None:
    sent = parse(body(HELLO, HELLO))
    made = planned(sent)
    less = made.draft.with_blocks(made.draft.blocks[1:])
    assert json.loads(render(sent, replace(made, draft=less))) == {"model": "m", "messages": [HELLO]}


@given(case=cases(dialects=[MESSAGES]))
def test_a_request_written_again_is_the_same_request(case: Case) -> None:
    sent = case.prompt
    made: Draft = start(sent, ladder(), Facts(Window(10**6), WordMeter()))
    assert parse(render(sent, Plan(made, made)), case.pins) == sent
    moved = replace(made, blocks=tuple(made.blocks))  # other blocks of the same messages
    again = parse(render(sent, Plan(replace(made, blocks=()), moved)), case.pins)
    assert again.messages == sent.messages


def test_our_key_is_taken_out_and_says_what_is_pinned() -> None:
    pinned = {**HELLO, "plimsoll": {"pin": True}}
    for fields, pins in (({}, {1}), ({"system": "s"}, {2})):
        plain, found = without_extension(body(HELLO, pinned, {**HELLO, "plimsoll": 1}, **fields))
        assert found == pins and json.loads(plain) == json.loads(body(HELLO, HELLO, HELLO, **fields))
        assert without_extension(plain) == (plain, frozenset())


def test_a_request_without_its_stream_is_the_same_otherwise() -> None:
    assert json.loads(without_stream(body(stream=True, a=1))) == json.loads(body(a=1))


@pytest.mark.parametrize("change", [without_extension, without_stream])
def test_what_is_no_json_is_not_changed(change: Any) -> None:
    with pytest.raises(NotUnderstood):
        change(b'{"messages":')


def test_a_body_too_long_to_be_decoded_at_once_is_read_and_written_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = body({"role": "user", "content": "x" * 900}, {**HELLO, "plimsoll": {"pin": True}}, system="s", stream=True)
    monkeypatch.setattr(oversized_json, "LONGEST", 100)
    monkeypatch.setattr(oversized_json, "OUTSIZE", 100)
    sent = parse(raw)
    assert [len(m.raw) > 900 for m in sent.messages] == [False, True, False]
    assert render(sent, planned(sent)) == raw.replace(b": ", b":").replace(b", ", b",") or sent.head
    assert json.loads(without_stream(raw)) == {k: v for k, v in json.loads(raw).items() if k != "stream"}
    assert without_extension(raw)[1] == {2}


def test_a_thread_that_the_upstream_holds_stays_with_it() -> None:
    goes_on = parse(body(thread={"type": "continue", "previous_message_id": "msg_1"}))
    assert goes_on.stored.bound and goes_on.stored.continues == "msg_1"
    begun = parse(body(thread={"type": "create"}))
    assert begun.stored.bound and not begun.stored.continues
    for other in ({}, {"thread": 5, "container": "c"}, {"thread": {"previous_message_id": 5}}):
        assert not parse(body(**other)).stored.continues
