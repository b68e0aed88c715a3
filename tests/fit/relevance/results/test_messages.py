"""Messages shortened for what they were asked for, and remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.blocks import group
from proxy.fit.relevance.results import messages
from proxy.fit.relevance.results.messages import (
    ANSWER,
    LONG_ARGUMENT,
    SHORT_CALL,
    SHORTENED,
    brief_block,
    brief_cost,
    shorten_arguments,
    shorten_results,
)
from proxy.fit.relevance.results.read_on import ArgumentNames
from proxy.fit.relevance.results.sources import Source, sources
from proxy.model.conversation import Block, Message
from proxy.model.structs import replace
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, assistant, draft, fields, prompt, tool_round, user, words

METER = CharMeter()
LOG = "\n".join(f"line {i} says {words(4, 'w')}" for i in range(300))
NEEDLE = LOG.replace("line 150 says", "line 150 of the budget says")


def told(result: Any, arguments: Any = "{}", **more: Any) -> tuple[Block, Source]:
    """A counted block of a call and its result, and its question."""
    call, answer = tool_round("a", result, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))
    blocks = group(prompt([user("What about the budget?"), {**call, **more}, answer]).messages)
    costs = METER.costs(blocks[1].messages)
    counted = tuple(replace(m, tokens=cost) for m, cost in zip(blocks[1].messages, costs, strict=True))
    source = sources(blocks)[1]
    assert source is not None
    return Block(counted), source


def arguments_of(message: Message) -> Any:
    return json.loads(fields(message)["tool_calls"][0]["function"]["arguments"])


def test_a_result_keeps_what_was_asked_for_within_its_limit() -> None:
    block, source = told(NEEDLE)
    short = shorten_results(block.messages[1], {"a": 100}, source, METER)
    assert "line 150 of the budget" in short.text() and METER.text(short.text()) <= 100
    assert short.why and fields(short)["tool_call_id"] == "a" and short.answers == ("a",)


def test_texts_in_a_list_of_parts_are_shortened_alike() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    block, source = told([{"type": "text", "text": NEEDLE}, image])
    short = shorten_results(block.messages[1], {"a": 100}, source, METER)
    assert "line 150 of the budget" in short.text() and fields(short)["content"][1] == image


def test_a_result_within_its_limit_is_the_same_message() -> None:
    block, source = told("short")
    for _ in range(2):  # made, and remembered
        assert shorten_results(block.messages[1], {"a": 100}, source, METER) is block.messages[1]


def test_what_was_shortened_once_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    SHORTENED.clear()
    block, source = told(NEEDLE)
    first = shorten_results(block.messages[1], {"a": 100}, source, METER)
    monkeypatch.setattr(messages, "shorten", None)
    assert shorten_results(block.messages[1], {"a": 100}, source, METER) == first


def test_it_depends_on_the_limit_the_question_and_the_count() -> None:
    block, source = told(NEEDLE)
    result = block.messages[1]
    found = {
        shorten_results(result, {"a": 100}, source, METER).raw,
        shorten_results(result, {"a": 110}, source, METER).raw,
        shorten_results(result, {"a": 100}, replace(source, user=None), METER).raw,
        shorten_results(replace(result, tokens=9_999), {"a": 100}, source, CharMeter(ratio=2)).raw,
        shorten_results(result, {"a": 100}, source, METER, cap_chars=200).raw,
    }
    assert len(found) == 5


def test_long_strings_in_the_arguments_of_an_old_call_are_shortened_and_stay_json() -> None:
    arguments = {"file_path": "src/a.py", "edits": [{"new": NEEDLE, "count": 3}]}
    block, source = told("ok", arguments, **{"x-own": [1.50]})
    short = shorten_arguments(block.messages[0], source, METER)
    made = arguments_of(short)
    assert made["file_path"] == "src/a.py" and made["edits"][0]["count"] == 3
    assert "line 150 of the budget" in made["edits"][0]["new"] and METER.text(made["edits"][0]["new"]) <= LONG_ARGUMENT
    assert b'"x-own": [1.5]' in short.raw or b'"x-own":[1.5]' in short.raw
    assert short.calls == block.messages[0].calls and short.why
    assert shorten_arguments(block.messages[0], source, METER) == short


MANY = json.dumps({f"a{i}": words(5) for i in range(300)})  # together they are long


@pytest.mark.parametrize(
    "arguments", ["{}", json.dumps({"a": words(20)}), MANY, "no json " * 200, '"' + "x" * 200 + '"']
)
def test_arguments_that_are_short_or_no_json_stay_as_they_are(arguments: str) -> None:
    block, source = told("ok", arguments)
    assert shorten_arguments(block.messages[0], source, METER) is block.messages[0]


def test_arguments_that_are_one_long_string_are_shortened_and_stay_json() -> None:
    block, source = told("ok", json.dumps(LOG))
    short = shorten_arguments(block.messages[0], source, METER)
    arguments = json.loads(fields(short)["tool_calls"][0]["function"]["arguments"])
    assert isinstance(arguments, str) and METER.text(arguments) <= LONG_ARGUMENT < METER.text(LOG)


def test_what_cannot_be_read_stays_as_it_is() -> None:
    block, source = told("ok", {"a": LOG})
    call = block.messages[0]
    for raw in (
        b'{"tool_calls":7, "content":"' + b"x" * 200 + b'"}',
        b"\xff" * 200,
        b'{"content":"' + b"x" * 200 + b'"}',
    ):
        broken = replace(call, raw=raw)
        assert shorten_arguments(broken, source, METER) is broken
    odd = replace(call, raw=json.dumps({"tool_calls": [{"id": "a"}, {"function": 7}], "content": "x" * 200}).encode())
    assert shorten_arguments(odd, source, METER) is odd


def test_a_block_without_results_or_without_anything_long_has_no_short_form() -> None:
    block, source = told("ok")
    assert brief_block(block, None, METER, 60) is block
    assert brief_block(block, source, METER, 60) is block


def test_an_answer_in_words_keeps_its_head_and_its_tail() -> None:
    def answered(text: str) -> Block:
        return draft([user("a"), assistant(text), user("b")], 9_000).blocks[1]

    short = brief_block(answered(words(400)), None, WordMeter(), 60)
    (message,) = short.messages
    assert (message.why, message.role, message.index) == ("old answer", "assistant", 1)
    assert message.text().startswith("w0 ") and message.text().endswith(" w399") and short.tokens <= ANSWER + 4
    for whole in (answered(words(60)), replace(answered(words(400)), messages=prompt([user(words(400))]).messages)):
        assert brief_block(whole, None, WordMeter(), 60) is whole


def test_a_short_form_that_saves_nothing_is_not_taken() -> None:
    block, source = told(LOG)
    cheap = replace(block, messages=tuple(replace(m, tokens=61 if m.answers else 1) for m in block.messages))
    assert brief_block(cheap, source, METER, 60) is cheap


def test_where_a_short_form_saves_nothing_what_is_to_be_shortened_is_made() -> None:
    block, source = told(LOG)
    small = told("short")[0]
    assert brief_block(replace(block, later=lambda room: small, most=9), source, METER, 60) is small
    assert brief_block(replace(small, later=lambda room: block, most=9), source, METER, 60) is block
    short = brief_block(replace(block, later=lambda room: small, most=block.tokens), source, METER, 60)
    assert short == brief_block(block, source, METER, 60) and short.later is None


@pytest.mark.parametrize("times", [1, 9])
def test_what_a_short_form_costs_is_told_without_making_it(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    block, source = told(LOG, {"file_path": "src/a.py", "new": times * NEEDLE})
    assert (len(block.messages[0].raw) > SHORT_CALL) == (times > 1)
    exact = brief_block(block, source, METER, 60).tokens
    SHORTENED.clear()
    monkeypatch.setattr(messages, "shorten", None)
    about = brief_cost(block, source, METER, 60)
    assert abs(about - exact) <= 0.1 * exact and about < block.tokens / 2
    assert brief_cost(block, None, METER, 60) == block.tokens


def test_what_an_api_adds_for_a_call_is_not_taken_for_its_arguments() -> None:
    block, source = told("ok", {"old": words(90), "new": words(150), "path": "src/a.py"})
    call, result = block.messages
    framed = replace(block, messages=(replace(call, tokens=call.tokens + 65), result))
    assert brief_cost(framed, source, METER, 60) == brief_cost(block, source, METER, 60) + 65 < framed.tokens


@pytest.mark.parametrize("arguments", ["{}", "no json " * 200, "[" * 5000, json.dumps({"a": words(20)})])
def test_a_call_that_is_not_shortened_costs_what_it_costs(arguments: str) -> None:
    block, source = told("ok", arguments)
    assert brief_cost(block, source, METER, 60) == block.tokens


def test_what_a_result_with_an_image_costs_in_short_is_counted() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    block, source = told([{"type": "text", "text": NEEDLE}, image])
    assert brief_cost(block, source, METER, 60) == brief_block(block, source, METER, 60).tokens < block.tokens


def test_the_short_form_of_an_old_block_names_its_lines_by_the_given_arguments() -> None:
    block, source = told(LOG, {"path": "a.txt", "ab": 40})
    names = ArgumentNames(offsets=("ab",))
    assert "(ab " in brief_block(block, source, METER, 150, names).messages[1].text()
    assert "… lines " not in brief_block(block, source, METER, 150).messages[1].text()
    assert brief_cost(block, source, METER, 150, names) > 0
