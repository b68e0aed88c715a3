"""Old history goes, whole blocks of it, and stays gone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from proxy.fit.relevance.history.embedding_scores import Embedded
from proxy.fit.relevance.history.replay import CUT
from proxy.fit.relevance.results.messages import brief_block
from proxy.fit.relevance.text.vectors import quantize
from proxy.fit.steps import prune_history
from proxy.fit.steps.prune_history import (
    Params,
    history_budget,
    newest_messages,
    newest_within,
)
from proxy.model.conversation import Block
from proxy.model.limits import Margin, Window
from proxy.model.plan import Draft, Facts, Want
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, contents, draft, facts, message, system, tool_round, user, words
from tests.pictures import anthropic_step, body, planned

KNOWN = facts(1000)


def chat(turns: int, size: int = 40) -> list[dict[str, Any]]:
    """A system prompt, and so many questions and answers of 44 tokens each."""
    told = [system(words(6))]
    for i in range(turns):
        told += [user(words(size, f"u{i}x")), assistant(words(size, f"a{i}x"))]
    return [*told, user("now?")]


def apply(before: Draft, known: Facts, params: Params) -> Draft:
    """What the step makes of a draft, where it lacks nothing."""
    found = prune_history.apply(before, known, params)
    assert isinstance(found, Draft)
    return found


def pruned(messages: list[dict[str, Any]], window: int = 1000, limit: int | None = 100, **params: Any) -> Draft:
    return apply(draft(messages, window, max_tokens=limit), KNOWN, Params(**params))


def indices(found: Draft) -> list[int]:
    return [m.index for m in found.messages]


def blocks(*costs: int, pinned: tuple[int, ...] = ()) -> tuple[Block, ...]:
    return tuple(Block((message(user(""), i, tokens=c),), i in pinned) for i, c in enumerate(costs))


def test_what_has_room_is_the_same_draft() -> None:
    before = draft(chat(3), 1000, max_tokens=100)
    assert apply(before, KNOWN, Params()) is before


def test_the_oldest_goes_and_what_is_pinned_and_newest_stays() -> None:
    after = pruned(chat(20))
    kept = indices(after)
    assert kept[:2] == [0, 1] and kept[-1] == 41 and kept[2:] == list(range(kept[2], 42))
    assert [d.index for d in after.drops] == [i for i in range(42) if i not in kept]
    assert all(d.why.startswith("older, and no room") for d in after.drops)
    assert after.excess <= 0


def test_a_cut_goes_down_to_the_low_mark_of_what_is_not_pinned() -> None:
    told = [user("first"), *(assistant(words(96)) for _ in range(9)), user("last")]
    after = pruned(told, window=1000, limit=100)  # room 900, fixed 3, pinned 13 when the ninth answer passes it
    assert after.prompt <= 5 + 3 + 5 + 0.6 * (900 - 8 - 5) + 100
    assert len(indices(after)) < len(indices(pruned(told, window=1000, limit=100, low=1.0)))


@pytest.mark.parametrize(("share", "recall"), [(0.1, 0.0), (0.25, 0.0), (0.1, 0.5)])
def test_a_cut_frees_as_many_tokens_where_counts_are_estimates(share: float, recall: float) -> None:
    freed = []
    for meter in (WordMeter(), WordMeter(margin=Margin(0, share))):
        CUT.clear()
        told = [user("first"), *(part for i in range(240) for part in tool_round(f"c{i}", words(10)))]
        drafts = [draft(told[:end], 3600, meter, max_tokens=100) for end in range(217, len(told) + 1, 2)]
        used = [apply(one, KNOWN, Params(recall=recall)).prompt for one in drafts]
        freed.append(max(before - after for before, after in pairwise(used)))
    assert abs(freed[0] - freed[1]) <= 4 * 27  # whole rounds


def test_a_large_margin_leaves_what_is_pinned() -> None:
    meter = WordMeter(margin=Margin(0, 0.5))  # 1 - 0.9 * 1.5 is under 0
    for turns in range(20):
        after = apply(draft(chat(turns), 1000, meter, max_tokens=100), KNOWN, Params(low=0.1))
        assert {0, 1, 2 * turns + 1} <= set(indices(after)) and after.excess <= 0


def test_a_cut_stays_until_the_room_is_passed_again() -> None:
    whole = chat(40)
    told = [indices(pruned([*whole[:end], user("now?")])) for end in range(30, 81)]
    starts = [next(i for i in kept if i > 1) for kept in told]
    assert starts == sorted(starts) and len(set(starts)) <= 8
    assert all(starts.count(start) >= 6 for start in sorted(set(starts))[1:-1])


def test_a_call_goes_with_its_results() -> None:
    told = [user("q"), *(m for i in range(12) for m in tool_round(f"c{i}", words(80))), user("b")]
    roles = [m.role for m in pruned(told).messages]
    assert roles[0] == "user" and roles[1:-1] == ["assistant", "tool"] * (len(roles) // 2 - 1)


def test_pins_alone_over_the_room_leave_only_the_pins() -> None:
    after = pruned([user(words(900)), assistant("old"), user("x"), assistant("y"), user(words(300))])
    assert indices(after) == [0, 4] and after.excess > 0


def test_a_newest_block_that_is_not_the_last_user_stays_with_it() -> None:
    told = [user("first"), assistant(words(600)), user("do it"), *tool_round("a", words(300)), *tool_round("b", "x")]
    assert indices(pruned(told)) == [0, 2, 3, 4, 5, 6]


def test_system_messages_in_the_middle_stay_where_they_are() -> None:
    told = [user("a"), assistant(words(500)), system("rule"), assistant(words(500)), user("b")]
    assert 2 in indices(pruned(told)) and indices(pruned(told)) == sorted(indices(pruned(told)))


def test_the_room_counts_at_most_half_the_window_as_reply() -> None:
    after = pruned(chat(20), window=1000, limit=500)
    assert 300 <= after.prompt <= 500


@pytest.mark.parametrize("limit", [501, 600, 750, 990])
def test_W10_a_reply_limit_over_half_the_window_is_lowered_before_the_history_falls_under_half(limit: int) -> None:
    found = [pruned(chat(turns), window=1000, limit=limit) for turns in range(12, 40)]
    assert all(400 <= after.prompt <= 750 and after.reply == limit for after in found)
    assert sum(after.prompt for after in found) / len(found) > 500


def test_the_models_bound_on_the_prompt_is_room_too() -> None:
    before = draft(chat(20), 10_000, max_tokens=100)
    bounded = before.with_blocks(before.blocks)
    narrow = Draft(**{**{f: getattr(bounded, f) for f in bounded.__slots__}, "window": Window(10_000, 700)})
    after = apply(narrow, KNOWN, Params())
    assert after.prompt <= 700 and after.excess <= 0


def test_a_target_takes_the_newest_that_a_share_of_the_room_holds() -> None:
    after = pruned(chat(20), target=0.5)
    assert after.window.tokens == 1000
    history = after.prompt - 3 - 10
    assert history <= history_budget(1000, 100, 13, 0.5) < history + 44


def test_a_target_never_leaves_more_than_fits() -> None:
    margin = WordMeter(margin=Margin(50, 0.1))
    for window, limit in ((1000, 100), (1000, 990)):
        before = draft(chat(20), window, margin, max_tokens=limit)
        assert apply(before, KNOWN, Params(target=1.0)).prompt <= before.room


def test_a_target_keeps_the_fewest_messages_whatever_they_cost() -> None:
    told = [user("first"), *(assistant(words(400)) for _ in range(4)), user("last")]
    assert indices(pruned(told, target=0.1)) == [0, 5]
    assert indices(pruned(told, target=0.1, min_messages=4)) == [0, 3, 4, 5]


def test_over_so_many_messages_only_the_newest_and_the_pins_stay() -> None:
    assert indices(pruned(chat(10), window=9000, max_messages=9, keep_last=5)) == [0, 1, 17, 18, 19, 20, 21]
    before = draft(chat(10), 9000)
    assert apply(before, KNOWN, Params(max_messages=22)) is before
    assert len(indices(pruned(chat(10), window=9000, max_messages=21))) == 22  # the newest 21, and the system prompt


def test_the_newest_messages_never_split_a_block() -> None:
    told = [user("q"), *tool_round("a", "x"), *tool_round("b", "y"), *tool_round("c", "z"), user("end")]
    assert indices(pruned(told, window=9000, max_messages=6, keep_last=4)) == [0, 5, 6, 7]


def test_what_so_many_messages_still_cost_is_cut_like_any_other() -> None:
    after = pruned(chat(20), max_messages=40, keep_last=38)
    assert after.excess <= 0 and len(indices(after)) < 30


def test_a_message_of_our_own_is_no_message_dropped() -> None:
    found = draft([user("a"), assistant(words(2000)), user("b")], 1000, max_tokens=100)
    ours = Block(tuple(replace(m, index=-1) for m in found.blocks[1].messages))
    after = apply(found.with_blocks([found.blocks[0], ours, found.blocks[2]]), KNOWN, Params())
    assert contents(after) == ["a", "b"] and after.drops == ()


def test_a_draft_that_is_over_for_another_reason_than_its_prompt_is_not_cut() -> None:
    before = draft(chat(5), 1000, max_tokens=950)
    assert before.excess > 0 and apply(before, KNOWN, Params()) is before


def test_newest_first_until_the_budget_is_full_to_the_token() -> None:
    some = blocks(10, 10, 10, 10, pinned=(3,))
    assert newest_within(some, {0, 1, 2, 3}, 30, 1) == {1, 2, 3}
    assert newest_within(some, {0, 1, 2, 3}, 29, 1) == {2, 3}
    assert newest_within(some, {0, 1, 3}, 40, 1) == {0, 1, 3}
    assert newest_within(some, {0, 1, 2, 3}, 0, 3) == {1, 2, 3}
    assert newest_messages(some, 3, 2) == {2, 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 0.0},
        {"low": 1.1},
        {"target": 0.0},
        {"target": 1.5},
        {"max_messages": 5, "keep_last": 6},
        {"max_messages": 0},
        {"keep_last": 0},
        {"min_messages": -1},
        {"budget": 0},
        {"recall": 1.0},
        {"recall": -0.1},
        {"layout": "wide"},
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Params(**wrong)


def test_a_run_of_tools_that_is_over_for_another_reason_than_its_prompt_is_not_cut() -> None:
    before = draft([user("do"), *tool_round("a", words(20)), *tool_round("b", words(20))], 1000, max_tokens=990)
    assert before.excess > 0 and apply(before, KNOWN, Params(recall=0.5)) is before


def test_where_no_excerpt_has_room_the_newest_stay_alone() -> None:
    found = pruned(chat(3), 180, recall=0.5, layout="stable")
    assert [m.index for m in found.messages] == [0, 1, 7] and found.prompt <= found.room


def long_run(size: int = 400) -> list[dict[str, Any]]:
    """Rounds that all bear on the question."""
    rounds = [part for i in range(80) for part in tool_round(f"c{i}", f"budget {words(size, f'r{i}x')}")]
    return [system("s"), user("What about the budget?"), *rounds]


def test_only_what_stays_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Block] = []

    def counting(block: Block, *rest: Any) -> Block:
        made.append(block)
        return brief_block(block, *rest)

    monkeypatch.setattr(prune_history, "brief_block", counting)
    after = pruned(long_run(), 4000, recall=0.5)
    short = [block for block in after.blocks if any(m.why.startswith("old tool result") for m in block.messages)]
    assert after.excess <= 0 and 0 < len(short) == len(made)


def test_where_short_forms_are_longer_than_they_were_thought_to_be_they_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prune_history, "brief_cost", lambda *_: 1)
    CUT.clear()
    after = pruned(long_run(), 4000, recall=0.5)
    CUT.clear()
    assert after.excess <= 0 and len(after.blocks) > 8


def test_short_forms_are_made_of_what_the_client_sent_where_tokens_are_counted_again_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Block] = []

    def counting(block: Block, *rest: Any) -> Block:
        made.append(block)
        return brief_block(block, *rest)

    monkeypatch.setattr(prune_history, "brief_block", counting)
    monkeypatch.setattr(prune_history, "brief_cost", lambda *_: 1)
    before, capped = draft(long_run(), 4000, max_tokens=100), draft(long_run(200), 4000, max_tokens=100)
    pairs = zip(before.blocks, capped.blocks, strict=True)
    late = [
        replace(b, later=lambda room, c=c: c, most=c.tokens, least=c.tokens) if b.has_results else b for b, c in pairs
    ]
    CUT.clear()
    after = apply(before.with_blocks(late), KNOWN, Params(recall=0.5))
    CUT.clear()
    assert after.excess <= 0 and made and all(block in late for block in made)


@pytest.mark.parametrize("params", [{"recall": 0.5}, {}, {"recall": 0.5, "layout": "best"}, {"target": 0.5}])
def test_what_is_yet_to_be_shortened_and_stays_is_made_and_fits_though_it_is_longer_than_was_said(
    params: dict[str, Any],
) -> None:
    before = draft(long_run(), 4000, max_tokens=100)
    late = [replace(b, later=lambda room, b=b: b, most=40, least=40) if b.has_results else b for b in before.blocks]
    after = apply(before.with_blocks(late), KNOWN, Params(**params))
    assert after.excess <= 0 and after.made() is after and len(after.blocks) > 2


def test_pins_of_a_run_of_tools_that_alone_are_over_the_room_stay_as_they_are() -> None:
    before = draft([user(words(300)), *tool_round("a", words(20))], 400)
    assert before.prompt > before.room and apply(before, KNOWN, Params(recall=0.5)) is before


def test_a_budget_keeps_the_newest_whole_blocks_within_so_many_tokens_though_more_would_fit() -> None:
    before = draft(chat(9), 10**6)
    after = apply(before, KNOWN, Params(budget=300))
    history = sum(b.tokens for b in after.blocks[1:])
    assert 250 < history <= 300 and after.blocks[0] is before.blocks[0]
    kept = indices(after)
    assert kept[:2] == [0, 1] and kept[2:] == list(range(kept[2], len(list(before.messages))))
    assert apply(before, KNOWN, Params(budget=10**6)) is before


def test_a_budget_is_cut_further_where_the_window_holds_less() -> None:
    before = draft(chat(30), 1000)
    after = apply(before, KNOWN, Params(budget=900))
    assert after.excess <= 0 and after.prompt < 900
    assert apply(before, KNOWN, Params(budget=200, target=1.0)).prompt <= 203


def test_what_the_best_layout_need_not_cut_is_left_alone() -> None:
    before = draft([user(words(90))], 60)
    assert before.excess > 0 and apply(before, KNOWN, Params(recall=0.5, layout="best")) is before


def test_the_best_layout_drops_what_does_not_fit_at_all_and_keeps_a_large_block_rather_than_nothing() -> None:
    told = [user("first"), assistant(words(500)), assistant(words(40, "m")), user("q")]
    params = Params(recall=0.5, layout="best")
    assert [len(text.split()) for text in contents(apply(draft(told, 100, max_tokens=20), KNOWN, params))] == [1, 40, 1]
    alone = apply(draft([*told[:2], told[3]], 100, max_tokens=20), KNOWN, params)
    assert contents(alone) == ["first", "q"] and alone.prompt < 0.8 * alone.room


# Embeddings.

SECRET = f"The vessel lies moored by pier four, {words(33, 's')}"  # as long as the other turns


def harbour() -> list[dict[str, Any]]:
    """A long chat in one turn of which stands what is asked at its end, in other words."""
    said = [(user if i % 2 == 0 else assistant)(words(40, f"t{i}x")) for i in range(40)]
    said[9] = assistant(SECRET)
    return [system("Be brief."), *said, user("Whereabouts zxq?")]


def vectors(want: Want) -> Embedded:
    """As a model would that knows that the question is about the vessel."""
    texts = {text: quantize([1.0, 0.0] if text == SECRET else [0.0, 1.0]) for text in want.payload.texts}
    return Embedded(quantize([1.0, 0.0]), texts)


def meant(layout: str, knows: bool = True) -> Draft:
    """A draft that is pruned with embeddings, or where they could not be had."""
    before, params = draft(harbour(), 1000, max_tokens=100), Params(recall=0.5, layout=layout, embeddings="emb")
    want = prune_history.apply(before, KNOWN, params)
    assert isinstance(want, Want) and want.payload.model == "emb"
    told = replace(KNOWN, knowledge={want.key: vectors(want) if knows else ""})
    return apply(before, told, params)


@pytest.mark.parametrize("layout", ["best", "stable"])
def test_what_means_what_the_question_asks_is_kept(layout: str) -> None:
    assert any(SECRET in text for text in contents(meant(layout)))
    assert not any(SECRET in text for text in contents(meant(layout, knows=False)))


@pytest.mark.parametrize("layout", ["best", "stable"])
def test_embeddings_that_could_not_be_had_change_nothing(layout: str) -> None:
    before = draft(harbour(), 1000, max_tokens=100)
    assert meant(layout, knows=False) == apply(before, KNOWN, Params(recall=0.5, layout=layout))


def test_between_two_deep_cuts_the_same_turns_are_compared_and_those_that_stay_in_place_are_none_of_them() -> None:
    params = Params(recall=0.5, layout="stable", embeddings="emb")

    def wanted(more: int) -> set[str]:
        turns = [harbour()[0], *harbour()[1:-1], *(user(f"newer {i}") for i in range(more)), user("Whereabouts zxq?")]
        want = prune_history.apply(draft(turns, 1000, max_tokens=100), KNOWN, params)
        assert isinstance(want, Want)
        return set(want.payload.texts)

    first, stays = wanted(0), harbour()[-2]["content"]
    assert SECRET in first and stays not in first
    assert wanted(1) == wanted(2) == first and first < wanted(200)


@pytest.mark.parametrize(
    ("messages", "params"),
    [
        (harbour(), Params(recall=0.5)),
        (harbour(), Params(embeddings="emb")),
        ([*harbour()[:-1], *tool_round("c", words(9)), user("Whereabouts zxq?")], Params(recall=0.5, embeddings="emb")),
        ([assistant(SECRET)] * 30, Params(recall=0.5, embeddings="emb")),
    ],
)
def test_nothing_is_wanted_without_a_model_without_recall_for_runs_of_tools_and_without_a_question(
    messages: list[dict[str, Any]], params: Params
) -> None:
    before = draft(messages, 1000, max_tokens=100)
    assert isinstance(prune_history.apply(before, KNOWN, params), Draft)
    assert params.ready is None or prune_history.ahead(before, KNOWN, params) is before


def test_it_looks_ahead_at_what_there_is_only_where_it_uses_embeddings() -> None:
    before, params = draft(harbour()[:5] + harbour()[-1:], 1000), Params(recall=0.5, embeddings="emb")
    want = prune_history.ahead(before, KNOWN, params)
    assert isinstance(want, Want) and "Be brief." in want.payload.texts
    assert prune_history.ahead(before, replace(KNOWN, knowledge={want.key: ""}), params) is before
    assert (params.ready, Params(recall=0.5).ready, Params(embeddings="emb").ready) == (0.7, None, None)


def test_layout_best_quotes_what_fits_nowhere_as_a_whole_where_else_a_fifth_stayed_empty() -> None:
    lines = [f"Line {i} tells of barrel b{i}x and its rope." for i in range(120)]
    told = [user("hello"), assistant("hi"), user("\n".join(lines)), assistant("read"), user("Who ties barrel b77x?")]
    before = draft(told, 600, max_tokens=100)
    after = apply(before, replace(KNOWN, original=before), Params(recall=0.5, layout="best"))
    assert 2 not in indices(after) and lines[77] in contents(after)[-2]
    assert 0 <= after.room - after.prompt <= 0.2 * after.room


def test_an_older_round_in_which_the_user_speaks_stays_in_its_short_form() -> None:
    """In Messages results and what the user says to them are one message: it was counted short and sent whole."""
    steps = [m for i in range(60) for m in anthropic_step(i, "https://h/a.png", f"Step {i}: " + words(60, f"r{i}x"))]
    for i, m in enumerate(steps[1::2]):
        m["content"] = [*m["content"], {"type": "text", "text": words(60, f"u{i}x")}]
        m["content"][0]["content"] = m["content"][0]["content"][:1]
    request = body("messages", [{"role": "user", "content": "Go."}, *steps])
    for count in range(80, len(steps) + 2, 2):
        made = planned("messages", {**request, "messages": request["messages"][: count - 1]}, 30_000)
        assert {note.step for note in made.notes} <= {"prune_history"} and made.fits
    assert made.draft.drops
