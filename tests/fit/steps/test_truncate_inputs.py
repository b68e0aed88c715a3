"""What a rule asks for: an end is cut off."""

from __future__ import annotations

import pytest

from proxy.fit.steps.truncate_inputs import Params, apply
from tests.fit.test_ends import IDS, draft, values
from tests.makers import draft as chat
from tests.makers import facts, user, words

KNOWN = facts(1000)


def test_token_ids_keep_their_end_where_the_model_goes_on_unless_the_parameter_says_otherwise() -> None:
    before = draft(IDS)
    assert values(apply(before, KNOWN, Params())) == [IDS[-before.room :]]
    assert values(apply(before, KNOWN, Params("head"))) == [IDS[: before.room]]


def test_what_fits_and_what_may_be_shortened_otherwise_is_left_alone() -> None:
    for before in (draft(IDS[:100]), draft("word " * 5000), draft("word " * 5000, suffix="x")):
        assert apply(before, KNOWN, Params()) is before
    talk = chat([user(words(5000))], 1000)
    assert apply(talk, KNOWN, Params()) is talk


def test_another_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="keep must be head or tail"):
        Params("middle")
