"""Which items belong together, what a step may change in them, and how it is written back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_responses import items
from proxy.apis.openai_responses.request import parse
from proxy.model.conversation import Kind, Message, Part, PartKind
from proxy.model.structs import replace

QUESTION = {"role": "user", "content": "How deep?"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Six metres."}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}


def call(ident: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "draught", "arguments": '{"a":1}', **more}


def output(ident: str, brought: Any = "6 m") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": brought}


def messages(*given: Any, **fields: Any) -> tuple[Message, ...]:
    return parse(json.dumps({"model": "gpt-5", "input": list(given), **fields}).encode()).messages


def message(item: dict[str, Any]) -> Message:
    return messages(item)[0]


def grouped(*given: Any) -> list[int]:
    """How many items are in each run."""
    return [len(run) for run in items.runs(messages(*given))]


def test_what_one_response_consists_of_is_one_run() -> None:
    parallel = [call("a"), call("b"), output("a"), output("b")]
    assert grouped(QUESTION, THOUGHT, *parallel, THOUGHT, ANSWER, QUESTION) == [1, 5, 2, 1]
    assert grouped(ANSWER, call("a"), output("a"), call("b"), output("b")) == [3, 2]
    assert grouped(QUESTION, ANSWER, ANSWER, QUESTION) == [1, 1, 1, 1]
    assert items.runs(()) == []


def test_an_answer_is_never_apart_from_its_call_whatever_stands_between() -> None:
    assert grouped(call("a"), QUESTION, output("a"), QUESTION) == [3, 1]
    assert grouped(QUESTION, output("nobody"), QUESTION) == [1, 1, 1]
    assert grouped(QUESTION, {"type": "item_reference", "id": "fc_1"}, output("a"), QUESTION) == [1, 2, 1]


def test_hosted_tools_and_unknown_items_stay_with_their_neighbours() -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert grouped(QUESTION, THOUGHT, searched, ANSWER, QUESTION) == [1, 3, 1]
    assert grouped(QUESTION, {"type": "new_call", "call_id": "n"}, {"type": "new_output", "call_id": "n"}) == [1, 2]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        (QUESTION, Part(PartKind.TEXT, "How deep?", place=("content",), whole=True)),
        (ANSWER, Part(PartKind.TEXT, "Six metres.", place=("content", 0))),
        ({**ANSWER, "id": "msg_1"}, Part(PartKind.TEXT, "Six metres.", place=("content", 0), editable=False)),
        (call("a"), Part(PartKind.CALL, '{"a":1}', "a", "draught", ("arguments",))),
        (call("a", id="fc_1"), Part(PartKind.CALL, '{"a":1}', "a", "draught", ("arguments",), editable=False)),
        (output("a"), Part(PartKind.RESULT, "6 m", "a", place=("output",), whole=True)),
        (output("a", [{"type": "input_text", "text": "x"}]), Part(PartKind.RESULT, "x", "a", place=("output", 0))),
        (
            output("a", [{"type": "input_image", "image_url": "data:,"}]),
            Part(PartKind.MEDIA, "", "a", "input_image", ("output", 0), editable=False, removable=True),
        ),
        (output("a", None), Part(PartKind.OPAQUE, "", "a", "function_call_output", ("output",), editable=False)),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "***"},
            Part(PartKind.CALL, "***", "c", "patch", ("input",), editable=False),
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            Part(PartKind.CALL, '{"commands":["ls"]}', "c", "shell_call", ("action",), editable=False),
        ),
        (
            {"type": "computer_call", "call_id": "c"},
            Part(PartKind.CALL, "", "c", "computer_call", ("action",), editable=False),
        ),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x", "outcome": {}}, 5]},
            Part(PartKind.RESULT, "x", "c", place=("output", 0, "stdout")),
        ),
        (
            {"type": "local_shell_call_output", "id": "c", "output": "{}"},
            Part(PartKind.RESULT, "{}", "c", place=("output",), whole=True),
        ),
        (
            {"type": "tool_search_output", "call_id": "c", "tools": []},
            Part(PartKind.OPAQUE, "", "c", "tool_search_output", ("tools",), editable=False),
        ),
        (THOUGHT, Part(PartKind.REASONING, "Hm.", name="reasoning", editable=False)),
        ({"type": "compaction", "encrypted_content": "x"}, Part(PartKind.OPAQUE, name="compaction", editable=False)),
        ({"type": "item_reference", "id": "x"}, Part(PartKind.OPAQUE, name="item_reference", editable=False)),
    ],
)
def test_an_item_has_one_part_that_says_what_it_is(item: dict[str, Any], found: Part) -> None:
    assert message(item).parts() == (found,)


def test_instructions_are_a_text_and_what_cannot_be_decoded_is_opaque() -> None:
    told = messages(QUESTION, instructions="Be brief.")
    assert told[0].kind is Kind.INSTRUCTION and told[0].parts() == (Part(PartKind.TEXT, "Be brief.", whole=True),)
    assert told[0].edit([(told[0].parts()[0], "Short.")], "why").raw == b'"Short."'
    broken = replace(told[1], raw=b'{"role":"user","content":"\xff"}')
    (part,) = broken.parts()
    assert part.kind is PartKind.OPAQUE and not part.editable and "user" in part.text
    assert message({"role": "user", "content": None}).parts() == ()


@pytest.mark.parametrize(
    ("item", "after"),
    [
        ({"x": 1, **QUESTION}, {"x": 1, "role": "user", "content": "new"}),
        (ANSWER, {**ANSWER, "content": [{"type": "output_text", "text": "new"}]}),
        (call("a"), call("a", arguments="new")),
        (output("a"), output("a", "new")),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x", "stderr": "", "outcome": 1}]},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "new", "stderr": "", "outcome": 1}]},
        ),
    ],
)
def test_an_edit_changes_a_text_and_nothing_else(item: dict[str, Any], after: dict[str, Any]) -> None:
    given = message(item)
    edited = given.edit([(given.parts()[0], "new")], "why")
    assert json.loads(edited.raw) == after and edited.why == "why"


def test_a_result_is_replaced_as_a_whole_in_the_form_that_its_type_has() -> None:
    image = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "data:,"}]
    assert json.loads(items.with_results(message(output("a", image)), ["a"], "gone")) == output("a", "gone")
    exited = {"stdout": "x", "stderr": "y", "outcome": {"type": "exit", "exit_code": 2}}
    shell = {"type": "shell_call_output", "call_id": "c", "output": [exited]}
    found = json.loads(items.with_results(message(shell), ["c"], "gone"))
    assert found["output"] == [{"stdout": "gone", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}]
    empty = json.loads(items.with_results(message({**shell, "output": "x"}), ["c"], "gone"))
    assert empty["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}
    kept = message({"type": "tool_search_output", "call_id": "c", "tools": [1]})
    assert items.with_results(kept, ["c"], "gone") == kept.raw
    assert items.with_results(message(QUESTION), ["c"], "gone") == message(QUESTION).raw


def test_messages_are_joined_as_texts_or_as_lists_of_parts_and_other_items_are_not() -> None:
    one, two, listed = message(QUESTION), message({"role": "user", "content": "And?"}), message(ANSWER)
    assert json.loads(items.join(two, (one, two)) or b"")["content"] == "How deep?\n\nAnd?"
    plain = message({"role": "assistant", "content": "Yes."})
    joined = json.loads(items.join(listed, (plain, listed)) or b"")["content"]
    assert joined == [{"type": "output_text", "text": "Yes."}, {"type": "output_text", "text": "Six metres."}]
    asked = [{"type": "input_text", "text": "?"}]
    both = json.loads(items.join(two, (one, message({"role": "user", "content": asked}))) or b"")["content"]
    assert both == [{"type": "input_text", "text": "How deep?"}, *asked]
    assert items.join(one, (one, message(output("a")))) is None
    assert items.join(one, (one, replace(two, raw=b"\xff"))) is None
    assert json.loads(items.join(one, (message({"role": "user", "content": ""}), listed)) or b"")["content"]


def test_what_we_write_ourselves_is_a_message_of_the_user() -> None:
    written = message(json.loads(items.write("Quoted.")))
    assert written.kind is Kind.USER and written.text() == "Quoted."


def test_what_followed_dropped_reasoning_no_longer_names_its_stored_form() -> None:
    spoken, reference = {**ANSWER, "id": "msg_1"}, {"type": "item_reference", "id": "fc_9"}
    bare, later = call("b"), [{**THOUGHT, "id": "rs_2"}, call("d", id="fc_4"), output("d")]
    told = messages(QUESTION, THOUGHT, call("c", id="fc_1"), output("c"), spoken, reference, bare, QUESTION, *later)
    kept = [m for m in told if m.index != 1]
    found = {place: json.loads(raw) for place, raw in items.detached(told, kept).items()}
    assert found == {1: call("c"), 3: ANSWER}


def test_what_needs_an_id_goes_with_the_reasoning_before_it() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": "s", "action": {}, "status": "completed"}
    written = {"type": "local_shell_call_output", "call_id": "s", "output": "x"}
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}
    told = messages(QUESTION, THOUGHT, call("c"), output("c"), search, shell, written, listed, call("d"), output("d"))
    kept = [m for m in told if m.index != 1]
    assert items.detached(told, kept) == {3: b"", 4: b"", 5: b""}
    assert items.detached(told, told[1:]) == {}
    bare = messages(QUESTION, THOUGHT, {key: value for key, value in search.items() if key != "id"})
    assert items.detached(bare, [bare[0], bare[2]]) == {}


def test_what_is_sent_with_its_reasoning_keeps_its_id() -> None:
    told = messages(QUESTION, THOUGHT, call("c", id="fc_1"), output("c"), QUESTION)
    assert items.detached(told, told[1:]) == items.detached(told, told) == {}
    assert items.detached(told[2:], told[3:]) == {}


def test_an_item_of_reasoning_goes_whole() -> None:
    assert items.without_reasoning(message({"type": "reasoning", "id": "rs_1", "summary": []})) == b""
    assert items.without_reasoning(message({"type": "message", "role": "assistant", "content": "reasoning"})) is None
