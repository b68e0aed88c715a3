"""Messages whose stored form requires what a cut has removed."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.openai_responses.request import parse
from proxy.fit.plan import plan, start
from proxy.fit.stored_ids import NAME, WHY, detached
from proxy.model.conversation import Kind
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, LadderStep
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.makers import ladder
from tests.tokens.remembering import Remembering

ASK = {"role": "user", "content": "How deep?"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Six."}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
CALL = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}


def asked(*told: dict[str, Any]) -> Any:
    return parse(json.dumps({"model": "gpt-4o", "input": told}).encode())


def facts(prompt: Any, window: int = 10_000) -> Facts:
    return Facts(Window(window), meter_for(prompt, prompt.model, Remembering()))


def draft(*told: dict[str, Any]) -> Draft:
    prompt = asked(*told)
    return start(prompt, ladder(), facts(prompt))


def without_thoughts(before: Draft) -> Draft:
    """The draft without its reasoning."""
    blocks = [replace(b, messages=tuple(m for m in b.messages if m.role != "reasoning")) for b in before.blocks]
    return before.with_blocks([block for block in blocks if block.messages])


def test_what_loses_its_id_is_counted_anew_and_has_a_reason() -> None:
    before = draft(ASK, THOUGHT, CALL, OUTPUT, ASK)
    after = without_thoughts(before)
    found = detached(before, after)
    call = next(m for m in found.messages if m.calls)
    bare = {key: value for key, value in CALL.items() if key != "id"}
    assert json.loads(call.raw) == bare and call.why == WHY
    assert found.prompt == draft(ASK, bare, OUTPUT, ASK).prompt == after.prompt - 3  # as OpenAI counts a stored call


def test_the_reason_of_an_earlier_step_stays_and_blocks_that_refer_to_nothing_are_the_same() -> None:
    before = draft(ASK, THOUGHT, ANSWER, ASK)
    after = without_thoughts(before)
    told = [replace(b, messages=tuple(replace(m, why="shorter") for m in b.messages)) for b in after.blocks]
    found = detached(before, after.with_blocks(told))
    assert [m.why for m in found.messages] == ["shorter"] * 3 and b"msg_1" not in b"".join(
        m.raw for m in found.messages
    )
    assert [a is b for a, b in zip(found.blocks, told, strict=True)] == [True, False, True]


def test_what_cannot_be_sent_without_its_id_goes_unless_it_is_pinned() -> None:
    told = (ASK, THOUGHT, ANSWER, SEARCH, CALL, OUTPUT)
    before = draft(*told, ASK)
    after = without_thoughts(before)
    found = detached(before, after)
    assert [m.role for m in found.messages] == ["user", "assistant", "function_call", "function_call_output", "user"]
    assert [(drop.index, drop.why) for drop in found.drops] == [(3, WHY)]
    assert found.prompt == start_of(found) < after.prompt
    last = draft(*told)  # what the model must answer stays whole
    assert "web_search_call" in {m.role for m in detached(last, without_thoughts(last)).messages}
    alone = draft(ASK, THOUGHT, SEARCH, ASK)
    assert [m.role for m in detached(alone, without_thoughts(alone)).messages] == ["user", "user"]


def start_of(found: Draft) -> int:
    """The tokens of a draft's messages when they are sent anew."""
    return draft(*(json.loads(m.raw) for m in found.messages)).prompt


def test_where_nothing_is_gone_nothing_changes() -> None:
    before = draft(ASK, THOUGHT, ANSWER, ASK)
    shorter = before.with_blocks(before.blocks[1:])
    assert detached(before, before) is before and detached(before, shorter) is shorter
    empty = before.with_blocks(())
    assert detached(before, empty) is empty


def test_a_plan_says_that_it_was_done() -> None:
    prompt = asked(ASK, THOUGHT, CALL, OUTPUT, ASK)
    gone = LadderStep("gone", lambda found, known: without_thoughts(found), at=0.0)
    made = plan(prompt, ladder(gone), facts(prompt))
    assert [note.step for note in made.notes] == ["gone", NAME]
    assert made.notes[-1].tokens_after == made.draft.prompt and Kind.USER in {m.kind for m in made.draft.messages}
