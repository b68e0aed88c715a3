"""A chat request as a Prompt, and a Draft as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.openai_chat.request import BINDING, NEEDS, SEARCHED, parse, render, without_extension, without_stream
from proxy.apis.openai_chat.scan import UNPROVABLE_PARTS, known_prefix, scan
from proxy.fit.plan import plan, start
from proxy.model.conversation import Call, Prompt
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, Plan
from proxy.model.structs import replace
from proxy.wire.scan import NotUnderstood
from tests.laws.cases import Case, cases
from tests.laws.dialects import CHAT
from tests.makers import WordMeter, assistant, body, facts, ladder, tool_round, user

HELLO = [user("hello")]


def asking(**fields: Any) -> bytes:
    return body(HELLO, **fields)


def planned(sent: Prompt) -> Plan:
    """A plan that changed nothing, for a draft to be put into."""
    return plan(sent, ladder(), facts(10_000))


# --- what is read of a request


def test_a_request_is_read() -> None:
    told = [user("hi"), *tool_round("call_1", "42", name="add"), assistant("done")]
    found = parse(body(told, stream=True, n=2, max_tokens=9, x_own=[1]), pins=[1])
    assert (found.model, found.stream, found.reply.limit, found.reply.field) == ("gpt-4o", True, 9, "max_tokens")
    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert [m.index for m in found.messages] == [0, 1, 2, 3] and found.pins == frozenset({1})
    assert found.messages[1].calls == (Call("call_1", "add"),) and found.messages[2].answers == ("call_1",)
    assert [json.loads(m.raw) for m in found.messages] == told
    assert found.head["x_own"] == b"[1]" and list(found.head)[:2] == ["model", "messages"]


def test_custom_tools_and_functions_of_old_are_calls_too() -> None:
    custom = {"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "grep", "input": "x"}}, {"id": "d"}]}
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    result = {"role": "function", "name": "f", "content": "1", "tool_call_id": "odd"}
    found = parse(body([custom, old, result])).messages
    assert found[0].calls == (Call("c", "grep"), Call("d", ""))
    assert found[1].calls == (Call("", "f"),) and found[2].answers == ("",)


def test_a_call_id_on_a_message_that_is_no_result_answers_nothing() -> None:
    assert parse(body([{"role": "user", "content": "x", "tool_call_id": "c"}])).messages[0].answers == ()


@pytest.mark.parametrize(
    ("fields", "ask", "field"),
    [
        ({}, None, "max_tokens"),
        ({"max_tokens": None}, None, "max_tokens"),
        ({"max_tokens": 5}, 5, "max_tokens"),
        ({"max_completion_tokens": 7}, 7, "max_completion_tokens"),
        ({"max_completion_tokens": 7, "max_tokens": 9}, 9, "max_completion_tokens"),
        ({"max_completion_tokens": None, "max_tokens": 9}, 9, "max_tokens"),
    ],
)
def test_the_reply_limit_is_the_larger_of_what_was_asked(fields: dict[str, Any], ask: int | None, field: str) -> None:
    found = parse(asking(**fields))
    assert (found.reply.limit, found.reply.field) == (ask, field)


@pytest.mark.parametrize(
    ("thinking", "floor"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, 2049),
        ({"type": "adaptive"}, 0),
        ({"type": "enabled", "budget_tokens": "many"}, 0),
        ({"budget_tokens": -1}, 0),
        (None, 0),
        ("on", 0),
    ],
)
def test_a_thinking_budget_is_the_least_reply(thinking: Any, floor: int) -> None:
    assert parse(asking(thinking=thinking)).reply.least == floor


def test_thinking_that_is_no_utf8_has_no_budget() -> None:
    sent = asking(thinking="canary").replace(b"canary", b"\xed\xa0\x80")
    assert parse(sent).reply.least == 0


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, set()),
        ({"tools": []}, set()),
        ({"tools": None}, set()),
        ({"tools": [{"type": "function"}]}, {"tools"}),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"response_format": {"type": "json_schema"}}, {"schema"}),
        ({"response_format": {"type": "json_object"}}, set()),
    ],
)
def test_what_a_model_must_be_able_to_do_is_read_off_the_request(fields: dict[str, Any], needs: set[str]) -> None:
    assert parse(asking(**fields)).needs == needs


def test_images_and_sound_need_a_model_for_them_and_are_opaque() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    sound = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    found = parse(body([{"role": "user", "content": [image, sound]}]))
    assert found.needs == {"vision", "audio"} and found.opaque
    told = parse(body([user('he wrote "image_url" there')]))
    assert told.needs == frozenset() and not parse(asking()).opaque


def test_a_prompt_that_is_not_opaque_has_no_mark_of_what_it_needs() -> None:
    marks = [*BINDING, *(mark for _, mark in NEEDS)]
    assert all(any(part in mark for part in UNPROVABLE_PARTS) for mark in marks)
    assert parse(asking(audio={"voice": "ash"})).stored.bound and not parse(asking()).stored.bound
    assert parse(asking(prediction={"type": "image_url"})).needs == {"vision"}


@pytest.mark.parametrize("size", [3, SEARCHED, 3 * SEARCHED])
def test_one_part_of_unknown_cost_among_long_messages_makes_a_prompt_opaque(size: int) -> None:
    plain, long = [user("x" * size) for _ in range(3)], {"type": "text", "text": "y" * size}
    for place in range(3):
        for kind, opaque in (("image_url", True), ("file", True), ("text", False)):
            asked = [*plain[:place], {"role": "user", "content": [long, {"type": kind, "text": "z"}]}, *plain[place:]]
            for _ in range(2):  # searched, and remembered
                assert parse(body(asked)).opaque is opaque


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b"{",
        b'{"model":"m"}',
        b'{"messages":[{"role":"user"}]}',
        b'{"model":"m","messages":[]}',
        b'{"model":"m","messages":{}}',
        b'{"model":5,"messages":[{"role":"user"}]}',
        b'{"model":"m","messages":["hi"]}',
        b'{"model":"m","messages":[{"content":"x"}]}',
        b'{"model":"m","messages":[{"role":"user"}],"\xff":1}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"m","messages":[{"role":"user"}],"max_tokens":"many"}',
        b'{"model":"m","messages":[{"role":"user"}],"max_tokens":1.5}',
        b'{"model":"m","messages":[{"role":"user"}],"max_tokens":1' + b"0" * 400 + b"}",
        b'{"model":"m","messages":[{"role":"user"}],"max_tokens":true}',
        b'{"model":"m","messages":[{"role":"user"}],"n":0}',
        b'{"model":"m","messages":[{"role":"user"}],"n":true}',
        b'{"model":"m","messages":[{"role":"assistant","tool_calls":5}]}',
    ],
)
def test_what_is_no_request_that_we_understand_is_said_to_be_none(wrong: bytes) -> None:
    with pytest.raises(NotUnderstood) as caught:
        parse(wrong)
    assert str(caught.value)


@pytest.mark.parametrize(
    ("fields", "ask", "field"),
    [
        (b'"max_tokens":-1', None, "max_tokens"),
        (b'"max_tokens":0,"max_completion_tokens":7', 7, "max_completion_tokens"),
        (b'"max_completion_tokens":-1,"max_tokens":1e2', 100, "max_tokens"),
    ],
)
def test_a_limit_under_one_is_none_and_keeps_its_bytes(fields: bytes, ask: int | None, field: str) -> None:
    asked = parse(b'{"model":"m",' + fields + b',"messages":[{"role":"user","content":"x"}]}')
    assert (asked.reply.limit, asked.reply.field) == (ask, field)
    first = plan(asked, ladder(), facts(1000))
    draft = replace(first.draft, reply=None if ask is None else ask - 1)
    sent = render(asked, replace(first, draft=draft))
    for one in fields.split(b","):
        name, _, value = one.partition(b":")
        assert name + b":" + (value if float(value) < 1 else b"%d" % ((ask or 0) - 1)) in sent


def test_an_error_tells_nothing_of_the_content() -> None:
    for wrong in (b'{"model":"m","messages":[{"role":"user","content":"secret \\ud800"}]}', b'{"model":"secret" x}'):
        with pytest.raises(NotUnderstood) as caught:
            parse(wrong)
        assert "secret" not in str(caught.value)


def test_what_is_new_can_be_read_alone_with_the_first_instructions() -> None:
    told = [user("a"), {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, user("b"), user("c")]
    assert [m.index for m in parse(body(told), start=4).messages] == [1, 4]
    assert [m.index for m in parse(body([user("a"), user("b")]), start=1).messages] == [1]
    image = [{"role": "user", "content": [{"type": "image_url"}]}]
    assert parse(body(image)).opaque and not parse(body(image), plain=True).opaque


# --- what is written again


def test_what_was_not_changed_keeps_its_bytes() -> None:
    told = b'{ "model" : "m", "messages":[ {"role":"user","content":"h\\u00e9"} ], "temperature": 1.0, "x":{"a":1e2} }'
    sent = parse(told)
    assert render(sent, planned(sent)) == (
        b'{"model":"m","messages":[ {"role":"user","content":"h\\u00e9"} ],"temperature":1.0,"x":{"a":1e2}}'
    )


def drafted(told: bytes, **changes: Any) -> dict[str, Any]:
    sent = parse(told)
    made = planned(sent)
    found: dict[str, Any] = json.loads(render(sent, replace(made, draft=replace(made.draft, **changes))))
    return found


def test_another_model_is_named() -> None:
    assert drafted(asking(), model="other é")["model"] == "other é"


def test_a_lowered_limit_stands_in_the_field_that_the_client_used() -> None:
    assert drafted(asking(max_completion_tokens=50), reply=20) == {
        "model": "gpt-4o",
        "messages": HELLO,
        "max_completion_tokens": 20,
    }


@pytest.mark.parametrize(
    ("fields", "field", "sent"),
    [
        ({"max_tokens": 900}, "max_completion_tokens", {"max_completion_tokens": 900}),
        ({"max_completion_tokens": 900}, "max_tokens", {"max_tokens": 900}),
        ({"max_tokens": 900}, None, {"max_tokens": 900}),
        ({"max_tokens": 900}, "max_tokens", {"max_tokens": 900}),
        ({"max_tokens": None}, "max_completion_tokens", {"max_completion_tokens": None}),
        ({"max_tokens": 900, "max_completion_tokens": None}, "max_completion_tokens", {"max_completion_tokens": 900}),
        ({"max_tokens": 9, "max_completion_tokens": 8}, "max_completion_tokens", {"max_completion_tokens": 8}),
        ({}, "max_completion_tokens", {}),
    ],
)
def test_a_model_that_was_switched_to_gets_the_limit_in_its_own_field(
    fields: dict[str, Any], field: str | None, sent: dict[str, Any]
) -> None:
    asked = parse(asking(model="m", temperature=0.5, **fields, seed=1))
    made = planned(asked)
    draft = replace(made.draft, model="other", window=replace(made.draft.window, limit_field=field))
    found = json.loads(render(asked, replace(made, draft=draft)))
    assert found.pop("messages") == HELLO
    assert found == {"model": "other", "temperature": 0.5, **sent, "seed": 1}
    stays = replace(draft, model="m")  # what was not moved keeps the client's own field, right or wrong
    assert fields.items() <= json.loads(render(asked, replace(made, draft=stays))).items()


def test_of_two_limits_only_those_over_the_reply_are_lowered() -> None:
    found = drafted(asking(max_completion_tokens=50, max_tokens=10), reply=20)
    assert (found["max_completion_tokens"], found["max_tokens"]) == (20, 10)
    found = drafted(asking(max_completion_tokens=None, max_tokens=50), reply=20)
    assert (found["max_completion_tokens"], found["max_tokens"]) == (None, 20)


def test_a_limit_is_never_added() -> None:
    assert "max_tokens" not in drafted(asking(), reply=20)


def test_dropped_messages_are_gone_and_the_others_keep_their_bytes() -> None:
    told = b'{"model":"m","messages":[{"role":"user","content":"a"} , { "role": "user" ,"content":"b\\n"}],"n":1}'
    sent = parse(told)
    made = planned(sent)
    less = made.draft.with_blocks(made.draft.blocks[1:])
    assert render(sent, replace(made, draft=less)) == (
        b'{"model":"m","messages":[{ "role": "user" ,"content":"b\\n"}],"n":1}'
    )


@given(case=cases(dialects=[CHAT]))
def test_a_request_written_again_is_the_same_request(case: Case) -> None:
    sent = case.prompt
    made: Draft = start(sent, ladder(), Facts(Window(10**6), WordMeter()))
    assert parse(render(sent, Plan(made, made)), case.pins) == sent
    moved = replace(made, blocks=tuple(made.blocks))  # other blocks of the same messages
    again = parse(render(sent, Plan(replace(made, blocks=()), moved)), case.pins)
    assert again.messages == sent.messages


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_any_other_field_is_kept_in_its_place(extra: dict[str, Any]) -> None:
    told = {"first": 1, **{f"x{k}": v for k, v in extra.items()}, "model": "m", "messages": HELLO, "last": None}
    sent = parse(msgspec.json.encode(told))
    assert list(json.loads(render(sent, planned(sent))).items()) == list(told.items())


# The key of our own.


def test_our_key_is_taken_out_and_says_what_is_pinned() -> None:
    body = (
        b'{ "model" : "m", "messages":[ {"role":"user","content":"a\\u00e9", "plimsoll": {"pin": true} },'
        b'{"plimsoll":{"pin":false},"role":"assistant","content":"b","x":1.50},{"role":"user","content" : "c"},'
        b'{"role":"user","content":"d","plimsoll":null}, {"role":"user","content":"e","plimsoll":{"pin":1}},'
        b'{"role":"user","content":"f","plimsoll":"pin"}],"n":1}'
    )
    assert scan(body).seen.keyed
    plain, pins = without_extension(body)
    assert pins == {0}
    assert plain == (
        b'{"model":"m","messages":[{"role":"user","content":"a\\u00e9"},'
        b'{"role":"assistant","content":"b","x":1.50},{"role":"user","content":"c"},'
        b'{"role":"user","content":"d"},{"role":"user","content":"e"},{"role":"user","content":"f"}],"n":1}'
    )
    assert not scan(plain).seen.keyed and without_extension(plain) == (plain, frozenset())


@pytest.mark.parametrize("lead", [[{"role": "system", "content": "s"}], []])
def test_what_is_new_is_parsed_without_what_is_known(lead: list[dict[str, Any]]) -> None:
    old, new = [*lead, user("a"), *tool_round("c", "r")], [assistant("b"), user("d")]
    first = scan(body(old))
    assert first.marks is not None
    marks = first.marks(7)
    assert marks is not None
    grown = body([*old, *new], n=2)
    known = known_prefix(body(old), first, marks)
    found = parse(scan(grown, known).text, plain=True, known=known)
    whole = parse(grown)
    assert [m.index for m in found.messages] == [*range(len(lead)), len(old), len(old) + 1]
    assert all(m == whole.messages[m.index] for m in found.messages)


def test_a_body_that_is_no_request_holds_no_key_of_ours() -> None:
    with pytest.raises(NotUnderstood):
        without_extension(b'{"messages":[1]}')


def test_a_request_without_its_stream_is_the_same_otherwise() -> None:
    messages = b'"messages":[ {"role":"user","content":"\\u00e9"} ]'
    written = without_stream(b'{"model":"m", "stream" : true,' + messages + b',"stream_options":{"a":1},"x":1.0}')
    assert written == b'{"model":"m",' + messages + b',"x":1.0}'
    with pytest.raises(NotUnderstood):
        without_stream(b"[]")


def test_of_a_very_long_body_what_is_not_changed_keeps_its_bytes_too() -> None:
    long = json.dumps("word " * 500_000).encode()
    sent = b'{"model":"gpt-4o", "messages" : [ {"role":"user","content":%b} ] , "max_tokens":9000}' % long
    prompt = parse(sent)
    assert prompt.messages[0].raw == b'{"role":"user","content":%b}' % long
    made = planned(prompt)
    rendered = render(prompt, replace(made, draft=replace(made.draft, reply=500)))
    assert rendered == b'{"model":"gpt-4o","messages":[ {"role":"user","content":%b} ],"max_tokens":500}' % long


def test_a_body_too_long_to_be_decoded_at_once_is_read_and_written_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    long = 'é"\\ and more, ' * 600
    call = {"id": "c" * 5_000, "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": long})}}
    messages = [
        {"role": "system", "content": long},
        {"plimsoll": {"pin": True}, "role": "user", "content": [{"type": "text", "text": long}, {"type": "text"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": long, "tool_call_id": "c" * 5_000},
        {"role": "user", "content": "hi"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": long}}]
    raw = json.dumps({"model": "m", "messages": messages, "stream": True, "tools": tools}).encode()

    def read() -> list[Any]:
        bare, pins = without_extension(raw)
        made, later = parse(bare, pins), parse(bare, start=3)
        fields = {key: bytes(value) for key, value in made.head.items()}
        return [bare, pins, without_stream(raw), fields, replace(made, head={}), later.messages]

    at_once = read()
    monkeypatch.setattr("proxy.model.oversized_json.LONGEST", 0)
    assert read() == at_once
    assert at_once[4].messages[3].answers == ("c" * 5_000,) and json.loads(at_once[0])["messages"][3] == messages[3]
