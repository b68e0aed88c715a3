"""What became of each message, as rows."""

from __future__ import annotations

from typing import Any

from proxy.fit.plan import plan
from proxy.model.conversation import Block, PartKind
from proxy.model.plan import Draft, Drop, LadderStep, Note, Plan
from proxy.model.structs import replace
from proxy.wire.rows import Row, as_json, rows
from tests.laws.steps import ladder_step
from tests.makers import assistant, facts, ladder, prompt, system, tool_round, user, words


def planned(messages: list[dict[str, Any]], window: int, *steps: LadderStep, **fields: Any) -> Plan:
    return plan(prompt(messages, **fields), ladder(*steps), facts(window))


LONG = [system("be kind"), user(words(20)), *tool_round("c", words(300)), assistant(words(200)), user("and?")]
CUT = planned(LONG, 400, ladder_step("trim_tool_results", 1), ladder_step("prune_history"), max_tokens=150)
LOG = "\n".join(words(9, f"line{i}x") for i in range(60))


def test_each_message_has_its_state_the_step_and_the_reason() -> None:
    found = rows(CUT)
    assert [(r.index, r.role, r.state, r.step, r.why) for r in found] == [
        (0, "system", "kept", "", "pinned"),
        (1, "user", "kept", "", "pinned"),
        (2, "assistant", "dropped", "prune_history", "older, and no room, since #4"),
        (3, "tool", "dropped", "prune_history", "older, and no room, since #4"),
        (4, "assistant", "kept", "", "fits"),
        (5, "user", "kept", "", "newest"),
    ]
    assert sum(r.tokens_sent for r in found) == CUT.draft.prompt - 3
    assert sum(r.tokens for r in found) == CUT.before.prompt - 3
    assert all(r.tokens_sent == 0 for r in found if r.state == "dropped")


def test_a_message_that_is_sent_otherwise_is_shortened() -> None:
    trimmed = rows(planned(LONG, 600, ladder_step("trim_tool_results", 1), max_tokens=150))[3]
    assert (trimmed.state, trimmed.step, trimmed.why) == ("shortened", "trim_tool_results", "tool result over its cap")
    assert trimmed.tokens_sent < trimmed.tokens == 304


def shortened(draft: Draft, place: int, text: str) -> Draft:
    """The draft with another text in the message of a block."""
    block = draft.blocks[place]
    message = block.messages[0]
    edited = message.edit([(message.parts()[0], text)], "why")
    return draft.with_blocks([*draft.blocks[:place], Block((edited,)), *draft.blocks[place + 1 :]])


def done(before: Draft, **drafts: Draft) -> Plan:
    """A plan whose steps left these drafts."""
    notes = tuple(Note(step, 0, 0) for step in drafts)
    return Plan(before, [*drafts.values()][-1].made(), notes, drafts=tuple(drafts.values()))


def test_a_message_that_two_steps_change_has_the_last_one() -> None:
    before = CUT.before
    first = shortened(before, 1, "a b")
    second = shortened(shortened(first, 1, "a"), 3, "c")
    found = rows(done(before, one=first, two=second, three=replace(second, reply=5)))
    assert [(r.index, r.step) for r in found if r.state == "shortened"] == [(1, "two"), (4, "two")]


def test_a_block_that_is_made_later_belongs_to_the_step_that_deferred_it() -> None:
    before = CUT.before
    made = shortened(before, 1, "a").blocks[1]
    deferred = replace(before.blocks[1], later=lambda room: made, most=9)
    first = before.with_blocks([before.blocks[0], deferred, *before.blocks[2:]])
    second = first.with_blocks(first.made().blocks[:-1], [Drop(5, "old")])
    found = rows(done(before, defers=first, drops=second))
    assert [(r.index, r.state, r.step) for r in found if r.step] == [
        (1, "shortened", "defers"),
        (5, "dropped", "drops"),
    ]


def test_a_request_that_nothing_was_done_to_keeps_every_message() -> None:
    assert [(r.state, r.step) for r in rows(planned(LONG, 9000))] == [("kept", "")] * 6


def test_a_long_text_of_which_passages_are_sent_is_excerpted() -> None:
    made = planned([user(LOG), assistant("ok"), user("line41x3?")], 500, ladder_step("excerpt_texts"), max_tokens=50)
    found = [r for r in rows(made) if r.state != "kept"]
    assert [(r.index, r.state, r.step) for r in found if r.index is not None] == [(0, "excerpted", "excerpt_texts")]


def test_what_a_summary_stands_for_is_not_called_dropped() -> None:
    before = CUT.before
    summed = replace(before, blocks=(), drops=tuple(Drop(m.index, "summarised") for m in before.messages))
    assert {(r.state, r.why) for r in rows(Plan(before, summed))} == {("summarised", "summarised")}


def test_what_was_joined_is_told_of_both_and_counted_once() -> None:
    told = [user(words(9)), assistant(words(900)), user("b"), assistant("c"), user("d")]
    known = facts(200)
    known = replace(known, window=replace(known.window, alternates=True))
    made = plan(prompt(told, max_tokens=50), ladder(ladder_step("prune_history")), known)
    found = rows(made)
    assert [(r.state, r.step, r.tokens_sent) for r in found] == [
        ("joined", "join_turns", 0),
        ("dropped", "prune_history", 0),
        ("joined", "join_turns", 4 + 9 + 1),
        ("kept", "", 5),
        ("kept", "", 5),
    ]
    assert found[0].why == "joined to the message behind it"


def test_what_an_excerpt_quotes_or_a_summary_stands_for_has_a_state_of_its_own() -> None:
    whys = {2: "recalled: relevance 0.83", 3: "recalled: recent", 4: "summarised"}
    less = CUT.draft.with_blocks([CUT.draft.blocks[0], CUT.draft.blocks[-1]])
    gone = replace(less, drops=tuple(Drop(i, whys.get(i, "old")) for i in (1, 2, 3, 4)))
    found = rows(replace(CUT, draft=gone))
    assert [(r.state, r.why, r.tokens_sent) for r in found[1:5]] == [
        ("dropped", "old", 0),
        ("recalled", "relevance 0.83", 0),
        ("recalled", "recent", 0),
        ("summarised", whys[4], 0),
    ]


def test_a_message_of_our_own_has_a_row_before_the_one_that_follows_it() -> None:
    talk = [user(words(20, "a")), *(assistant(words(60, f"b{i}x")) for i in range(9)), user("b3x1 b3x2?")]
    made = planned(talk, 500, ladder_step("prune_history", 8), max_tokens=50)
    found = rows(made)
    assert [r.index for r in found] == [*range(10), None, None, 10], "what is held and what else is quoted"
    for ours in found[10:12]:
        assert (ours.state, ours.step, ours.role, ours.tokens) == ("added", "prune_history", "user", 0)
        assert ours.why and ours.tokens_sent > 60
    assert sum(r.tokens_sent for r in found) + 3 == made.draft.prompt


def test_a_message_of_our_own_at_the_end_has_the_last_row() -> None:
    ours = replace(CUT.draft.write("more", "why not"), tokens=7)
    behind = CUT.draft.with_blocks([*CUT.draft.blocks, replace(CUT.draft.blocks[-1], messages=(ours,))])
    last = rows(replace(CUT, draft=behind))[-1]
    assert replace(last, steps=()) == Row(None, "user", "added", "prune_history", "why not", 0, 7)


def test_an_excerpt_has_the_lines_that_it_leaves_out() -> None:
    made = planned([user("line41x3?"), *tool_round("c", LOG), user("and?")], 400, ladder_step("trim_tool_results", 1))
    row = rows(made)[2]
    assert row.state == "shortened" and row.lines == 60
    first, last = row.left_out[0][0], row.left_out[-1][1]
    assert 1 < first and last < 60
    assert as_json(row)["left_out"] == row.left_out
    assert rows(made, lines=False)[2] == replace(row, lines=0, left_out=())
    assert all("left_out" not in as_json(r) for r in rows(CUT))  # one line each


def test_arguments_of_a_call_have_no_lines_that_could_be_left_out() -> None:
    then = CUT.before.blocks[2].messages[0]
    call = next(part for part in then.parts() if part.kind is PartKind.CALL)
    edited = then.edit([(call, '{"q": "shorter"}')], "arguments of an old call")
    now = replace(CUT.before, blocks=(replace(CUT.before.blocks[2], messages=(edited,)),))
    row = next(r for r in rows(replace(CUT, draft=now)) if r.index == then.index)
    assert row.state == "shortened" and not row.left_out
