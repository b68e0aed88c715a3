"""The laws themselves: each looks at a draft before and after, or at a plan and its bytes, and complains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from proxy.fit.plan import start
from proxy.model.conversation import Kind, Message, PartKind, Prompt
from proxy.model.plan import Draft, Facts, Plan
from proxy.wire.report import inspection
from tests.laws.cases import Case
from tests.laws.dialects import Dialect
from tests.makers import ladder

MAY_CHANGE_PINNED = ("excerpt_texts", "truncate_longest")  # the steps whose job that is
MAY_SHORTEN_NEWEST = ("trim_tool_results", "compact_json")  # results in the newest block
MAY_LENGTHEN_NEWEST = "prune_history"  # gives back what is claimed of a result that was shortened before it


def theirs(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The client's messages, without those of our own."""
    return [m for m in messages if "x-uid" in m]


def pairs(messages: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
    """Which result (by its uid) answers which call; a result answers what stands before it and only results between."""
    found, calling, waiting = set(), -1, set[str]()
    for m in theirs(messages):
        ident = m.get("tool_call_id") if m["role"] == "tool" else ""
        if m["role"] in ("tool", "function") and ident in waiting:
            found.add((calling, m["x-uid"]))
            continue
        calling, waiting = m["x-uid"], {c["id"] for c in m.get("tool_calls") or []}
        waiting |= {""} if m.get("function_call") else set()
    return found


def assert_paired(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> None:
    """No result without its call, no call without a result that it had."""
    left = {m["x-uid"] for m in after if "x-uid" in m}
    assert pairs(after) == {(call, result) for call, result in pairs(before) if call in left or result in left}


def assert_valid(messages: Sequence[dict[str, Any]], opened: int) -> None:
    """What strict providers check: every result answers, every call but those of an opened last round is answered."""
    answered = pairs(messages)
    assert {r for _, r in answered} == {m["x-uid"] for m in messages if m["role"] in ("tool", "function")}
    for m in theirs(messages):
        wanted = len(m.get("tool_calls") or []) + bool(m.get("function_call"))
        assert sum(c == m["x-uid"] for c, _ in answered) == wanted or m["x-uid"] >= opened


def users_after_results(messages: Sequence[dict[str, Any]]) -> int:
    """How often a user speaks straight after a result."""
    roles = [m["role"] for m in messages]
    return sum(a in ("tool", "function") and b == "user" for a, b in pairwise(roles))


def assert_in_turn(messages: Sequence[dict[str, Any]]) -> None:
    """Users and answers in turn behind instructions, as chat templates check it: calls and results do not count."""
    roles = [m["role"] for m in messages if m["role"] != "tool" and not m.get("tool_calls")]
    turns = roles[roles[:1] == ["system"] :]
    assert turns == [("user", "assistant")[i % 2] for i in range(len(turns))]


def assert_said(before: Draft, after: Draft, name: str = "") -> None:
    """What is pinned is still said whole, be it in a message of its own or in one that it was joined to."""
    left = "\0".join(m.text() for m in after.messages)
    for block in before.blocks:
        speaking = [m for m in block.messages if m.kind in (Kind.INSTRUCTION, Kind.USER)]
        assert not block.pinned or all(m.own_text() in left for m in speaking)


def assert_accounts(sent: Prompt, draft: Draft) -> None:
    """Kept and dropped messages are all of the client's, each once, the kept ones in the client's order."""
    kept = [m.index for m in draft.messages if m.index >= 0]
    assert kept == sorted(kept)
    assert sorted([*kept, *(drop.index for drop in draft.drops)]) == list(range(len(sent.messages)))
    assert all(drop.why for drop in draft.drops)


def assert_untouched(dialect: Dialect, sent: Prompt, draft: Draft) -> None:
    """A message is the client's own bytes, or it says why not; whatever happened, only its content changed, and what
    its calls were called with."""
    for m in draft.messages:
        if m.index < 0:
            assert m.why and m.kind is Kind.USER  # of our own, and it says for what
            continue
        mine = sent.messages[m.index]
        if m.raw is mine.raw:
            continue
        assert m.why and m.raw != mine.raw
        assert dialect.frame(m) == dialect.frame(_as_left_out(mine, m))


def _as_left_out(mine: Message, sent: Message) -> Message:
    """The client's message with texts in place of the media that were left out: only these may be."""
    left = {part.place for part in sent.parts() if part.removable}
    gone = [(part, "left out") for part in mine.parts() if part.removable and part.place not in left]
    return mine.without_media(gone, "left out")


def assert_pins(name: str, before: Draft, after: Draft) -> None:
    """What is pinned is still there, and (but for two exceptions) with the same bytes.

    The steps that may shorten long texts in pinned messages do not change what the client pinned."""
    left = {m.index: m.raw for m in after.messages if m.index >= 0}
    ours = [m.raw for m in after.messages if m.index < 0]
    users = [m.index for m in before.messages if m.kind is Kind.USER and m.index >= 0]
    always = {m.index for m in before.messages if m.kind is Kind.INSTRUCTION}
    assert always | {*users[:1], *users[-1:]} <= set(left)
    for place, block in enumerate(before.blocks):
        newest = place == len(before.blocks) - 1
        for m in block.messages if block.pinned else ():
            if m.index < 0:
                assert m.raw in ours or name in MAY_CHANGE_PINNED
                continue
            assert m.index in left
            longer = name == MAY_LENGTHEN_NEWEST and len(left[m.index]) > len(m.raw)
            free = (name in MAY_CHANGE_PINNED and m.index not in before.pins) or (
                (name in MAY_SHORTEN_NEWEST or longer) and newest and m.answers
            )
            assert free or left[m.index] == m.raw


def assert_fields_kept(dialect: Dialect, before: bytes, after: bytes) -> None:
    """Every field of the body is still there, in its order, and no other but those that the API adds; those that no
    step may touch have their bytes."""
    then, now = (msgspec.json.decode(body, type=dict[str, msgspec.Raw]) for body in (before, after))
    assert [key for key in now if key not in dialect.added or key in then] == list(then)
    assert all(bytes(now[key]) == bytes(then[key]) for key in then if key not in dialect.changing)


def assert_recounted(case: Case, plan: Plan, body: bytes) -> None:
    """The bytes that would be sent, parsed and counted anew, are what the plan says; and they fit, or it says not."""
    draft, again = plan.draft, case.dialect.parse(body, case.pins)
    assert (again.model, again.reply.limit) == (draft.model, draft.reply)
    prompt = start(again, ladder(), Facts(draft.window, draft.meter)).prompt
    assert prompt == draft.prompt
    window, gap = draft.window.tokens, draft.window.margin(draft.meter.margin)
    margin, bound = gap.of(prompt), draft.window.max_input or window
    reply = draft.floor if again.reply.limit is None else again.reply.limit
    assert plan.fits == (prompt + reply + margin <= window and prompt + margin - gap.base <= bound)
    assert plan.possible == (prompt + min(draft.least, reply) <= window and prompt <= bound)


def assert_told(plan: Plan) -> None:
    """The rows of a report are each of the client's messages once, in order, and add up to the prompt before and
    after."""
    found = inspection(plan, None)
    rows = found["messages"]["detail"]
    assert [row["index"] for row in rows if row["index"] is not None] == list(range(found["messages"]["in"]))
    sums = [sum(row[key] for row in [*rows, found["messages"]["overhead"]]) for key in ("tokens", "tokens_sent")]
    assert sums == [plan.before.prompt, plan.draft.prompt]
    assert all(row["why"] for row in rows)
    steps = {note.step for note in plan.notes}
    assert all((row["step"] == "") == (row["state"] == "kept") and row["step"] in {"", *steps} for row in rows)


LEFT_OUT = "[A proxy left out "  # how every stub of a repeated text begins


def assert_stubs_hold(plan: Plan) -> None:
    """Every stub's target is in what is sent, whole, or the stub says how much of it is left."""
    sent = {m.index: m for m in plan.draft.messages}
    texts: dict[tuple[int, str], list[str]] = {}
    for m in sent.values():
        for part in m.parts():
            if part.kind is PartKind.RESULT:
                texts.setdefault((m.index, part.call), []).extend(part.text.split("\n"))
    told = {(i, call, line) for (i, call), lines in texts.items() for line in lines if line.startswith(LEFT_OUT)}
    for each in plan.draft.repeats:
        left = [line for h in each.holders for line in texts.get((h.index, h.call), ())]
        whole = all(h.index in sent and sent[h.index].raw == h.raw for h in each.holders)
        if (each.index, each.call, each.stub) in told:
            assert whole or (not each.older and set(each.lines) <= set(left))
            told.discard((each.index, each.call, each.stub))
    assert all(" stands in " not in line for _, _, line in told)  # what is not whole is not said to stand anywhere
