"""Older blocks of an agent's run, ranked for what it is about to do."""

from __future__ import annotations

from proxy.fit.relevance.history.blocks import REUSE, News, Reuse, asked_now, rank_blocks
from proxy.fit.relevance.text.bm25 import Index
from proxy.fit.relevance.text.reading import Reading, read_text


def read(*texts: str) -> list[list[Reading]]:
    return [[read_text(text)] for text in texts]


def index_of(blocks: list[list[Reading]]) -> Index:
    index = Index()
    for block in blocks:
        index.add(block)
    return index


def test_blocks_whose_names_were_used_again_later_are_counted() -> None:
    reuse = Reuse()
    brought = read("src/alpha.py and src/beta.py", "src/gamma.py", "src/beta.py again")
    for document, spoken in zip(
        brought, read("look", "open src/alpha.py", "open src/alpha.py and src/beta.py"), strict=True
    ):
        reuse.add([*spoken, *document], spoken)
    assert [reuse[0], reuse[1], reuse[2]] == [3, 0, 0]


def test_what_a_block_names_itself_is_no_reuse() -> None:
    reuse = Reuse()
    spoken = read_text("open src/alpha.py")
    reuse.add([spoken, read_text("src/alpha.py: fine")], [spoken])
    assert reuse[0] == 0


def test_what_the_run_is_at_are_the_users_words_and_those_of_the_last_actions_each_once() -> None:
    asked = asked_now(read_text("Fix the parser, the parser is broken"), read("parser parser", "lexer"), Index())
    assert dict(asked.words) == {"fix": 1, "parser": 3, "broken": 1, "lexer": 1} and asked.english


def test_without_a_user_the_actions_alone_tell() -> None:
    asked = asked_now(None, read("eins zwei"), Index())
    assert dict(asked.words) == {"eins": 1, "zwei": 1} and not asked.english


def test_where_neither_shows_its_language_the_blocks_do() -> None:
    english = index_of(read("this is what they have to say about it"))
    assert asked_now(None, read("parser lexer"), english).english


def test_a_block_is_worth_its_match_and_what_it_brought() -> None:
    blocks = read("the parser reads tokens", "the budget of it", "src/alpha.py is here")
    reuse = Reuse()
    for block, spoken in zip(blocks, read("a", "b", "c"), strict=True):
        reuse.add(block, spoken)
    reuse.add(read("x")[0], read("open src/alpha.py")[0])
    index = index_of(blocks)
    worth = rank_blocks(index, asked_now(read_text("What does the parser do?"), [], index), reuse, [0, 1, 2])
    assert worth == {0: 1.0, 1: 0.0, 2: REUSE}
    assert rank_blocks(index, asked_now(None, [], index), reuse, []) == {}


def named(*texts: str) -> Reuse:
    """What the assistant said in each block."""
    reuse = Reuse()
    for document in read(*texts):
        reuse.add(document, document)
    return reuse


def test_what_the_assistant_named_often_is_news_until_a_block_tells_it() -> None:
    reuse = named("src/alpha.py", "src/alpha.py", "src/beta.py", "nothing")
    news = News(reuse, (), range(4))
    assert [news[place] for place in range(4)] == [1, 1, 0.5, 0]
    news.keep(1)
    assert [news[place] for place in range(4)] == [0, 0, 0.5, 0]


def test_what_the_kept_blocks_tell_is_no_news() -> None:
    news = News(named("src/alpha.py", "src/beta.py"), ["src/alpha.py", "src/beta.py"], range(2))
    assert news[0] == news[1] == 0
