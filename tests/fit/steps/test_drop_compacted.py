"""What a provider's own compaction stands for goes first."""

from __future__ import annotations

from proxy.fit.steps.drop_compacted import WHY, Params, apply
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import assistant, draft, facts, system, tool_round, user, words

TOLD = [
    system("Be brief."),
    user("The first question."),
    *tool_round("1", words(60)),
    user(words(50)),
    assistant(words(40)),
    assistant("compacted"),
    *tool_round("2", words(20)),
    user("The last question."),
]
COMPACTED = 6


def compacted(window: int, *places: int) -> Draft:
    """The conversation, with the messages at these places standing for all before them."""
    found = draft(TOLD, window)
    blocks = [
        replace(b, messages=tuple(replace(m, compacts=m.index in places) for m in b.messages)) for b in found.blocks
    ]
    return replace(found, blocks=tuple(replace(b, pinned=b.pinned or b.messages[0].compacts) for b in blocks))


def left(after: Draft) -> list[int]:
    return [m.index for m in after.messages]


def test_all_but_what_the_user_said_goes_first() -> None:
    before = compacted(220, COMPACTED)
    after = apply(before, facts(220), Params())
    assert before.excess > 0 and left(after) == [0, 1, 4, 6, 7, 8, 9] and after.excess <= 0
    assert [(drop.index, drop.why) for drop in after.drops] == [(2, WHY), (3, WHY), (5, WHY)]
    assert after.prompt == before.prompt - sum(m.tokens for m in before.messages if m.index in (2, 3, 5))


def test_if_that_is_not_enough_the_users_words_go_too_but_what_is_pinned_stays() -> None:
    assert left(apply(compacted(120, COMPACTED), facts(120), Params())) == [0, 1, 6, 7, 8, 9]


def test_of_several_the_newest_counts() -> None:
    before = compacted(120, 5, COMPACTED)
    blocks = [replace(b, pinned=False) if b.messages[0].index == 5 else b for b in before.blocks]
    assert 5 not in left(apply(replace(before, blocks=tuple(blocks)), facts(120), Params()))


def test_where_nothing_is_compacted_or_nothing_may_go_the_draft_is_the_same() -> None:
    plain = compacted(300)
    assert apply(plain, facts(300), Params()) is plain
    pinned = replace(compacted(300, COMPACTED), blocks=tuple(replace(b, pinned=True) for b in plain.blocks))
    assert apply(pinned, facts(300), Params()) is pinned
    first = compacted(300, 1)
    assert apply(first, facts(300), Params()) is first
    users = draft([user("a"), user(words(9)), user("b")], 10_000)
    marked = [replace(b, messages=tuple(replace(m, compacts=m.index == 2) for m in b.messages)) for b in users.blocks]
    kept = replace(users, blocks=tuple(marked))
    assert apply(kept, facts(10_000), Params()) is kept
