"""Passages of texts and turns on one scale."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.fit.relevance.passages import ranking
from proxy.fit.relevance.passages.ranking import rank_passages
from proxy.fit.relevance.passages.texts import read
from proxy.fit.relevance.text.question import question_in
from proxy.fit.relevance.text.reading import read_text
from proxy.fit.relevance.text.splitting import tokens_by_line

ASKED = question_in("Where is the lighthouse keeper's boat?")
FILLING = [f"They spoke about number {i} of the long list of other things." for i in range(120)]


def with_needle(place: int, needle: str = "The lighthouse keeper's boat is in the cave.") -> str:
    return "\n".join([*FILLING[:place], needle, *FILLING[place:]])


def test_the_passage_that_answers_is_the_best_of_all() -> None:
    turn = (read_text("We talked about a boat once."),)
    first, second, third = rank_passages([turn, read(with_needle(70), 0.2), turn], ASKED)
    assert max(second) == second[70] == 1.0 and 0 < first[0] == third[0] < 1 and len(second) == 121


def test_groups_keep_their_places_though_texts_are_ranked_first() -> None:
    turn = (read_text("The lighthouse keeper's boat is in the cave."),)
    found = rank_passages([turn, read("\n".join(FILLING), 0.2)], ASKED, alike=[1.0, 0.0])
    assert found[0][0] == 1.0 and max(found[1]) < 1


def test_what_stands_under_a_matching_line_gets_a_share() -> None:
    text = "\n\n".join(["# Other", *FILLING[:40], "# The lighthouse", *FILLING[40:80], "# More", *FILLING[80:]])
    scores = rank_passages([read(text, 0.2)], question_in("lighthouse"))[0]
    assert min(scores[42:82]) > max(scores[90:])


def test_of_a_very_long_text_only_passages_that_share_words_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "READ", 200)
    text = read(with_needle(70, "The keeper of the lighthouse: boat!"), 0.2)
    scores = rank_passages([text], ASKED)[0]
    assert max(scores) == scores[70] > 0.9
    assert sum(score > ranking.UNREAD for score in scores) < 30
    assert rank_passages([text], ASKED)[0] == scores


def test_a_very_long_text_is_read_in_batches_that_change_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "READ", 200)
    batches: list[int] = []

    def counted(lines: Sequence[str]) -> list[list[str]]:
        batches.append(sum(map(len, lines)))
        return tokens_by_line(lines)

    monkeypatch.setattr(ranking, "tokens_by_line", counted)
    text = read(with_needle(50), 0.2)
    longest = max(len(passage.text) for passage in text.passages)
    whole = rank_passages([text], ASKED)
    assert len(batches) == 1
    monkeypatch.setattr(ranking, "BATCH_CHARACTERS", 1_000)
    ranking.ROUGH.clear()
    assert rank_passages([text], ASKED) == whole
    assert len(batches) > 5 and all(size <= 1_000 + longest for size in batches[1:])
