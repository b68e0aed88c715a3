"""Texts are counted exactly, in pieces or whole, and cut to a number of tokens."""

import random
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from proxy.tokens import encodings
from proxy.tokens.encodings import PIECE, SPLIT_POINT, Encoding, encoding, own, pieces
from proxy.tokens.ranks import EncodingUnavailable, ranks_of, source_of
from tests.tokens.vocabulary import write

BOTH = ("o200k_base", "cl100k_base")
SHREDS = [
    *"aAzZ09 \t\n\r.,;:'\"!?/\\-_=+(){}[]<>|",
    *("'s", "'LL", "'t", " '", "\r\n", "\n\n", " \n", "   ", "\u00a0", "\u3000", "\u2028", "\u0085", "\x1c", "\x00"),
    *(
        "é",
        "e\u0301",
        "ß",
        "Ж",
        "中",
        "文",
        "、",
        "。",
        "，",
        "ひ",
        "゛",
        "カ",
        "・",
        "한",
        "ا",
        "ब",
        "ि",
        "😀",
        "👍🏽",
        "½",
    ),
    *("ǅ", "ʰ", "\u200d", "\ufeff", "hello", "World", "return x", '{"a": 1}', "https://example.org/a?b=c", "\ud800"),
]
texts = st.lists(st.sampled_from(SHREDS), max_size=30).map("".join) | st.text(max_size=40)
names = st.sampled_from(BOTH)
RUNS = (" ", "\t", "\u3000", "\n", " \n", "a", "ab", "=", "中", "😀", "\u200d", "e\u0301")


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("o200k_base", "", 0),
        ("o200k_base", "hello world", 2),
        ("cl100k_base", "tiktoken is great!", 6),  # the figure of OpenAI's cookbook
        ("o200k_base", "tiktoken is great!", 6),
        ("cl100k_base", "antidisestablishmentarianism", 6),
        ("o200k_base", "antidisestablishmentarianism", 6),
        ("cl100k_base", "お誕生日おめでとう", 9),
        ("o200k_base", "お誕生日おめでとう", 8),
    ],
)
def test_counts_are_the_published_ones(name: str, text: str, tokens: int) -> None:
    assert encoding(name).count(text) == tokens


@pytest.mark.parametrize("name", BOTH)
def test_text_that_looks_like_a_special_token_is_ordinary_text(name: str) -> None:
    assert encoding(name).count("<|endoftext|>") > 3


@pytest.mark.parametrize("name", BOTH)
def test_a_lone_surrogate_counts_as_the_replacement_character(name: str) -> None:
    assert encoding(name).count("a\ud800b") == encoding(name).count("a\ufffdb")
    assert encoding(name).cut("a \ud800 b " * 9, 5)


@cache
def published(name: str) -> tiktoken.Encoding:
    """The encoding with the pattern that tiktoken itself has for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
        pattern = openai_public.ENCODING_CONSTRUCTORS[name]()["pat_str"]
    assert pattern != source_of(name).pattern
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks_of(source_of(name)), special_tokens={})


@pytest.mark.parametrize("name", BOTH)
def test_a_text_has_the_tokens_that_it_has_by_the_published_pattern(name: str) -> None:
    dice = random.Random(7)
    for text in ("".join(dice.choices(dice.sample(SHREDS, k=4), k=12)) for _ in range(5_000)):
        assert encoding(name)._encode(text) == published(name).encode_ordinary(text)


@given(names, texts)
def test_at_a_safe_place_the_parts_count_what_the_whole_counts(name: str, text: str) -> None:
    count = encoding(name).count
    for place in (match.start() for match in SPLIT_POINT.finditer(text)):
        assert count(text) == count(text[:place]) + count(text[place:])


@given(texts, st.integers(1, 12))
def test_pieces_are_the_text_in_order_and_none_is_too_long(text: str, size: int) -> None:
    bounds = list(pieces(text, size))
    assert "".join(text[a:b] for a, b in bounds) == text
    assert all(b - a <= size for a, b in bounds)
    assert bounds == [(0, 0)] or all(a < b for a, b in bounds)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog, and it's 42 times as quick.\n" * 1300,
        '{"id":17,"name":"Ada","tags":["x","y"],"score":1.25},' * 1700,
        "def f(x):\n\n    return {k: v for k, v in x.items()}\n\n\n" * 1800,
        "我能吞下玻璃而不伤身体。" * 4000,
        "dGhlIHF1aWNrIGJyb3duIGZveA09fA" * 3000,
        "\n\n    \n\tx" * 8000,
    ],
)
def test_a_long_text_is_counted_in_pieces_as_if_it_were_whole(name: str, text: str) -> None:
    assert len(list(pieces(text))) > 1
    whole = encoding(name)._encode(text)
    assert encoding(name).count(text) == len(whole)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_without_a_safe_place_is_counted_too(name: str, run: str) -> None:
    long, short = encoding(name).count(run * 100_000), encoding(name).count(run * 10_000)
    assert long == pytest.approx(10 * short, rel=0.02)


@pytest.mark.parametrize(("name", "text"), [("o200k_base", " " * 1_000_001), ("cl100k_base", "\t" * 1_000_001 + "x")])
def test_a_million_blanks_do_no_harm(name: str, text: str) -> None:
    assert 5_000 < encoding(name).count(text) < 1_000_000


@given(names, texts, st.integers(-1, 30), st.booleans())
def test_a_cut_is_an_end_of_the_text_and_keeps_its_promise(name: str, text: str, tokens: int, tail: bool) -> None:
    kept = encoding(name).cut(text, tokens, tail)
    assert text.endswith(kept) if tail else text.startswith(kept)
    assert encoding(name).count(kept) <= max(tokens, 0)


@given(names, texts.filter(lambda text: "\ud800" not in text), st.integers(1, 30), st.booleans())
def test_one_character_more_would_be_too_much(name: str, text: str, tokens: int, tail: bool) -> None:
    count, kept = encoding(name).count, encoding(name).cut(text, tokens, tail)
    longer = text[len(text) - len(kept) - 1 :] if tail else text[: len(kept) + 1]
    assert kept == text or count(longer) > tokens


@pytest.mark.parametrize("tail", [False, True])
def test_a_character_is_never_split(tail: bool) -> None:
    assert encoding("cl100k_base").cut("\U0001f9ff" * 3, 4, tail) == "\U0001f9ff"


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("text", ["one two three " * 20_000, "a" * 100_000, " " * 100_000])
def test_a_long_text_is_cut_where_the_tokens_end(text: str, tail: bool) -> None:
    o200k = encoding("o200k_base")
    half = o200k.count(text) // 2
    kept = o200k.cut(text, half, tail)
    assert half - 2 <= o200k.count(kept) <= half
    assert o200k.cut(text, 10 * half, tail) == text


def test_a_cut_whose_end_counts_more_alone_than_in_the_whole_is_made_shorter() -> None:
    """An encoding that counts two tokens for a text that ends in x: what was cut must be counted again."""

    def encode(text: str) -> list[int]:
        return [*map(ord, text), *([0] if text.endswith("x") else [])]

    made = Encoding("made", encode, lambda ranks: bytes(ranks))
    assert made.cut("abx yx ", 3) == "ab"


def test_an_encoding_is_loaded_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    monkeypatch.setattr(encodings, "_loaded", {})
    monkeypatch.setattr(encodings, "_load", _loader(loads))
    found: list[Encoding] = []
    threads = [threading.Thread(target=lambda: found.append(encoding("made"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["made"] and len({id(one) for one in found}) == 1


def _loader(loads: list[str]) -> Callable[[str], Encoding]:
    def load(name: str) -> Encoding:
        loads.append(name)
        return Encoding(name, lambda text: [], lambda ranks: b"")

    return load


def test_what_was_loaded_can_be_had_without_waiting() -> None:
    encodings.encoding("o200k_base")
    assert encodings.loaded("o200k_base") and not encodings.loaded("no_such_encoding")


def test_an_unknown_encoding_is_named_in_the_error() -> None:
    with pytest.raises(EncodingUnavailable, match=r"gpt2.*o200k_base, cl100k_base"):
        encoding("gpt2")


def test_a_piece_is_short_enough_for_other_threads_to_have_their_turn() -> None:
    assert PIECE <= 1 << 16


def test_what_was_counted_lately_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "CACHED_LONG", 2)
    encoded: list[str] = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return list(text.encode())

    made = Encoding("made", encode, lambda ranks: bytes(ranks))
    short, long = "a" * encodings.MAX_KEY_LENGTH, ["b" * 300, "c" * 400, "d" * 500]
    assert [made.count(text) for text in (short, short, *long[:2], *long[:2])] == [256, 256, 300, 400, 300, 400]
    assert encoded == [short, *long[:2]]
    assert [made.count(text) for text in (long[2], long[0])] == [500, 300]
    assert encoded[3:] == [long[2], long[0]]


def test_a_tokenizer_of_the_users_counts_and_cuts(tmp_path: Path) -> None:
    mine = encoding(own(str(write(tmp_path / "t.json"))))
    assert mine.count("one two three four five") == 5 and mine.count("") == 0
    assert mine.count("one " * 100_000) == 100_000
    assert mine.cut("one two three four", 2).strip() == "one two"
    assert mine.count(mine.cut("one two three four", 2, tail=True)) <= 2
    assert mine.count("one \ud83d two") == 3
    assert encoding(own(str(tmp_path / "t.json"))) is mine


def test_tokenizers_are_named_by_what_is_in_them(tmp_path: Path) -> None:
    first, same, other = (
        encoding(own(str(write(tmp_path / f"{name}.json", *more)))).name
        for name, more in (("a", ()), ("b", ()), ("c", ("five",)))
    )
    assert first == same != other and "/" not in first
