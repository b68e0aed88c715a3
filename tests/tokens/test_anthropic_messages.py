"""What requests of the Messages API cost, by a recipe whose counts one can do in one's head: a token is a character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages.request import parse
from proxy.fit.blocks import runs
from proxy.model.conversation import Message
from proxy.model.limits import CountUnit, Margin, Quality, Shape
from proxy.tokens import anthropic_messages as recipe
from proxy.tokens.families import BUILT_IN, MESSAGES_TABLE
from proxy.tokens.images import Patches
from proxy.tokens.messages import CountingRules
from proxy.tokens.meter import RequestMeter, meter_for, prompt_tokens, unit_of
from proxy.tokens.recipes import of_messages
from tests.tokens.remembering import Remembering

FIGURES = of_messages(1.0, 3, 2, 10, (100, 150, 0), 5, 2.0, (20, 30), 93)
RULES = CountingRules(len, FIGURES, Patches(28, 1568, extra=3))
# 56 x 28 pixels: the beginning of a PNG is enough to know
FOUND = {"type": "tool_reference", "tool_name": "f"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAADgAAAAcCAYAAAA="


def messages(*told: dict[str, Any], **fields: Any) -> tuple[Message, ...]:
    return parse(json.dumps({"model": "m", **fields, "messages": told}).encode()).messages


def cost(content: Any, rules: CountingRules = RULES) -> int:
    return recipe.costs(messages({"role": "user", "content": content}), rules)[0]


def fixed(rules: CountingRules = RULES, **fields: Any) -> tuple[int, ...]:
    head = {key: json.dumps(value, separators=(",", ":")).encode() for key, value in fields.items()}
    return recipe.fixed_costs(head, None, rules)


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("abcd", 2 + 4),
        (None, 2),
        ([{"type": "text", "text": "abcd"}, {"type": "text", "text": "e"}], 2 + 5),
        ([{"type": "thinking", "thinking": "abcd", "signature": "x" * 99}], 2 + 4),
        ([{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}], 2 + 10 + 1 + 7),
        ([{"type": "server_tool_use", "id": "s", "name": "f", "input": {}}], 2 + 1 + 2),
        ([{"type": "tool_result", "tool_use_id": "t", "content": "abcd"}], 2 + 4),
        ([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "abcd"}]}], 2 + 4),
        ([{"type": "document", "title": "ab", "source": {"type": "text", "data": "abcd"}}], 2 + 6),
        ([{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}}], 2 + 1),
        ([{"type": "search_result", "title": "ab", "content": [{"type": "text", "text": "abcd"}]}], 2 + 6),
        ([{"type": "image", "source": {"media_type": "image/png", "data": PNG}}], 2 + 2 * 1 + 3),
        ([{"type": "image", "source": {"type": "url", "url": "https://x"}}], 2 + 36 * 36 + 3),
        ([{"type": "document", "source": {"type": "base64", "data": "A" * 80_004}}], 2 + 2 * recipe.PAGE_TOKENS),
        ([{"type": "document", "source": {"type": "file", "file_id": "f"}}], 2 + recipe.PAGE_TOKENS),
        ([{"type": "container_upload", "file_id": "f"}], 2 + recipe.PAGE_TOKENS),
        ([{"type": "redacted_thinking", "data": "x" * 60}], 2 + 10),
        ([{"type": "web_search_tool_result", "content": [{"title": "ab", "encrypted_content": "x" * 60}]}], 2 + 2 + 10),
        ([{"type": "tool_addition", "tool": {}}], 2 + len('{"type":"tool_addition","tool":{}}')),
        ([{"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "f"}]}], 2 + recipe.REFERENCE),
        ([{"type": "tool_search_tool_result", "content": {"tool_references": [FOUND]}}], 2 + recipe.REFERENCE),
        (["odd", 7, {"type": ["odd"]}], 2),
    ],
)  # fmt: skip
def test_what_a_message_costs(content: Any, tokens: int) -> None:
    assert recipe.costs([_raw({"role": "user", "content": content})], RULES) == (tokens,)


def _raw(value: Any) -> Message:
    said = messages({"role": "user", "content": "x"})[0]
    return Message(json.dumps(value).encode(), "user", said.kind, said.format)


def test_blocks_that_nest_too_deep_count_as_text() -> None:
    def nested(levels: int) -> Any:
        inner: Any = [{"type": "text", "text": "abcd"}]
        for _ in range(levels):
            inner = [{"type": "tool_result", "content": inner}]
        return inner

    assert cost(nested(3)) == 2 + 4 and cost(nested(300)) > 2 + 300 * len('{"type":"tool_result"}') - 300


def test_the_system_prompt_costs_its_text() -> None:
    for system in ("abcd", [{"type": "text", "text": "abcd"}]):
        assert recipe.costs(messages({"role": "user", "content": "x"}, system=system)[:1], RULES) == (4,)


def test_citations_cost_their_instructions() -> None:
    source = {"type": "text", "data": "abcd"}
    assert cost([{"type": "document", "source": source, "citations": {"enabled": True}}]) == 6 + recipe.CITATIONS
    assert cost([{"type": "document", "source": source, "citations": {"enabled": False}}]) == 6


def test_what_is_read_in_one_turn_alone_is_not_certain() -> None:
    def certain(role: str, **fields: Any) -> bool:
        return recipe.certain(messages({"role": role, "content": "x", **fields})[0], RULES)

    assert certain("system", clear_at="never") and certain("user", content="next_user_message")
    assert not certain("system", clear_at="next_user_message")


def test_only_parts_that_can_be_measured_are_certain() -> None:
    def certain(*content: Any) -> bool:
        return recipe.certain(messages({"role": "user", "content": list(content)})[0], RULES)

    assert certain({"type": "text", "text": "x"}, {"type": "image", "source": {"media_type": "image/png", "data": PNG}})
    assert not certain({"type": "image", "source": {"type": "url", "url": "x"}})
    assert not certain({"type": "tool_result", "content": [{"type": "document", "source": {"type": "file"}}]})


TOOL = {"name": "f", "description": "d", "input_schema": {}, "cache_control": {"type": "ephemeral"}}
JSON = len('{"name":"f","description":"d","input_schema":{}}')


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, (3, 0, 0, 0)),
        ({"tools": [TOOL]}, (3, 100 + 5 + 2 * JSON, 0, 0)),
        ({"tools": [{**TOOL, "type": "custom"}], "tool_choice": {"type": "any"}}, (3, 100 + 5 + 2 * JSON, 50, 0)),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, (3, 100 + 5 + 2 * JSON, 0, 0)),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, (3, 245, 0, 0)),
        ({"tools": [{"type": "new_20300101"}, "odd"]}, (3, 600 + 100 + 5 + 2 * 2, 0, 0)),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, (23, 0, 0, 0)),
        ({"thinking": {"type": "enabled"}, "tools": [TOOL]}, (53, 100 + 5 + 2 * JSON, 0, 0)),
        ({"thinking": {"type": "adaptive"}}, (3, 0, 0, 0)),
        ({"output_format": {"type": "json_schema", "schema": {}}}, (3, 0, 0, round(93 + 2.1 * 2))),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, (3, 0, 0, round(93 + 2.1 * 2))),
        ({"output_config": {"effort": "low"}}, (3, 0, 0, 0)),
    ],
)  # fmt: skip
def test_what_a_request_costs_besides_its_messages(fields: dict[str, Any], tokens: tuple[int, ...]) -> None:
    assert fixed(**fields) == tokens


def test_a_tool_that_is_deferred_costs_nothing_until_it_is_found() -> None:
    deferred = {**TOOL, "name": "g", "defer_loading": True}
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert fixed(tools=[TOOL, deferred]) == fixed(tools=[TOOL])
    assert fixed(tools=[search, deferred]) == (3, 710, 0, 0)


@pytest.mark.parametrize(
    ("model", "free", "forced", "barred"),
    [
        ("claude-opus-4-7", 712, 832, 712),
        ("claude-opus-4-8", 290, 420, 290),
        ("claude-opus-5", 295, 425, 287),
        ("claude-sonnet-5", 364, 485, 354),
        ("claude-fable-5", 364, 485, 354),
    ],
)
def test_what_tools_cost_a_claude_of_2026(model: str, free: int, forced: int, barred: int) -> None:
    def more(**choice: Any) -> int:
        """Of the tools, what does not follow from their JSON."""
        found = meter(model, tools=[TOOL], **choice)
        written = -26 + 2.05 * found.counting.rules.count('{"name":"f","description":"d","input_schema":{}}')
        return round(sum(found.fixed.values()) - meter(model).fixed["base"] - written)

    assert more() == pytest.approx(free, abs=2)
    assert more(tool_choice={"type": "any"}) == pytest.approx(forced, abs=2)
    assert more(tool_choice={"type": "none"}) == pytest.approx(barred, abs=2)


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5"])
def test_a_response_schema_costs_claude_from_4_7_on_42_more(model: str) -> None:
    wanted = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    before = meter("claude-sonnet-4-6", output_config=wanted).fixed["schema"]
    assert meter(model, output_config=wanted).fixed["schema"] - before == pytest.approx(42, abs=2)


def test_fields_that_nest_too_deep_count_as_text() -> None:
    assert recipe.fixed_as_text({"tools": b"abcd", "output_format": b"ef"}, RULES) == (3, 104, 0, 2)


def meter(model: str = "claude-sonnet-4-5", **fields: Any) -> RequestMeter:
    made = meter_for(parse(json.dumps({"model": model, "messages": [HELLO], **fields}).encode()), model, Remembering())
    assert isinstance(made, RequestMeter)
    return made


HELLO = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search_20250305"}]},
        {"mcp_servers": [{}]},
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns"}}]}},
        {"context_management": {"edits": [{"keep": "all"}, {"type": "compact_20260112"}]}},
    ],
)
def test_where_the_upstream_adds_or_removes_tokens_usage_teaches_nothing(fields: dict[str, Any]) -> None:
    assert unit_of(meter(**fields)) is None and unit_of(meter(tools=[TOOL])) == CountUnit(1.13, shape=Shape.TOOLS)


@pytest.mark.parametrize("kept", ["all", {"type": "all"}])
def test_an_edit_that_keeps_everything_removes_no_tokens(kept: object) -> None:
    """Claude Code asks for it with every request."""
    edits = [{"type": "clear_thinking_20251015", "keep": kept}]
    assert unit_of(meter(context_management={"edits": edits})) == CountUnit(1.13)
    assert (
        unit_of(meter(context_management={"edits": []})) == unit_of(meter(context_management=None)) == CountUnit(1.13)
    )


def test_a_family_has_other_figures_for_this_api() -> None:
    family = BUILT_IN.find("claude-sonnet-4-5")
    assert (family.ratio, family.of(MESSAGES_TABLE).ratio, family.of("")) == (1.18, 1.13, family)
    assert meter().margin == Margin(25, 0.06) and meter().quality is Quality.ESTIMATED


def test_the_same_bytes_cost_what_each_api_says() -> None:
    said = parse(json.dumps({"model": "m", "messages": [HELLO]}).encode()).messages
    found = [prompt_tokens("claude-sonnet-4-5", {}, [[("user", said[0].raw)]], api) for api in ("chat", "messages")]
    assert found[0] != found[1] == meter().costs(said)[0] + sum(meter().fixed.values())


def test_a_model_without_figures_of_its_own_is_counted_by_its_family() -> None:
    found = meter("gpt-4o")
    (run,) = runs(found.prompt.messages)
    assert found.costs(run) == (4 + 1,) and found.quality is Quality.ESTIMATED
    assert sum(meter("gpt-4o", tools=[TOOL]).fixed.values()) > 3
