"""Reasoning of earlier turns goes, the oldest turn first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages.request import parse as parse_messages
from proxy.apis.ollama.request import parse as parse_ollama
from proxy.apis.openai_chat.request import parse as parse_chat
from proxy.apis.openai_responses.request import parse as parse_responses
from proxy.cli.models import NoMemory
from proxy.fit.plan import plan, start
from proxy.fit.steps.drop_reasoning import WHY, Params, apply
from proxy.model.conversation import Block, Prompt
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, LadderStep
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.makers import WordMeter, ladder, words

THOUGHT = words(200, "t")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def thinking(turn: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"turn{turn} {THOUGHT}", "signature": "s" * 40}


def ask(turn: int) -> dict[str, Any]:
    return {"role": "user", "content": f"Question {turn}?"}


def turn(number: int) -> list[dict[str, Any]]:
    """A question, a call with its result, and the answer; the model thought before the call and before the answer."""
    call = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "It is so."}
    hidden = {"type": "redacted_thinking", "data": "x" * 2_000}
    return [
        ask(number),
        {"role": "assistant", "content": [thinking(number), call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [hidden, thinking(number), text(f"Answer {number}.")]},
    ]


def run(turns: int) -> list[dict[str, Any]]:
    return [*[m for number in range(turns) for m in turn(number)], ask(turns)]


def asked(*told: dict[str, Any]) -> Prompt:
    return parse_messages(json.dumps({"model": "claude-opus-4-5", "max_tokens": 100, "messages": told}).encode())


def facts_of(prompt: Prompt, tokens: int, **window: Any) -> Facts:
    return Facts(Window(tokens, **window), meter_for(prompt, prompt.model, NoMemory()))


def started(prompt: Prompt, tokens: int, **window: Any) -> tuple[Draft, Facts]:
    facts = facts_of(prompt, tokens, **window)
    first = start(prompt, ladder(), facts)
    return first, replace(facts, original=first)


def dropped(prompt: Prompt, tokens: int, params: Params | None = None, **window: Any) -> Draft:
    first, facts = started(prompt, tokens, **window)
    return apply(first, facts, params or Params())


def thinks(found: Draft) -> list[int]:
    """The indices of the messages that still have reasoning."""
    return [m.index for m in found.messages if b"thinking" in m.raw]


def test_the_oldest_turns_lose_all_their_reasoning_and_the_newest_keep_theirs() -> None:
    prompt = asked(*run(8))
    whole = started(prompt, 100_000)[0].prompt
    found = dropped(prompt, whole - 300)
    left = thinks(found)
    assert left and min(left) % 4 == 1 and left == [i for i in range(min(left), 32) if i % 2]
    assert 0 < min(left) < 29 and found.prompt <= found.room
    changed = [m for m in found.messages if m.why]
    assert {m.why for m in changed} == {WHY} and [m.index for m in changed] == list(range(1, min(left), 2))
    assert json.loads(changed[1].raw)["content"] == [text("Answer 0.")]


def test_it_frees_the_room_down_to_the_lower_mark_and_then_holds() -> None:
    cuts = []
    for turns in range(8, 28):
        prompt = asked(*run(turns))
        found = dropped(prompt, 14_000) if started(prompt, 14_000)[0].excess > 0 else started(prompt, 14_000)[0]
        cuts.append(min(thinks(found)))
    assert cuts == sorted(cuts) and len(set(cuts)) < len(cuts) / 2 and max(cuts) > 0


def test_reasoning_of_the_turn_that_the_model_is_at_stays_whatever_the_room() -> None:
    opened = [*run(2), *turn(2)[1:3]]
    found = dropped(asked(*opened), 200)
    assert thinks(found) == [9]
    spoken = [*opened[:-1], {"role": "user", "content": [*opened[-1]["content"], text("And hurry.")]}]
    assert thinks(dropped(asked(*spoken), 200)) == [9]
    interrupted = [*opened, {"role": "user", "content": "And hurry."}]
    assert thinks(dropped(asked(*interrupted), 200)) == [9]


def test_a_message_of_reasoning_alone_goes_whole() -> None:
    told = [ask(0), {"role": "assistant", "content": [thinking(0)]}, ask(1), turn(1)[3], ask(2)]
    found = dropped(asked(*told), 100)
    assert [m.index for m in found.messages] == [0, 2, 3, 4] and [(d.index, d.why) for d in found.drops] == [(1, WHY)]


@pytest.mark.parametrize("window", [{"requires_reasoning": True}, {"binds": True}])
def test_models_that_need_it_keep_it(window: dict[str, Any]) -> None:
    first, facts = started(asked(*run(4)), 300, **window)
    assert apply(first, facts, Params()) is first


def test_where_reasoning_is_bound_only_what_a_cut_has_unbound_goes() -> None:
    first, facts = started(asked(*run(4)), 300, binds=True)
    cut = first.with_blocks([block for place, block in enumerate(first.blocks) if place != 6])
    found = apply(cut, facts, Params())
    assert max(thinks(found)) < min(m.index for m in first.blocks[6].messages) and thinks(found)


def test_what_the_client_pinned_keeps_it_and_so_does_a_prompt_without_any() -> None:
    prompt = asked(*run(3))
    assert thinks(dropped(replace(prompt, pins=frozenset({3})), 100)) == [3]
    plain = asked(ask(0), {"role": "assistant", "content": "Yes."}, ask(1))
    first, facts = started(plain, 10)
    assert apply(first, facts, Params()) is first


def test_reasoning_that_costs_nothing_stays() -> None:
    told = [ask(0), {"role": "assistant", "content": "Yes.", "reasoning_content": THOUGHT}, ask(1)]
    prompt = parse_chat(json.dumps({"model": "m", "messages": told}).encode())
    first, facts = started(prompt, 20)
    assert apply(first, facts, Params()) is first
    first = start(asked(*run(3)), ladder(), Facts(Window(20), WordMeter()))
    assert apply(first, Facts(Window(20), WordMeter()), Params()) is first


def test_ollamas_thinking_goes_too() -> None:
    told = [ask(0), {"role": "assistant", "content": "Yes.", "thinking": THOUGHT}, ask(1)]
    prompt = parse_ollama(json.dumps({"model": "qwen3", "messages": told}).encode())
    assert thinks(dropped(prompt, 100)) == []


def items(more: dict[str, Any]) -> Prompt:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}]}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    told = [{"type": "message", **ask(0)}, reasoning, more, said, {"type": "message", **ask(1)}]
    return parse_responses(json.dumps({"model": "gpt-5.6", "input": told}).encode())


def test_items_of_responses_go_and_what_follows_them_loses_its_id() -> None:
    prompt = items({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"})
    facts = facts_of(prompt, 100)
    found = plan(prompt, ladder(LadderStep("drop_reasoning", lambda d, f: apply(d, f, Params()))), facts).draft
    assert [m.index for m in found.messages] == [0, 2, 3, 4] and (1, WHY) in [(d.index, d.why) for d in found.drops]
    assert not any(b"fc_1" in m.raw or b"msg_1" in m.raw for m in found.messages)


def test_reasoning_stays_where_what_follows_cannot_be_without_it() -> None:
    prompt = items({"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "wait"}})
    assert len(list(dropped(prompt, 100).messages)) == 5


def test_a_block_that_a_step_deferred_is_made_without_its_reasoning() -> None:
    first, facts = started(asked(*run(3)), 300)
    before = first.blocks[1]

    def later(room: int) -> Block:
        call, result = before.messages
        return replace(before, messages=(call, replace(result, raw=result.raw.replace(b"It is so.", b"So."))))

    deferred = replace(before, later=later, most=before.tokens, least=before.tokens - 1, claimed=((3, before.tokens),))
    found = apply(first.with_blocks([first.blocks[0], deferred, *first.blocks[2:]]), facts, Params())
    made = found.blocks[1].made()
    assert found.blocks[1].most < before.tokens and b"thinking" not in made.messages[0].raw
    assert b'"So."' in made.messages[1].raw


def test_the_lower_mark_is_a_share() -> None:
    with pytest.raises(ValueError, match="low must be a share over 0"):
        Params(low=0)
