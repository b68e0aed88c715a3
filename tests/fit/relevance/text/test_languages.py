"""Which language a text is in, told by its function words."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.languages import FUNCTION_WORDS, language_of, language_of_all
from proxy.fit.relevance.text.reading import read_text
from proxy.fit.relevance.text.word_table import LANGUAGE_SHA256

QUESTIONS = [
    ("en", "When did she buy the bicycle with the basket?"),
    ("de", "Wann hat sie das Fahrrad mit dem Korb gekauft?"),
    ("fr", "Quand a-t-elle acheté le vélo avec le panier ?"),
    ("es", "¿Cuándo compró la bicicleta con la cesta?"),
    ("it", "Quando ha comprato la bicicletta con il cestino?"),
    ("pt", "Quando é que ela comprou a bicicleta com o cesto?"),
    ("ru", "Когда она купила велосипед с корзиной?"),
    ("zh", "她是什么时候买了那辆带篮子的自行车？"),
]


@pytest.mark.parametrize(("language", "text"), QUESTIONS)
def test_a_question_tells_its_language(language: str, text: str) -> None:
    assert language_of(read_text(text)) == language


def test_accents_tell_languages_apart_and_may_be_missing() -> None:
    assert language_of(read_text("¿Qué tipo de temas le gusta pintar a Evan?")) == "es"
    assert language_of(read_text("Wofur mochte er das Geld ausgeben?")) == "de"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1984",
        "Caroline Melanie Oregon",
        "Hoe gaat het met je? Ik ben gisteren naar de markt geweest en heb daar een fiets gekocht.",
        "Hvordan har du det? Jeg var på markedet i går og købte en ny cykel.",
        "昨日市場に行って新しい自転車を買いました。どう思いますか",
        "que",
    ],
)
def test_what_tells_no_language_or_two_alike_has_none(text: str) -> None:
    assert language_of(read_text(text)) == ""


def test_of_many_texts_their_words_together_tell() -> None:
    words = {"der": 40, "und": 30, "nicht": 20, "no": 3}
    assert language_of_all(lambda word: words.get(word, 0), 400) == "de"
    assert language_of_all(lambda word: words.get(word, 0), 4000) == ""


def test_each_language_has_a_table_of_words() -> None:
    assert FUNCTION_WORDS.keys() == LANGUAGE_SHA256.keys()
