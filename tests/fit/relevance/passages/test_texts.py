"""Which passages stay within a number of tokens."""

from __future__ import annotations

import json

import pytest

from proxy.fit.relevance.passages.texts import AROUND, choose, read

LINES = "".join(f"line {i} of a long text\n" for i in range(60))  # 6 words each
RATE = 6 / len("line 10 of a long text\n")


def scores(*best: int) -> list[float]:
    return [1.0 - 0.01 * best.index(i) if i in best else 0.0 for i in range(60)]


def test_the_first_and_the_last_short_paragraph_stay() -> None:
    text = read("Here is\nthe text:\n\n" + LINES + "\nWhat is it?\nShort, please.", RATE)
    assert sorted(text.always) == [0, 1, 62, 63]


def test_of_a_long_first_paragraph_the_first_line_stays_and_of_a_long_last_one_nothing() -> None:
    assert sorted(read(LINES, RATE).always) == [0] and len(LINES) > AROUND
    assert sorted(read("short\ntext", RATE).always) == [0]


def test_passages_of_the_question_stay() -> None:
    start = LINES.index("line 30")
    assert sorted(read(LINES, RATE, [(start, start + 30)]).always) == [0, 30, 31]


def test_the_best_for_their_cost_stay_in_the_room() -> None:
    text = read(LINES, RATE)
    choice = choose([text], [scores(20, 21, 40)], 14 + 11 + 11 + 6)
    assert choice.chosen == [{0, 20, 21}] and not choice.whole and choice.tokens <= 42


def test_what_is_left_goes_to_the_ends() -> None:
    text = read(LINES, RATE)
    assert choose([text], [scores()], 14 + 6 + 5 + 6 + 6).chosen == [{0, 1, 59}]
    assert choose([text], [scores()], 10_000).whole


def test_a_text_read_again_is_the_same() -> None:
    assert read(LINES, RATE) == read(LINES, RATE)


def test_what_a_passage_stands_under_stays_with_it() -> None:
    text = read("# A\n\n" + LINES, RATE)
    assert choose([text], [[0.0, *scores(30)]], 14 + 40).chosen[0] >= {0, 31}
    assert choose([text], [[0.0, *scores(30)]], 14 + 4).chosen == [{0}]


def test_turns_compete_for_the_room() -> None:
    text = read(LINES, RATE)
    chosen = choose([text], [scores(20, 40)], 100, [(9.0, 60), (0.001, 50)])
    assert chosen.turns == 60 and chosen.chosen[0] >= {20}


def test_each_text_gets_its_best_before_they_compete() -> None:
    one, two = read(LINES, RATE), read(LINES.replace("long", "very"), RATE)
    strong, weak = [1.0] * 60, [0.0001 * value for value in scores(30)]
    alone = choose([one, two], [strong, weak], 120)
    shared = choose([one, two], [strong, weak], 120, least=20.0)
    assert 30 not in alone.chosen[1] and 30 in shared.chosen[1]


def test_the_search_ends_when_nothing_fits_any_more() -> None:
    texts = [read(LINES * 5, RATE)]
    assert choose(texts, [[1.0] * 300], 60).tokens <= 60


RECORDS = {
    "numbered": "({k}) notes/{k}.md\nline one of {k}\nline two of {k}",
    "headings": "## Note {k}\n\n*Source: notes/{k}.md*\n\nline one of {k}\nline two of {k}",
    "signs": "=== Note {k}: notes/{k}.md ===\nline one of {k}\nline two of {k}",
}


@pytest.mark.parametrize("form", RECORDS)
def test_of_a_record_the_head_stays_and_the_note_counts_the_records(form: str) -> None:
    text = "Notes:\n\n" + "\n\n".join(RECORDS[form].format(k=k) for k in range(40))
    found = read(text, 0.3)
    place = next(i for i, passage in enumerate(found.passages) if passage.text.startswith("line two of 17"))
    row = [1.0 * (i == place) for i in range(len(found.passages))]
    [chosen] = choose([found], [row], 14 + 60).chosen
    made = found.rendered(chosen, lambda value, room: value)
    assert "notes/17.md" in made[: made.index("line two of 17")] and "of 40 results shown in part …]" in made


def test_the_rows_of_a_table_are_counted() -> None:
    text = "Towns:\n\n" + "id,town,day\n" + "".join(f"{i},Town{i},{i}\n" for i in range(100)) + "\nWhich is last?"
    found = read(text, 0.3)
    assert "left out; 100 rows in all …]" in found.rendered({0, 1, 50, len(found.passages) - 1}, lambda value, _: value)


VALUE = json.dumps([{"id": i, "town": f"Town{i}"} for i in range(100)])


@pytest.mark.parametrize("before", ["Towns:\n", "Towns: "])
def test_of_a_json_value_the_chosen_passages_tell_how_long_it_may_be(before: str) -> None:
    found = read(f"{before}{VALUE}\n\nWhich is last?", 0.5)
    [(first, end)] = found.data
    asked: list[tuple[str, int]] = []

    def shortened(value: str, room: int) -> str:
        asked.append((value, room))
        return "[1]"

    chosen = {*range(first), first, *range(end, len(found.passages))}
    assert found.rendered(chosen, shortened) == f"{before}[1]\n\nWhich is last?"
    assert asked == [(VALUE, int(0.5 * len(found.passages[first].text)))]
    whole = set(range(len(found.passages)))
    assert found.rendered(whole, shortened) == f"{before}{VALUE}\n\nWhich is last?" and len(asked) == 1


def test_a_json_value_in_which_the_question_stands_is_text() -> None:
    assert read(VALUE, 0.5).data and not read(VALUE, 0.5, [(10, 20)]).data
