"""What is recalled before the last user message, and within which budgets."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.dropping import OLD
from proxy.fit.excerpts import HEADING as EXCERPTS
from proxy.fit.lore import LOREBOOKS, Entry
from proxy.fit.relevance.history.embedding_scores import Embedded
from proxy.fit.relevance.text.vectors import quantize
from proxy.fit.steps import prune_history, recall
from proxy.fit.steps.recall import HEADING, WHY, Params, rag_budget
from proxy.model.limits import Margin
from proxy.model.plan import Draft, Drop, Facts, Want
from proxy.model.structs import replace
from proxy.wire.rows import RECALLED
from tests.makers import WordMeter, assistant, contents, draft, facts, system, tool_round, user, words

DRAGON = Entry("Smoulder the wyrm guards the pass.", keys=("dragon",))
TOWN = Entry("Vell lies on the coast.", keys=("Vell", "harbour"))
TALK = [
    system("Be brief."),
    user("What shall we play?"),
    assistant("The ferry leaves at nine from the northern pier."),
    user("Then we pack the blue lantern."),
    assistant(words(30, "chatter")),
    user(" ".join(["prattle"] * 30)),
    assistant("Fine."),
    user("When does the ferry leave?"),
]


def told(lore: tuple[Entry, ...] = (), original: Draft | None = None) -> Facts:
    """What the step is told."""
    return replace(facts(10**6), knowledge={LOREBOOKS: lore}, original=original)


def apply(before: Draft, known: Facts, params: Params) -> Draft:
    """What the step makes of a draft, where it lacks nothing."""
    found = recall.apply(before, known, params)
    assert isinstance(found, Draft)
    return found


def excerpt(found: Draft) -> str:
    """The text of our own message; nothing where there is none."""
    return "".join(m.text() for m in found.messages if m.why == WHY)


def pruned(window: int = 900, budget: int = 30, messages: list[dict[str, Any]] = TALK) -> tuple[Draft, Draft]:
    """A conversation as it came, and with its newest turns only."""
    first = draft(messages, window)
    short = prune_history.apply(first, told(), prune_history.Params(budget=budget))
    assert isinstance(short, Draft)
    return first, short


# Lorebooks.


def test_an_entry_whose_key_the_user_names_stands_before_the_last_user_message() -> None:
    before = draft([system("Play."), user("Hi"), assistant("Hello."), user("I fight the Dragon!")], 900)
    after = apply(before, told((TOWN, DRAGON)), Params())
    assert contents(after) == [
        "Play.",
        "Hi",
        "Hello.",
        f"{HEADING}\n{DRAGON.content}",
        "I fight the Dragon!",
    ]
    (ours,) = [m for m in after.messages if m.index == -1]
    assert (ours.role, ours.why) == ("user", WHY)
    assert after.prompt == after.fixed + sum(after.meter.costs(tuple(after.messages)))


def test_keys_are_looked_for_in_the_last_two_turns() -> None:
    before = draft([user("To Vell?"), assistant("A dragon!"), user("Oh no")], 900)
    assert excerpt(apply(before, told((TOWN, DRAGON)), Params())) == f"{HEADING}\n{DRAGON.content}"


def test_instructions_call_for_no_entry() -> None:
    before = draft([system("You are a dragon."), user("Hello")], 900)
    assert apply(before, told((DRAGON,)), Params()) is before


def test_constant_entries_come_first_then_named_ones_by_order_then_what_bears_on_the_question() -> None:
    lore = (
        Entry("The ferryman hates dragons and storms.", searched=True),
        DRAGON,
        Entry("Dragons sleep.", keys=("dragon",), order=50),
        Entry("Magic is forbidden.", constant=True),
        Entry("Bread is baked at dawn.", searched=True),
    )
    before = draft([user("What does the ferryman say of the dragon?")], 900)
    lines = excerpt(apply(before, told(lore), Params())).splitlines()[1:]
    assert lines[0] == "Magic is forbidden." and set(lines[1:3]) == {DRAGON.content, "Dragons sleep."}
    assert lines[3:] == [lore[0].content]
    alike = (DRAGON, replace(DRAGON, content=f"{DRAGON.content[:-1]}!", order=9))
    lines = excerpt(apply(draft([user("A dragon?")], 900), told(alike), Params())).splitlines()[1:]
    assert lines == [alike[1].content, DRAGON.content]


def test_an_entry_with_keys_alone_is_not_recalled_for_its_relevance() -> None:
    before = draft([user("Who is Smoulder the wyrm?")], 900)
    assert apply(before, told((DRAGON,)), Params()) is before
    assert DRAGON.content in excerpt(apply(before, told((replace(DRAGON, searched=True),)), Params()))


def test_no_entry_is_shown_twice_nor_one_that_the_client_shows_itself() -> None:
    again = replace(DRAGON, keys=("wyrm",))
    before = draft([user("A dragon, a wyrm!")], 900)
    assert excerpt(apply(before, told((DRAGON, again)), Params())).count("Smoulder") == 1
    before = draft([system(f"World: {DRAGON.content}"), user("A dragon!")], 900)
    assert apply(before, told((DRAGON, again)), Params()) is before


def test_a_title_is_shown_with_its_text() -> None:
    found = apply(draft([user("Vell?")], 900), told((replace(TOWN, title="Vell, a town"),)), Params())
    assert excerpt(found) == f"{HEADING}\nVell, a town: {TOWN.content}"


# History.


def test_dropped_turns_that_bear_on_the_question_are_quoted_in_their_order() -> None:
    first, short = pruned()
    after = apply(short, told(original=first), Params(budget=70))
    lines = excerpt(after).splitlines()
    assert lines[0] == EXCERPTS and "assistant: The ferry leaves at nine from the northern pier." in lines
    assert contents(after)[-2] == excerpt(after) and contents(after)[-1] == "When does the ferry leave?"
    whys = {drop.index: drop.why for drop in after.drops}
    assert whys[2] == "recalled: relevance 1.00"
    assert all(why.startswith(("recalled", OLD)) for why in whys.values())
    assert [drop.index for drop in after.drops] == [drop.index for drop in short.drops]


def test_history_and_entries_stand_in_one_message_with_a_gap_between() -> None:
    first, short = pruned()
    ferry = Entry("Ferries are slow.", keys=("ferry",))
    lines = excerpt(apply(short, told((ferry,), first), Params(budget=60))).splitlines()
    assert lines[:3] == [HEADING, "Ferries are slow.", "[…]"]
    assert "assistant: The ferry leaves at nine from the northern pier." in lines[3:]


def test_each_source_can_be_left_out() -> None:
    first, short = pruned()
    facts = told((Entry("Ferries are slow.", keys=("ferry",)),), first)
    assert "pier" not in excerpt(apply(short, facts, Params(sources=("lorebooks",))))
    assert "slow" not in excerpt(apply(short, facts, Params(sources=("history",))))
    assert apply(short, facts, Params(sources=())) is short


def test_what_the_recent_window_shows_is_not_quoted_again() -> None:
    ferry = "The ferry leaves at nine."
    messages = [user("Hello"), assistant(ferry), user(words(40, "a")), assistant(ferry), user("When does it leave?")]
    first, short = pruned(budget=25, messages=messages)
    assert ferry in contents(short) and len(short.drops) == 2
    assert ferry not in excerpt(apply(short, told(original=first), Params()))


def test_what_was_quoted_before_is_not_quoted_again() -> None:
    first, short = pruned()
    drops = tuple(replace(drop, why="recalled: recent") for drop in short.drops)
    quoted = replace(short, drops=drops)
    assert apply(quoted, told(original=first), Params()) is quoted


def test_a_turn_without_text_is_not_quoted() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    first, short = pruned(messages=[*TALK[:3], image, *TALK[3:]])
    assert 3 in {drop.index for drop in short.drops}
    after = apply(short, told(original=first), Params())
    assert "ferry" in excerpt(after) and "user: \n" not in excerpt(after)
    assert {drop.index: drop.why for drop in after.drops}[3].startswith(OLD)


def test_a_block_is_quoted_only_where_all_of_it_is_gone() -> None:
    messages = [user("Go"), *tool_round("c", "ferry times: nine"), user(words(40, "a")), user("The ferry times?")]
    first = draft(messages, 900)
    call, result = first.blocks[1].messages
    half = first.with_blocks([first.blocks[0], *first.blocks[2:]], [Drop(call.index, "old")])
    assert apply(half, told(original=first), Params()) is half
    gone = replace(half, drops=(*half.drops, Drop(result.index, "old")))
    assert "tool: ferry times: nine" in excerpt(apply(gone, told(original=first), Params()))


# Budgets.


@pytest.mark.parametrize(
    ("recent", "left"), [(100_000, 50_000), (150_000, 50_000), (170_000, 30_000), (200_000, 0), (260_000, 0)]
)
def test_what_may_be_recalled_is_the_budget_or_what_the_recent_part_leaves(recent: int, left: int) -> None:
    assert rag_budget(50_000, 200_000, recent) == left


LORE = tuple(Entry(words(20, f"e{i}x"), constant=True, order=-i) for i in range(20))


def spent(found: Draft, before: Draft) -> int:
    return found.prompt - before.prompt


@pytest.mark.parametrize("params", [Params(budget=150), Params(total=200), Params(budget=90, total=10**6)])
def test_no_more_is_spent_than_the_budgets_allow(params: Params) -> None:
    before = draft([user(words(40))], 5000)
    after = apply(before, told(LORE), params)
    room = rag_budget(params.budget, params.total, before.prompt)
    assert room - 25 < spent(after, before) <= room
    assert excerpt(after).splitlines()[1:] == [entry.content for entry in LORE[: len(excerpt(after).splitlines()) - 1]]


@pytest.mark.parametrize("meter", [WordMeter(), WordMeter(margin=Margin(100, 0.07)), WordMeter(ratio=1.3)])
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 300}, {"max_tokens": 900, "n": 2}])
def test_only_room_that_is_there_is_spent(meter: WordMeter, fields: dict[str, int]) -> None:
    for window in range(600, 4600, 97):
        before = draft([user(words(40))], window, meter, **fields)
        after = apply(before, told(LORE), Params())
        assert after.excess <= max(0, before.excess)
        assert after is before or (before.excess <= 0 and after.prompt <= after.room)


def test_a_draft_that_does_not_fit_recalls_nothing() -> None:
    before = draft([user(words(900))], 800)
    assert apply(before, told(LORE), Params()) is before


def test_what_is_recalled_already_is_not_recalled_again() -> None:
    before = draft([user(words(40))], 5000)
    after = apply(before, told(LORE), Params(budget=150))
    assert apply(after, told(LORE), Params(budget=150)) is after


def test_without_a_user_message_nothing_is_asked() -> None:
    before = draft([system("A dragon."), assistant("A dragon.")], 900)
    assert apply(before, told((DRAGON,)), Params()) is before


def test_where_nothing_was_dropped_and_no_lorebook_is_asked_for_nothing_is_done() -> None:
    before = draft(TALK, 9000)
    assert apply(before, told(original=before), Params()) is before


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"total": 0}, {"sources": ("the web",)}])
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Params(**wrong)


def test_reports_know_the_word_by_which_reasons_begin() -> None:
    assert recall.RECALLED == RECALLED


# Embeddings.


def test_what_was_dropped_is_recalled_for_what_it_means_too() -> None:
    lantern = "Then we pack the blue lantern."
    first, short = pruned(messages=[*TALK[:-1], user("Whereabouts zxq?")])
    known, params = told(original=first), Params(budget=40, embeddings="emb")
    want = recall.apply(short, known, params)
    assert isinstance(want, Want) and lantern in want.payload.texts
    assert "Be brief." not in want.payload.texts, "it was not dropped"
    assert recall.apply(short, told((TOWN,), first), Params(sources=("lorebooks",), embeddings="emb")) is short
    texts = {text: quantize([1.0, 0.0] if text == lantern else [0.0, 1.0]) for text in want.payload.texts}
    vectors = Embedded(quantize([1.0, 0.0]), texts)
    assert lantern in excerpt(apply(short, replace(known, knowledge={want.key: vectors}), params))
    without = apply(short, replace(known, knowledge={want.key: ""}), params)
    assert without == apply(short, known, Params(budget=40)) and lantern not in excerpt(without)
