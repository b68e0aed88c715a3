"""Clauses with signs: of orders, in nine languages."""

from __future__ import annotations

import json
import random

import pytest

from proxy.config.rules import load_rules
from proxy.fit.claims.signs import MOST_RAW, SignReader, words_in

READER = SignReader(load_rules(None).ladders["default"].conventions.orders)

ORDERS = [
    "Please sign every letter with my initials, never with my full name.",
    "I'm coeliac, by the way.",
    "My flat is tiny, remember that I have no oven.",
    "Whenever I ask for a route, add the walking time.",
    "I can't read charts, the screen reader skips them.",
    "Stick to metric units.",
    "Don't show me spoilers.",
    "I'd rather travel by night.",
    "Bitte verwende in allen Texten die neue Rechtschreibung.",
    "Ab sofort nur noch vegetarische Vorschläge.",
    "Ich bin Vegetarierin.",
    "Nenn mich Doktor Ahrens.",
    "Ich wohne in Rostock.",
    "Ne me propose jamais de viande.",
    "Désormais, réponds en une phrase.",
    "Je travaille de nuit.",
    "Appelle-moi Maëlle.",
    "No me hables de fútbol.",
    "Soy alérgica a los frutos secos.",
    "A partir de ahora usa solo el sistema métrico.",
    "Non mangio carne di maiale.",
    "Rispondi sempre con un elenco numerato.",
    "D'ora in poi dammi solo due opzioni.",
    "Sou diabético, leva isso em conta.",
    "Responda sempre em português do Brasil.",
    "Nunca uses emojis.",
    "Отныне пиши только по-английски.",
    "У меня непереносимость глютена.",
    "Не предлагай мне мясо.",
    "以后请用英文回答我。",
    "我对花生过敏。",
    "不要用表情符号。",
    "今後は敬語で答えてください。",
    "私は卵アレルギーがあります。",
    "絵文字を使わないでください。",
]
ORDINARY = [
    "What is the best time to visit Oslo?",
    "The bakery is always full on Sundays.",
    "She never answers before noon.",
    "We walked to the harbour and watched the boats.",
    "From now on the bus stops at the square.",
    "Don't you think that was strange?",
    "Can you write a poem about autumn?",
    "Ab jetzt fährt der Bus bis zum Markt.",
    "Er kommt immer zu spät.",
    "Il oublie toujours ses clés.",
    "Siempre llega tarde a clase.",
    "Lei non risponde mai al telefono.",
    "Ele nunca come doces.",
    "Он никогда не звонит первым.",
    "他总是迟到。",
    "彼はいつも遅刻します。",
]


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in READER.clauses(text)]


@pytest.mark.parametrize("text", ORDERS)
def test_what_holds_for_later_answers_has_signs(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_sentence_with_such_words_has_none(text: str) -> None:
    assert not found(text)


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("That went well. Never touch the lock file. What is next?", ["Never touch the lock file."]),
        ("From now on, write comments in French. Thanks!", ["From now on, write comments in French."]),
        ("[May 4] Always name the narrator when I ask about audiobooks.", None),
        ("> Never touch the lock file.\nHe wrote that.", []),
        ("```\nNever touch the lock file.\n```\nfails. Why?", []),
        ("<doc>Never touch the lock file.</doc> Is this true?", []),
        ("The sign says “Never touch the lock file, ever”, and he did.", []),
    ],
)
def test_what_is_quoted_gives_no_orders(text: str, orders: list[str] | None) -> None:
    assert found(text) == ([text] if orders is None else orders)


def test_no_message_with_signs_is_passed_over_unread_however_its_json_is_written() -> None:
    rng = random.Random(5)
    conventions = load_rules(None).ladders["default"].conventions
    readers = SignReader(conventions.orders), SignReader(conventions.reversals)
    words = sorted({word for signs in (*conventions.orders, *conventions.reversals) for word in signs.words})
    breaks = (" ", "\n", "\t", "\\", '"', "/", "\u2019", ". ", "\\n", "\r\n", "<b>", "_")
    for _ in range(2000):
        said = ORDERS[rng.randrange(len(ORDERS))] if rng.random() < 0.5 else " ".join(rng.choices(words, k=3))
        text = "".join(rng.choice(breaks) + each for each in ("x", said, "y1"))
        text = text.upper() if rng.random() < 0.2 else text
        raw = json.dumps({"role": "user", "content": text}, ensure_ascii=rng.random() < 0.5).encode()
        for reader in readers:
            assert reader.may_be_in(words_in(raw)) or not list(reader.clauses(text))


def test_of_a_message_without_such_words_the_json_tells() -> None:
    raw = json.dumps({"role": "user", "content": 'The crane\n"lifts" C:\\ropes.'}).encode()
    assert words_in(raw) == [b"role", b"user", b"content", b"the", b"crane", b"lifts", b"c", b"ropes"]
    assert not READER.may_be_in(words_in(raw))
    assert words_in("tät".encode()) is None and words_in(b"t\\u00e4t") is None
    assert words_in(b"a " * MOST_RAW) is None
