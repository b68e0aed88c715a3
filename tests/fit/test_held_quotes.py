"""Quotes that stay from one cut of a chat to the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.fit import held_quotes as module
from proxy.fit.excerpts import GAP, HEADING
from proxy.fit.held_quotes import NOTHING, Held, held_quotes
from proxy.fit.long_texts import EXCERPTED
from proxy.fit.quotes import with_quotes
from proxy.fit.relevance.text import bm25
from proxy.fit.relevance.text.question import Question, question_in
from proxy.fit.steps.prune_history import Params, apply
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import assistant, contents, draft, facts, user, words

SUBJECTS = ("ferry", "garden", "piano")


def talk(turns: int) -> list[dict[str, Any]]:
    """A chat that spoke of two subjects by turns, of a third one, of other things, and then stays with the first."""
    old = [f"The {SUBJECTS[i % 2]} has {words(9, f'{SUBJECTS[i % 2]}{i}x')}" for i in range(60)]
    old += [f"The {SUBJECTS[2]} has {words(9, f'p{i}x')}" for i in range(40)]
    old += [words(11, f"w{i}x") for i in range(60)]
    new = [f"And what of the ferry, the ferry and {words(6, f'n{i}x')}?" for i in range(turns)]
    return [(assistant if i % 2 else user)(text) for i, text in enumerate([*old, *new])]


def sent(turns: int, question: str = "") -> list[str]:
    told = talk(2 * turns + 1)
    told = [*told[:-1], user(question)] if question else told
    made = apply(draft(told, 1000, max_tokens=20), facts(1000), Params(recall=0.5, layout="stable"))
    assert isinstance(made, Draft)
    return contents(made)


def same(before: Sequence[str], after: Sequence[str]) -> int:
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))])


def test_between_two_cuts_quotes_stay_where_they_were_put_and_the_prompt_begins_as_before() -> None:
    runs = [sent(turns) for turns in range(20, 40)]
    stays = [
        same(before, after) > next(k for k, text in enumerate(before) if text.startswith(HEADING))
        for before, after in itertools.pairwise(runs)
        if sum(text.startswith(HEADING) for text in before) == 2
    ]
    assert len(stays) > 12 and sum(stays) > 0.6 * len(stays)


@pytest.mark.parametrize("recall", [0.05, 0.1, 0.3])
def test_what_is_held_takes_no_more_than_is_left(recall: float) -> None:
    """A rule may leave quotes less room than those that are held take."""
    for turns in range(1, 12):
        told = draft(talk(2 * turns + 1), 1000, max_tokens=20)
        made = apply(told, facts(1000), Params(recall=recall, layout="stable"))
        assert isinstance(made, Draft) and made.excess <= 0


def test_nothing_is_quoted_twice() -> None:
    for turns in range(20, 40):
        quoting = [text for text in sent(turns) if text.startswith(HEADING)]
        lines = [line for text in quoting for line in text.split("\n")[1:] if line != GAP]
        assert lines and len(lines) == len(set(lines))


@pytest.mark.parametrize(("subject", "messages"), [("lighthouse", 2), ("garden", 1)])
def test_a_question_about_something_else_gets_all_of_the_room_for_its_own_quotes(subject: str, messages: int) -> None:
    said = [f"The {'lighthouse' if i < 20 else 'garden'} has {words(9, f's{i}x')}" for i in range(100)]
    said += [words(11, f"w{i}x") for i in range(100)]
    talk = [(assistant if i % 2 else user)(text) for i, text in enumerate([*said, f"What has the {subject} there?"])]
    before = draft(talk, 600, max_tokens=10)
    kept = {0: 0, 199: 1, 200: 2}
    made = before.with_blocks([before.blocks[place] for place in kept])
    question = Question(question_in(f"What has the {subject} there?").clauses, 200)
    held = Held(tuple(range(2, 14)), 199, frozenset())
    after = with_quotes(made, before.blocks, kept, before, question, held=held)
    found = contents(after)
    assert sum(text.startswith(HEADING) for text in found) == messages and after.prompt <= after.room
    assert found[-1] == talk[-1]["content"] and f"The {subject} has" in "\n".join(found)
    assert (found[1].startswith(HEADING)) == (messages == 2), "it stands where it was put"


def test_what_is_held_depends_on_nothing_behind_the_cut() -> None:
    whole = draft(talk(41), 9000).blocks
    first = held_quotes(whole, {i: i for i in range(80, len(whole))}, 100, 600)
    for end in (101, 110, 131):
        module.CHOSEN.clear()
        assert held_quotes(whole[:end], {i: i for i in range(80, end)}, 100, 600) == first
    assert first.at == 100 and first.places and max(first.places) < 80
    assert sum(whole[place].tokens for place in first.places) <= module.SHARE * 600


def test_before_the_first_cut_nothing_is_held() -> None:
    blocks = draft(talk(5), 9000).blocks
    assert held_quotes(blocks, {i: i for i in range(len(blocks))}, -1, 600) is NOTHING
    assert held_quotes(blocks[:3], {}, 5, 600) is NOTHING and not NOTHING.again({1, 2}, blocks)


def test_enough_of_them_in_tokens_are_asked_for_again_or_none_stays() -> None:
    blocks = draft([user(words(30)), assistant(words(5)), user(words(5))], 900).blocks
    held = Held((0, 1), 2, frozenset())
    assert held.again({0}, blocks) and not held.again({1}, blocks)


def test_a_cold_request_indexes_each_turn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[bm25.Document] = []
    add = bm25.Index.add

    def counting(index: bm25.Index, document: bm25.Document) -> None:
        added.append(document)
        add(index, document)

    monkeypatch.setattr(bm25.Index, "add", counting)
    module.CHOSEN.clear()
    bm25.INDEXED.clear()
    texts = sent(30)
    assert sum(text.startswith(HEADING) for text in texts) == 2, "quotes are held"
    assert len(added) == len(talk(61)) - 1


def test_a_text_that_was_shortened_for_one_question_is_not_held() -> None:
    whole = draft(talk(41), 9000).blocks
    kept = {i: i for i in range(80, len(whole))}
    place = held_quotes(whole, kept, 100, 600).places[0]
    short = replace(whole[place], messages=tuple(replace(m, why=EXCERPTED) for m in whole[place].messages))
    module.CHOSEN.clear()
    assert place not in held_quotes([*whole[:place], short, *whole[place + 1 :]], kept, 100, 600).places
