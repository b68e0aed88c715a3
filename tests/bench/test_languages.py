"""The conversations that the bench of languages makes."""

from __future__ import annotations

import pytest

from tests.bench.languages import EVERY, LANGUAGES, TURNS, conversation


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_has_the_same_facts_and_asks_for_each(name: str) -> None:
    language, english = LANGUAGES[name], LANGUAGES["en"]
    assert list(map(len, (language.things, language.places, language.facts, language.chatter))) == list(
        map(len, (english.things, english.places, english.facts, english.chatter))
    )
    turns, asked = conversation(language, 1)
    assert (turns, asked) == conversation(language, 1) and len(turns) == TURNS
    assert len(asked) == len(language.things) * len(language.facts)
    assert all(turn % EVERY == 3 for turn, _ in asked) and "{" not in "".join(turns)
