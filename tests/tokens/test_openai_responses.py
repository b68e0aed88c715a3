"""What each item and each field of a request costs; the counter counts characters, so that it can be done by hand."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from proxy.model.conversation import Kind, Message, MessageFormat
from proxy.tokens import tools as toolbox
from proxy.tokens.families import BUILT_IN
from proxy.tokens.images import Tiles
from proxy.tokens.messages import CountingRules
from proxy.tokens.openai_responses import certain, costs, fixed_as_text, fixed_costs, is_certain

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"


def rules(model: str = "gpt-4o") -> CountingRules:
    return CountingRules(len, BUILT_IN.find(model).recipe, Tiles(85, 170), model=model)


def messages(*items: Any) -> list[Message]:
    return [Message(json.dumps(item).encode(), "", Kind.OTHER, cast(MessageFormat, None)) for item in items]


def cost(*items: Any, model: str = "gpt-4o") -> list[int]:
    return list(costs(messages(*items), rules(model)))


def call(ident: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "find", "arguments": '{"a":1}', **more}


def output(ident: str = "c", brought: Any = "12345") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": brought}


def head(**fields: Any) -> dict[str, bytes]:
    return {key: json.dumps(value).encode() for key, value in fields.items()}


def fixed(model: str = "gpt-4o", **fields: Any) -> tuple[int, int, int, int]:
    return fixed_costs(head(**fields), None, rules(model))


FUNCTION = {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}}
TOOLS = len(toolbox.render([FUNCTION]))


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        ("Be brief.", 4 + 9),
        ("", 0),
        ({"role": "user", "content": "hello"}, 4 + 5),
        ({"role": "user", "content": []}, 0),
        ({"role": "user", "content": [{"type": "input_text", "text": "ab"}, {"type": "input_text", "text": "c"}]}, 7),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, 4 + 2),
        (call(), 2 + 4 + 7),
        (call(id="fc_1"), 2 + 4 + 7),
        (call(id="fc_1", status="completed"), 5 + 4 + 7),
        ({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select"}, 2 + 3 + 6),
        (output(), 8 + len("functions.x") + 5),
        (output(brought=[{"type": "input_text", "text": "ab"}]), 8 + len("functions.x") + 2),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "long"}]}, 0),
        ({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "long"}]}, 4),
        ({"type": "compaction", "encrypted_content": "x" * 999}, 0),
        ({"type": "configuration_update"}, 0),
        ({"type": "web_search_call", "id": "ws"}, 30),
        ({"type": "item_reference", "id": "x"}, 100),
        ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, 2 + len('{"commands":["ls"]}')),
        ({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "ab", "stderr": "c"}]}, 8 + 3),
        ({"type": "apply_patch_call_output", "call_id": "c", "output": None}, 8),
        ({"type": "program_output", "call_id": "c", "result": "done"}, 8 + 4),
        ({"type": "tool_search_call", "arguments": {"q": 1}}, 2 + len('{"q":1}')),
        ({"type": "additional_tools", "tools": [FUNCTION, 5]}, 93 + TOOLS),
        ({"type": "tool_search_output", "tools": None}, 120 + len(toolbox.render([]))),
        ({"type": "mcp_list_tools", "id": "m", "tools": []}, round(1.1 * len('{"type":"mcp_list_tools","tools":[]}'))),
        ({"type": "news", "id": "n"}, len('{"type":"news"}')),
        ({"type": "image_generation_call", "result": "A" * 70_000}, len('{"type":"image_generation_call"}') + 765),
        ({"type": "file_search_call", "results": "A" * 70_000}, len('{"type":"file_search_call"}') + 70_000),
        (5, 0),
    ],
)
def test_an_item_costs(item: Any, tokens: int) -> None:
    assert cost(item) == [tokens]


def test_an_answer_names_the_function_that_was_called() -> None:
    assert cost(call(), output()) == [13, 8 + len("functions.find") + 5]


def test_models_that_reason_pay_more_for_calls_and_for_what_they_said() -> None:
    said = {"role": "assistant", "content": "ab"}
    assert cost(said, model="o3-mini") == [6] and cost(said, model="o4-mini") == cost(said, model="gpt-5") == [8]
    assert cost(call(), model="o3") == [2 + 11] and cost(call(id="fc", status="x"), model="o3") == [5 + 11]
    assert cost(call(), model="gpt-5") == [8 + 11] and cost(call(id="fc"), model="gpt-5") == [11 + 11]
    assert cost(call(), model="gpt-5.5") == [8 + 11] and cost(call(), model="gpt-5.4-nano") == [11 + 11]
    assert cost(call(), model="gpt-5.1-chat") == [2 + 11]


def test_W19_o4_mini_pays_one_less_for_tools_and_six_more_for_a_call_and_its_answer_since_june_2026() -> None:
    made = {"id": "fc", "status": "completed"}
    assert fixed("o4-mini", tools=[FUNCTION])[1] == fixed("o3", tools=[FUNCTION])[1] - 1
    for one in (call(), call(**made)):
        assert sum(cost(one, output(), model="o4-mini")) == sum(cost(one, output(), model="o3")) + 6


def test_calls_in_parallel_are_one_object_for_newer_models() -> None:
    thought = {"type": "reasoning", "summary": []}
    turn = [call("a"), thought, call("b", arguments="not json"), output("a"), output("b")]
    wrapped = (
        '{"tool_uses":[{"recipient_name":"functions.find","parameters":{"a":1}},'
        '{"recipient_name":"functions.find","parameters":"not json"}]}'
    )
    answer = 6 + len("functions.find") + 5
    assert cost(*turn, model="gpt-5.2") == [16 + len(wrapped), 0, 0, answer, answer]
    assert cost(*turn, model="gpt-5")[0] == 8 + 11
    assert cost(call("a", id="fc", status="x"), call("b")) == [13, 13]  # not as a call that stands alone
    apart = [call("a"), output("a"), call("b"), output("b")]
    assert cost(*apart, model="gpt-5.2") == [19, 27, 19, 27]


def test_images_and_files_cost_what_they_do_in_chat() -> None:
    image = {"type": "input_image", "image_url": PIXEL}
    assert cost({"role": "user", "content": [image, {"type": "input_text", "text": "ab"}]}) == [4 + 2 + 255]
    assert cost({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}) == [4 + 765]
    assert cost(output(brought=[{**image, "detail": "low"}])) == [8 + len("functions.x") + 85]
    assert cost({"role": "user", "content": [{"type": "input_file", "file_data": "A" * 60_000}]}) == [4 + 2 * 1100]
    screen = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": PIXEL},
    }
    assert cost(screen) == [8 + 255]


@pytest.mark.parametrize(
    ("item", "known"),
    [
        ({"role": "user", "content": "x"}, True),
        ("instructions", True),
        (5, False),
        ({"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}, True),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "https://a"}]}, False),
        (call(), True),
        (output(brought=[{"type": "input_file", "file_id": "f"}]), False),
        ({"type": "reasoning", "summary": []}, True),
        ({"type": "web_search_call"}, False),
        ({"type": "item_reference", "id": "x"}, False),
    ],
)
def test_which_costs_are_known(item: Any, known: bool) -> None:
    assert certain(messages(item)[0], rules()) is known


def test_tools_are_written_as_in_chat_and_framed_by_the_model() -> None:
    assert fixed(tools=[FUNCTION]) == (3, 3 + TOOLS, 0, 0)
    assert fixed("o3", tools=[FUNCTION]) == (2, 7 + TOOLS, 0, 0)
    assert fixed("gpt-5", tools=[FUNCTION])[1] == 9 + TOOLS
    assert fixed("gpt-5.1-codex", tools=[FUNCTION])[1] == 12 + TOOLS
    assert fixed("gpt-5", tools=[FUNCTION], parallel_tool_calls=False)[1] == 9 + 78 + TOOLS
    plain = {**FUNCTION, "description": None}
    assert fixed("gpt-5", tools=[plain])[1] == 9 - 1 + len(toolbox.render([plain]))
    split = {**FUNCTION, "parameters": {"type": "object", "description": "All."}}
    assert fixed(tools=[split])[1] == 3 + 1 + len(toolbox.render([split]))
    assert fixed(tools=[{**FUNCTION, "defer_loading": True}]) == fixed(tools=[]) == fixed(tools=5) == (3, 0, 0, 0)


def test_a_custom_tool_is_written_among_the_functions() -> None:
    custom = {"type": "custom", "name": "sql", "description": "Runs.", "format": {"definition": "start: x"}}
    written = len("// Runs.\ntype sql = (FREEFORM) => any;\n\n")
    assert fixed(tools=[FUNCTION, custom])[1] == 3 + TOOLS + written + len("start: x")
    bare = {"type": "custom", "name": "sql"}
    assert fixed("gpt-5", tools=[bare])[1] == 9 + len(toolbox.render([])) + len("type sql = (FREEFORM) => any;\n\n")


def test_tools_that_the_provider_runs_cost_what_was_recorded() -> None:
    assert fixed(tools=[{"type": "web_search"}])[1] == 294 and fixed("gpt-5", tools=[{"type": "web_search"}])[1] == 412
    assert fixed(tools=[{"type": "web_search_preview_2025_03_11"}])[1] == 294
    loaded = {"type": "namespace", "name": "n", "tools": [FUNCTION]}
    both = {**loaded, "tools": [FUNCTION, {**FUNCTION, "name": "g", "defer_loading": True}]}
    assert fixed(tools=[both]) == fixed(tools=[loaded]) > fixed(tools=[{**loaded, "tools": []}])
    assert fixed(tools=[{"type": "tool_search", "execution": "client", "parameters": {}}])[1] == 41 + 2
    assert fixed(tools=[{"type": "new"}])[1] == len('{"type":"new"}')


@pytest.mark.parametrize(
    ("model", "choice", "tokens"),
    [
        ("gpt-4o", "none", 1),
        ("gpt-4o", "auto", 0),
        ("gpt-4o", "required", 6 + len("functions.find")),
        ("gpt-4o", {"type": "function", "name": "find"}, 6 + len("functions.find")),
        ("gpt-4o", {"type": "allowed_tools", "tools": []}, 0),
        ("gpt-5", "required", 0),
        ("gpt-5", "none", 0),
    ],
)
def test_what_must_be_called_costs_the_classic_models_its_name(model: str, choice: Any, tokens: int) -> None:
    assert fixed(model, tools=[FUNCTION], tool_choice=choice)[2] == tokens
    assert fixed(model, tool_choice=choice)[2] == 0


def test_of_several_tools_that_one_is_required_is_free() -> None:
    assert fixed(tools=[FUNCTION, {**FUNCTION, "name": "other"}], tool_choice="required")[2] == 0


def test_a_schema_of_the_reply_costs_its_texts() -> None:
    wanted = {"type": "json_schema", "name": "mark", "schema": {"type": "object"}}
    size = len('{"type":"object"}') + 4
    assert fixed(text={"format": wanted})[3] == 7 + size and fixed("gpt-5", text={"format": wanted})[3] == 6 + size
    assert fixed(text={"format": {**wanted, "description": "d"}})[3] == 7 + size + len("// d\n")
    assert fixed(text={"format": {"type": "json_object"}})[3] == 0


def test_families_without_a_public_encoding_are_estimated_by_their_own_figures() -> None:
    recipe = BUILT_IN.find("claude-sonnet-4-5").recipe
    (user,) = cost({"role": "user", "content": "hello"}, model="claude-sonnet-4-5")
    assert user == recipe.message + 5
    base, tools, choice, _ = fixed("claude-sonnet-4-5", tools=[FUNCTION], tool_choice="none")
    assert (base, choice) == (recipe.base, 0) and tools > recipe.tools
    assert fixed("claude-sonnet-4-5", tools=[{"type": "web_search"}])[1] == 294


def test_what_is_not_in_the_request_is_not_certain() -> None:
    assert is_certain(head(tools=[FUNCTION], previous_response_id=None), rules())
    assert not is_certain(head(previous_response_id="resp_1"), rules())
    assert not is_certain(head(tools=[{"type": "web_search"}]), rules())
    assert not is_certain(head(reasoning={"mode": "pro"}), rules()) and fixed(reasoning={"mode": "pro"})[0] == 3 + 1990


def test_what_the_provider_leaves_out_is_not_certain() -> None:
    assert is_certain(head(context_management=[], truncation="disabled"), rules())
    assert not is_certain(head(truncation="auto"), rules())
    assert not is_certain(head(context_management=[{"type": "compaction", "compact_threshold": 2000}]), rules())


def test_what_nests_too_deep_can_be_counted_as_text() -> None:
    assert fixed_as_text({"tools": b"[[]]", "text": b"{}"}, rules()) == (3, 4, 0, 2)
