"""BM25 over documents that come one after the other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from proxy.fit.relevance.text import bm25
from proxy.fit.relevance.text.bm25 import INDEXED, MEANT, Document, Index, Query, acquire_index, query, release_index
from proxy.fit.relevance.text.question import content_words, question_in
from proxy.fit.relevance.text.reading import read_text

CHAT = (
    "My two kids love the beach, and they would stay there all day",
    "We should have the committee decide about the budget",
    "The dog was barking at the neighbours, so they have moved",
    "What is it that you paint? I have been painting flowers",
)


def documents(*texts: str) -> list[Document]:
    return [(read_text(text),) for text in texts]


def index_of(*texts: str) -> Index:
    index = Index()
    for document in documents(*texts):
        index.add(document)
    return index


def best(index: Index, question: str, *, meaning: bool = False) -> int:
    scores = index.scores(index.query(read_text(question)), meaning=meaning)
    return max(range(len(scores)), key=lambda place: scores[place])


def test_the_document_with_the_words_is_best() -> None:
    assert best(index_of(*CHAT), "What did the committee say about the budget?") == 1


def test_in_english_words_match_by_their_stems_and_stop_words_say_nothing() -> None:
    index = index_of(*CHAT)
    asked = index.query(read_text("What was it that they painted?"))
    assert asked.english and [word for word, _ in asked.words] == ["painted"]
    assert [score > 0 for score in index.scores(asked)] == [False, False, False, True]


def test_words_that_mean_nearly_the_same_count_where_that_is_asked_for() -> None:
    index = index_of(*CHAT)
    asked = index.query(read_text("What did the children do?"))
    assert index.scores(asked) == [0.0] * 4
    scores = index.scores(asked, meaning=True)
    assert scores[0] > 0 and scores[0] == max(scores)


def test_the_word_itself_counts_more_than_one_that_means_the_same() -> None:
    index = index_of("the children are here with you", "the kids are here with you")
    scores = index.scores(index.query(read_text("Where are the children?")), meaning=True)
    assert scores[0] > scores[1] > 0


def test_a_word_that_nobody_used_counts_as_rare_as_its_nearest() -> None:
    index = index_of("the puppy is here with you", "the committee is here with you")
    scores = index.scores(index.query(read_text("Where is the dog?")), meaning=True)
    assert scores[0] > 0


def test_other_languages_match_word_by_word() -> None:
    index = index_of("Der Hund war im Garten", "Die Hunde waren im Haus", "am Anfang war das Wort")
    asked = index.query(read_text("Wo war der Hund?"))
    assert not asked.english and [word for word, _ in asked.words] == ["wo", "war", "der", "hund"]
    scores = index.scores(asked, meaning=True)
    assert scores[0] > scores[2] > scores[1] == 0


def test_chinese_matches_by_pairs_of_characters() -> None:
    assert best(index_of("我们明天去东京旅行", "她喜欢画花", "预算委员会"), "谁去了东京?") == 0


def test_of_a_very_short_question_the_documents_tell_the_language() -> None:
    assert index_of(*CHAT).query(read_text("painted flower")).english
    assert not index_of("Der Hund war im Garten").query(read_text("gardens")).english
    assert not Index().query(read_text("x")).english


def test_a_query_adds_what_matches_alike() -> None:
    assert Query((("moves", 1.0), ("moved", 2.0)), True).keys() == {"mov": 3.0}
    assert query({"moves": 1, "the": 1}, False).keys() == {"moves": 1.0, "the": 1.0}


def test_a_block_is_one_document() -> None:
    index = Index()
    index.add((read_text("alpha beta"), read_text("alpha gamma")))
    index.add((read_text("delta"),))
    assert len(index) == 2
    scores = index.scores(query({"alpha": 1}, False))
    assert scores[0] > 0 == scores[1]


@pytest.mark.parametrize("question", ["What was it that they painted for the committee?", "committee beach"])
def test_some_documents_alone_score_as_among_all(question: str) -> None:
    index = index_of(*CHAT[:2])
    index.scores_at([1], query({"budget": 1}, True))
    for document in documents(*CHAT[2:], "painting, painted: they paint"):
        index.add(document)
    for words, english in ((read_text(question).words, True), (("kids", "beach", "dog"), False)):
        asked = query(dict.fromkeys(words, 2), english)
        scores = index.scores(asked)
        assert index.scores_at([4, 1], asked) == pytest.approx({4: scores[4], 1: scores[1]})


def test_nothing_is_found_in_nothing() -> None:
    assert Index().scores(query({"a": 1}, False)) == []


def test_an_index_grows_with_its_conversation_and_is_as_good_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    INDEXED.clear()
    first = acquire_index(documents(*CHAT[:2]))
    first.scores(first.query(read_text("What did the kids do?")), meaning=True)
    release_index(first)
    monkeypatch.setattr(bm25, "Index", None)  # nothing new is made
    grown = acquire_index(documents(*CHAT))
    assert grown is first and len(grown) == 4
    asked = grown.query(read_text("What is it that the children painted?"))
    assert grown.scores(asked, meaning=True) == index_of(*CHAT).scores(asked, meaning=True)


def test_the_agreement_is_the_rarity_of_the_words_that_meet_in_one_document() -> None:
    index = index_of("zebu quokka", "zebu", "quokka numbat", "civet")
    alone, both, without, none = index.agreements([["civet", "axolotl"], ["zebu", "quokka"], ["zebu"], []])
    assert (alone, none) == (1.0, 0.0) and both == pytest.approx(2 * without) and without < 1
    assert index.agreements([["zebu", "quokka"], ["civet"]], besides=0) == [without, 1.0]
    assert index.agreements([["civet"]], besides=3) == [0.0] == Index().agreements([["civet"]])


def test_a_word_of_many_documents_is_no_agreement() -> None:
    many = index_of(*[f"zebu n{i}" for i in range(bm25.FEW)], *["civet"] * (bm25.FEW + 1))
    zebu, civet = many.agreements([["zebu"], ["civet"]])
    assert zebu > 0 == civet and many.contains("civet")


def test_a_word_is_contained_or_not_besides_a_document() -> None:
    index = index_of("zebu quokka", "quokka")
    assert index.contains("zebu") and not index.contains("zebu", besides=0) and index.contains("quokka", besides=0)
    assert index.rarity("zebu") == 1.0 > index.rarity("quokka") and index.rarity("civet") == 0.0


def test_in_english_a_word_that_is_frequent_in_the_language_agrees_less() -> None:
    index = index_of("I think that the vessel is what you would have it be", "It is the time that you have")
    vessel, time = index.agreements([["vessels"], ["times"]])
    assert index.is_english and vessel > time > 0


def test_in_other_languages_words_match_by_their_beginning() -> None:
    index = index_of("Die Laternen stehen im Keller", "Der Keller ist leer", "Zug 17")
    scores = index.scores(query({"laterne": 1}, False))
    assert scores[0] > 0 and scores[1:] == [0.0, 0.0]


def test_an_index_that_is_in_use_is_nobody_elses() -> None:
    INDEXED.clear()
    release_index(acquire_index(documents(*CHAT)))
    first, second = acquire_index(documents(*CHAT)), acquire_index(documents(*CHAT))
    assert first is not second


def test_another_conversation_does_not_grow_on_this_one() -> None:
    INDEXED.clear()
    release_index(acquire_index(documents(*CHAT)))
    other = acquire_index(documents(*CHAT[:3], "something else"))
    assert len(other) == 4 and other.scores(query({"paint": 1}, False)) == [0.0] * 4


def test_a_number_that_two_conversations_share_by_accident_is_not_trusted() -> None:
    INDEXED.clear()
    foreign = index_of("alpha")
    mine = documents("beta")
    INDEXED.put(bm25._next_number(0, mine[0]), foreign)
    assert acquire_index(mine).documents == [tuple(mine[0])]


def test_documents_without_words_weigh_something_too() -> None:
    INDEXED.clear()
    many = bm25.MAX_BYTES // bm25.POSTING_BYTES // bm25.READING_POSTINGS // 3
    for word in ("one", "two", "three"):
        release_index(acquire_index(documents(word, *["--"] * many)))
    assert len(INDEXED) == 2


def test_scores_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.fit.relevance.text.test_bm25 import CHAT, index_of, read_text\n"
        "index = index_of(*CHAT)\n"
        "print(index.scores(index.query(read_text('What do the children paint at the sea?')), meaning=True))\n"
        "many = index_of(*(' '.join(f'n{j} ' * (1 + j % 3) for j in range(60) if j % (i + 2)) for i in range(9)))\n"
        "print(many.scores_at(range(9), many.query(read_text(' '.join(f'n{j}' for j in range(60))))))"
    )
    seeds = ("0", "1", "77")
    printed = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in seeds
    }
    assert len(printed) == 1


ENGLISH = (
    "We have been to the mountains with the tent, and it was raining all the time.",
    "She has adopted a dog from the shelter, and they are happy with it.",
    "What do you think of the painting that I have bought for the kitchen?",
    "They would have been there, but the train was late and the war museum was closed.",
)
GERMAN = (
    "Wir waren mit dem Zelt in den Bergen, und es hat die ganze Zeit geregnet.",
    "Sie hat einen Hund aus dem Tierheim geholt, und sie sind glücklich mit ihm.",
    "Was hältst du von dem Gemälde, das ich für die Küche gekauft habe?",
    "Sie wären gekommen, aber der Zug hatte Verspätung, und das Museum war zu.",
)


@pytest.mark.parametrize(
    ("talk", "question", "place"),
    [
        (ENGLISH, "Wann hat sie den Hund bekommen?", 1),
        (ENGLISH, "Où est le tableau qu'elle a acheté ?", 2),
        (ENGLISH, "¿Cuándo estuvieron en las montañas?", 0),
        (ENGLISH, "Chi ha adottato il cane?", 1),
        (ENGLISH, "Onde está a pintura que comprei?", 2),
        (ENGLISH, "Где они были в горах?", 0),
        (ENGLISH, "她什么时候有了小狗？", 1),
        (GERMAN, "When did she get the dog from the shelter?", 1),
        (GERMAN, "Where have they been with the tent?", 0),
        (GERMAN, "Pourquoi le train était-il en retard ?", 3),
    ],
)
def test_a_question_in_another_language_finds_what_means_the_same(
    talk: tuple[str, ...], question: str, place: int
) -> None:
    index = index_of(*talk)
    assert index.asked_in(read_text(question)) and index.language == ("en" if talk is ENGLISH else "de")
    asked = question_in(question).query(index)
    assert asked.asked_in and best_of(index.scores(asked, meaning=True)) == place
    assert max(index.agreements([content_words(question)], -1, [asked.asked_in])) > max(
        index.agreements([content_words(question)])
    )


def best_of(scores: list[float]) -> int:
    return scores.index(max(scores)) if scores.count(max(scores)) == 1 else -1


def test_function_words_of_another_language_match_nothing() -> None:
    index = index_of(*ENGLISH)
    asked = question_in("Wann war das?").query(index)
    assert asked.words == () and asked.asked_in == "de"
    assert not any(index.scores(asked, meaning=True)) and index.agreements([["war"]], -1, ["de"]) == [0.0]


def test_without_meaning_a_question_in_another_language_matches_the_words_as_they_are() -> None:
    index = index_of(*ENGLISH)
    asked = question_in("Was wollte sie im Museum?").query(index)
    assert [round(score, 3) > 0 for score in index.scores(asked)] == [False, False, False, True]


def test_names_are_found_in_any_language() -> None:
    index = index_of(*ENGLISH, "Caroline has seen the lions, and that was what she had hoped for.")
    assert best_of(index.scores(question_in("Was hat Caroline dort gesehen?").query(index), meaning=True)) == 4


def test_conversations_in_a_language_without_a_table_are_searched_as_before() -> None:
    index = index_of("Wij zijn met de tent in de bergen geweest.", "Zij heeft een hond uit het asiel gehaald.")
    assert index.language == "" and not index.asked_in(read_text("When did she get the dog?"))


def test_the_language_follows_the_documents() -> None:
    index = index_of(*GERMAN)
    assert index.language == "de"
    for text in ENGLISH * 9:
        index.add((read_text(text),))
    assert index.language == "en"


def test_of_very_many_words_of_another_language_so_many_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sought = []

    def similar(_: Index, word: str, key: str, asked_in: str = "") -> list[tuple[float, str]]:
        sought.append((word, key, asked_in))
        return []

    monkeypatch.setattr(Index, "_similar", similar)
    index = index_of(*ENGLISH)
    index.agreements([[f"wort{number}" for number in range(5 * MEANT)]], -1, ["de"])
    assert len(sought) == MEANT


def test_a_question_in_another_language_scores_the_same_whatever_was_asked_before() -> None:
    fresh, used = index_of(*ENGLISH), index_of(*ENGLISH[:2])
    for text in ("Wann war der Hund da?", "Où est la tente ?"):
        used.scores(question_in(text).query(used), meaning=True)
    for text in ENGLISH[2:]:
        used.add((read_text(text),))
    asked = "Wo ist das Bild für die Küche?"
    assert fresh.scores(question_in(asked).query(fresh), meaning=True) == used.scores(
        question_in(asked).query(used), meaning=True
    )
