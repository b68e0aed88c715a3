"""Turns that may change what the best turns say."""

from __future__ import annotations

import random

import pytest

from proxy.config.rules import load_rules
from proxy.fit.claims.signs import SignReader
from proxy.fit.relevance.history.changes import LEAST, changing

READER = SignReader(load_rules(None).ladders["default"].conventions.reversals)


def best(old: str, *later: str) -> list[int]:
    """The places of the later turns that may change the old one, the best first."""
    texts = [old, *later]
    places = range(1, len(texts))
    return [place for _, place in changing(places, texts.__getitem__, [1.0] + [0.0] * len(later), len(later))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("We sail on May 4.", "It becomes June 18."),
        ("The gate code is 7731.", "Changed today: 2490."),
        ("[3 May] Ann: The talk is given by Ines.", "[4 May] Bob: She is ill, so Rafael takes over."),
        ("The wall gets green.", "No, yellow looks better."),
        ("The puppy is named Biscuit.", "[4 May] Ann: The kids voted again: Pickle."),
    ],
)
def test_a_value_of_the_same_kind_may_change_the_old_one(old: str, new: str) -> None:
    assert best(old, "That was a lovely evening by the lake.", new) == [2]


def test_a_question_and_what_stands_before_the_old_value_change_nothing() -> None:
    assert best("We sail on May 4.", "Could it become June 18 instead?") == []
    assert changing([0], ["It becomes June 18.", "We sail on May 4."].__getitem__, [0.0, 1.0], 5) == []


def test_of_random_turns_only_places_that_were_asked_for_come_back_the_best_first() -> None:
    rng = random.Random(3)
    words = ["now", "7", "May", "Rafael", "green", "boat", "we", "no", "otter", "the"]
    for _ in range(200):
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(12)]
        scores = [rng.random() for _ in texts]
        places = rng.sample(range(12), 6)
        found = changing(places, texts.__getitem__, scores, 4)
        assert len(found) <= 4 and {place for _, place in found} <= set(places)
        assert found == sorted(found, key=lambda each: (-each[0], -each[1]))
        assert all(worth >= LEAST for worth, _ in found)


@pytest.mark.parametrize(
    "text",
    [
        "It becomes Friday.",
        "They moved it to the small hall instead.",
        "Der Termin wurde verschoben.",
        "Finalement ce sera un chien.",
        "Al final vamos en tren.",
        "Alla fine prendiamo la barca.",
        "Afinal vamos de barco.",
        "Теперь это будет пятница.",
        "改成星期五了。",
        "金曜日に変更になりました。",
    ],
)
def test_signs_of_a_change_are_found_in_nine_languages(text: str) -> None:
    assert list(READER.clauses(text))


@pytest.mark.parametrize(
    "text",
    [
        "On second thought, carrot.",
        "Tomas stepped down, Emil does it.",
        "Nora has the flu, come to mine.",
        "Purple was sold out, we ordered teal.",
        "It's fully booked, we got the Mill House.",
        "They gave me 305 today.",
        "I talked them into twelve.",
        "Then they charge 15.",
        "He prefers the hallway.",
        "Too damp, we play in the attic.",
        "I couldn't find any, I took green.",
        "It'll be cash.",
        "Das Hotel war ausgebucht, wir schlafen in der Pension.",
        "Der Preis wurde auf 40 Euro erhöht.",
        "L'hôtel était complet, on dort chez Marie.",
        "Le loyer est passé à 800 euros.",
        "El hotel estaba lleno, dormimos en casa de Ana.",
        "La cuota subió a 30 euros.",
        "L'albergo era pieno, dormiamo da Lucia.",
        "L'affitto è salito a 700 euro.",
        "O hotel estava lotado, ficamos em casa da Rita.",
        "O Pedro demitiu-se, fica a Joana.",
        "Гостиница была занята, остановимся у Ольги.",
        "Цену подняли до 500 рублей.",
        "酒店订满了，我们住小王家。",
        "价格涨到五百元。",
        "ホテルは満室だったので、友達の家に泊まります。",
        "料金は五百円に値上げされました。",
    ],
)
def test_what_cannot_be_as_planned_and_what_others_decided_are_signs_of_a_change(text: str) -> None:
    assert list(READER.clauses(text))


@pytest.mark.parametrize(
    "text",
    [
        "The lake was calm.",
        "Wir saßen lange am See.",
        "Le lac était calme.",
        "No worries, see you soon.",
        "Did you make that yourself?",
        "I got it online and it fits.",
    ],
)
def test_an_ordinary_sentence_has_no_signs_of_a_change(text: str) -> None:
    assert not list(READER.clauses(text))
