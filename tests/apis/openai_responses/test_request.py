"""A request as a Prompt, and a Draft as its JSON again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from proxy.apis.openai_responses.request import parse, render, without_extension, without_stream
from proxy.apis.openai_responses.scan import known_prefix, scan
from proxy.fit.plan import plan, start
from proxy.model.conversation import Call, Costs, Kind, Prompt
from proxy.model.oversized_json import LONGEST
from proxy.model.plan import Plan
from proxy.model.structs import replace
from proxy.wire.scan import NotUnderstood
from tests.laws.cases import Case, cases
from tests.laws.dialects import RESPONSES
from tests.makers import facts, ladder

ASKED = {"role": "user", "content": "How deep?"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g" * 2880}


def body(*items: Any, model: str = "gpt-5", **fields: Any) -> bytes:
    return json.dumps({"model": model, "input": list(items), **fields}).encode()


def planned(sent: Prompt) -> Plan:
    """A plan that changed nothing, for a draft to be put into."""
    return plan(sent, ladder(), facts(100_000))


def sent_without(prompt: Prompt, *dropped: int) -> dict[str, Any]:
    """What is sent if the items with these indices are dropped."""
    made = planned(prompt)
    blocks = [
        replace(block, messages=tuple(m for m in block.messages if m.index not in dropped))
        for block in made.draft.blocks
    ]
    kept = [block for block in blocks if block.messages]
    found: dict[str, Any] = json.loads(render(prompt, replace(made, draft=made.draft.with_blocks(kept))))
    return found


def test_a_request_is_read() -> None:
    found = parse(body(ASKED, THOUGHT, CALL, OUTPUT, instructions="Brief.", stream=True, max_output_tokens=99), [2])
    assert (found.model, found.stream, found.reply.limit, found.reply.field) == ("gpt-5", True, 99, "max_output_tokens")
    assert (found.api, found.reply.least, found.pins) == ("responses", 16, frozenset({2}))
    kinds = [Kind.INSTRUCTION, Kind.USER, Kind.ASSISTANT, Kind.ASSISTANT, Kind.RESULT]
    assert [m.kind for m in found.messages] == kinds and [m.index for m in found.messages] == [0, 1, 2, 3, 4]
    assert found.messages[3].calls == (Call("c", "f"),) and found.messages[4].answers == ("c",)
    assert [json.loads(m.raw) for m in found.messages] == ["Brief.", ASKED, THOUGHT, CALL, OUTPUT]


def test_a_text_is_a_message_of_the_user() -> None:
    found = parse(b'{"model":"m","input":"hi \\u00e9"}')
    assert [(m.kind, m.text(), m.index) for m in found.messages] == [(Kind.USER, "hi é", 0)]


@pytest.mark.parametrize(
    ("item", "role", "kind"),
    [
        ({"role": "developer", "content": "x"}, "developer", Kind.INSTRUCTION),
        ({"role": "critic", "content": "x"}, "critic", Kind.OTHER),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "additional_tools", Kind.OTHER),
        ({"type": "compaction", "encrypted_content": "x"}, "compaction", Kind.OTHER),
        ({"type": "web_search_call", "id": "ws"}, "web_search_call", Kind.ASSISTANT),
        ({"id": "msg_1"}, "item_reference", Kind.ASSISTANT),
        ({"type": "tool_search_output", "call_id": None, "tools": []}, "tool_search_output", Kind.RESULT),
    ],
)
def test_every_item_has_a_role_and_a_kind(item: Any, role: str, kind: Kind) -> None:
    found = parse(body(item)).messages[0]
    assert (found.role, found.kind) == (role, kind)


def test_calls_and_answers_of_all_types_are_paired() -> None:
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "roots"}
    answered = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    local = {"type": "local_shell_call", "id": "lsh_1", "call_id": "s"}
    done = {"type": "local_shell_call_output", "call_id": "s", "output": "{}"}
    new = [{"type": "future_call", "call_id": "n"}, {"type": "future_call_output", "call_id": "n"}]
    told = parse(body(asked, answered, local, done, *new)).messages
    assert [m.calls for m in told[::2]] == [
        (Call("mcpr_1", "roots"),),
        (Call("s", "local_shell_call"),),
        (Call("n", "future_call"),),
    ]
    assert [m.answers for m in told[1::2]] == [("mcpr_1",), ("s",), ("n",)]


def test_what_the_api_requires_is_pinned_and_all_of_it_beside_stored_history() -> None:
    told = parse(
        body(ASKED, {"type": "additional_tools", "tools": []}, {"type": "compaction", "encrypted_content": ""})
    )
    assert [(m.pinned, m.compacts) for m in told.messages] == [(False, False), (True, False), (False, True)]
    assert all(m.pinned for m in parse(body(ASKED, OUTPUT, previous_response_id="resp_1")).messages)
    assert not any(m.pinned for m in parse(body(ASKED, OUTPUT, previous_response_id=None)).messages)


def test_encrypted_reasoning_costs_while_it_is_read() -> None:
    stored = {"type": "reasoning", "id": "rs_2", "summary": []}
    said = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "summary": []}

    def hidden(*items: Any, model: str = "gpt-5") -> list[int]:
        return [m.hidden for m in parse(body(*items, model=model)).messages if m.hidden or m.role == "reasoning"]

    assert hidden(THOUGHT, ASKED, THOUGHT, stored, said) == [0, 288, 200, 0]
    assert hidden(THOUGHT, ASKED, model="gpt-5.6") == [288]
    assert parse(body(THOUGHT, ASKED, reasoning={"context": "all_turns"})).messages[0].hidden == 288
    assert hidden({"type": "compaction", "encrypted_content": "g" * 2880}, ASKED) == [288]


@pytest.mark.parametrize(
    ("given", "opaque"),
    [
        (body(ASKED), False),
        (body(ASKED, THOUGHT), True),
        (body(THOUGHT, ASKED), False),
        (body({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}), True),
        (body({"type": "item_reference", "id": "x"}), True),
    ],
)
def test_whether_a_part_has_an_unknown_cost_is_known(given: bytes, opaque: bool) -> None:
    assert parse(given).opaque is opaque
    assert (parse(given).costs is Costs.SEALED) is (given == body(ASKED, THOUGHT))


def test_what_a_model_must_be_able_to_do_is_read_off_the_request() -> None:
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    schema = {"format": {"type": "json_schema", "name": "n", "schema": {}}}
    assert parse(body(image, tools=[{"type": "function"}], text=schema)).needs == {"vision", "tools", "schema"}
    assert parse(body(ASKED, tools=[])).needs == frozenset()


@pytest.mark.parametrize(
    "given",
    [
        *(b"", b"[]", b'{"model":"m"}', b'{"input":"x"}', b'{"model":"m","input":[]}', b'{"model":1,"input":"x"}'),
        *(b'{"model":"m","input":[5]}', b'{"model":"m","input":"x","instructions":5}'),
        b'{"model":"m","input":"x","max_output_tokens":"many"}',
    ],
)
def test_what_is_no_request_is_not_understood(given: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse(given)


@given(cases(dialects=(RESPONSES,)))
def test_what_nothing_changed_is_written_with_the_same_values_and_bytes(case: Case) -> None:
    made = planned(case.prompt)
    draft = replace(made.draft, blocks=tuple(made.draft.blocks))
    written = json.loads(render(case.prompt, replace(made, draft=draft)))
    assert written == json.loads(case.body)


def test_the_messages_after_a_place_and_those_after_a_known_prefix_are_read() -> None:
    before = body(ASKED, CALL, OUTPUT, instructions="x")
    after = body(ASKED, CALL, OUTPUT, ASKED, instructions="x")
    assert [m.index for m in parse(after, start=3).messages] == [0, 3, 4]
    found = scan(before)
    marks = found.marks and found.marks(1)
    assert marks
    known = known_prefix(before, found, marks)
    rest = parse(scan(after, known).text, known=known)
    assert [(m.index, m.text()) for m in rest.messages] == [(4, "How deep?")]


def test_limit_model_instructions_and_items_are_written_and_all_else_keeps_its_bytes() -> None:
    sent = parse(b'{"x":1.50,"model":"m","instructions":"Long.","input":"hi","max_output_tokens":90,"y":"\\u00e9"}')
    made = planned(sent)
    first = made.draft.blocks[0]
    short = replace(first, messages=(replace(first.messages[0], raw=b'"Brief."'),))
    draft = replace(made.draft, model="n", reply=50, blocks=(short, *made.draft.blocks[1:]))
    assert render(sent, replace(made, draft=draft)) == (
        b'{"x":1.50,"model":"n","instructions":"Brief.","input":[{"role":"user","content":"hi"}],'
        b'"max_output_tokens":50,"y":"\\u00e9"}'
    )


def test_our_own_key_is_taken_out_and_its_pins_count_the_instructions() -> None:
    keyed = {**ASKED, "plimsoll": {"pin": True}}
    plain, pins = without_extension(body(ASKED, keyed, {**ASKED, "plimsoll": 1}, instructions="x"))
    assert json.loads(plain) == json.loads(body(ASKED, ASKED, ASKED, instructions="x")) and pins == {2}
    assert without_extension(body(keyed))[1] == {0}
    untouched = body(ASKED)
    assert without_extension(untouched) == (untouched, frozenset())
    for wrong in (b"{", b'{"input":[1]}'):
        with pytest.raises(NotUnderstood):
            without_extension(wrong)


def test_a_stream_is_asked_for_in_one_piece() -> None:
    given = body(ASKED, stream=True, stream_options={"include_obfuscation": False}, store=False)
    assert json.loads(without_stream(given)) == json.loads(body(ASKED, store=False))
    with pytest.raises(NotUnderstood):
        without_stream(b"[")


def test_a_very_long_text_is_a_whole_message() -> None:
    text = "é" * (LONGEST // 2) + " the end"
    found = parse(json.dumps({"x": "before", "model": "gpt-5", "input": text}, ensure_ascii=False).encode())
    assert json.loads(found.messages[0].raw) == {"role": "user", "content": text}


def test_a_very_long_output_is_read_without_being_decoded() -> None:
    long = {**OUTPUT, "output": "é" * (LONGEST // 2)}
    given = json.dumps(
        {"model": "gpt-5", "input": [ASKED, CALL, long], "instructions": "x"}, ensure_ascii=False
    ).encode()
    found = parse(given)
    assert len(found.messages[3].raw) > LONGEST and found.messages[3].answers == ("c",)
    assert start(found, ladder(), facts(10**8)).prompt > 0
    assert sent_without(found, 1)["input"][1]["output"] == long["output"]
    assert without_extension(given)[0] == given and b'"stream"' not in without_stream(given)


def test_what_only_its_own_upstream_can_read_keeps_it_there() -> None:
    assert parse(body(THOUGHT, ASKED)).stored.bound and parse(body({"id": "msg_1"})).stored.bound
    assert (
        parse(body(ASKED, previous_response_id="resp_1")).stored.bound
        and not parse(body(ASKED, CALL, OUTPUT)).stored.bound
    )


def test_what_a_request_goes_on_from_is_known_by_its_id() -> None:
    def continued(**fields: Any) -> tuple[str, bool]:
        found = parse(body(ASKED, **fields))
        return found.stored.continues, found.stored.appends

    assert continued(previous_response_id="resp_1") == ("resp_1", False)
    assert continued(previous_response_id="resp_1", conversation=None) == ("resp_1", False)
    assert continued(conversation="conv_1") == continued(conversation={"id": "conv_1"}) == ("conv_1", True)
    assert continued() == continued(previous_response_id=None) == ("", False)
    assert continued(conversation={"id": 5}) == ("", False)


def test_what_the_provider_shortens_itself_is_left_to_it() -> None:
    compacting = [{"type": "compaction", "compact_threshold": 1000}]
    assert parse(body(ASKED, context_management=compacting)).managed and parse(body(ASKED, truncation="auto")).managed
    assert not parse(body(ASKED, context_management=[], truncation="disabled")).managed
