"""Inputs that are too many or too long together, in several requests."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.openai_embeddings.request import parse
from proxy.fit.plan import start
from proxy.fit.split_inputs import pieces
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.tokens.meter import meter_for
from tests.makers import ladder
from tests.tokens.remembering import Remembering


def draft(sizes: list[int], model: str = "text-embedding-3-small", **window: Any) -> Draft:
    prompt = parse(json.dumps({"model": model, "input": [[7] * size for size in sizes]}).encode())
    return start(prompt, ladder(), Facts(Window(8192, **window), meter_for(prompt, model, Remembering())))


def sizes(found: Draft) -> list[list[int]]:
    return [[block.tokens for block in piece] for piece in pieces(found)]


def test_what_one_request_takes_is_not_split() -> None:
    assert sizes(draft([5, 5, 5])) == []
    assert sizes(draft([5, 5, 5], max_inputs=3, max_together=15)) == []


def test_pieces_are_filled_in_order_up_to_either_limit() -> None:
    assert sizes(draft([5, 5, 5], max_inputs=2)) == [[5, 5], [5]]
    assert sizes(draft([5, 5, 5, 1], max_inputs=9, max_together=11)) == [[5, 5], [5, 1]]
    assert sizes(draft([20, 5, 5], max_together=11)) == [[20], [5, 5]]


def test_where_counts_are_estimates_a_margin_is_kept() -> None:
    found = sizes(draft([1000] * 4, model="unheard-of", max_together=4000))
    assert [size for piece in found for size in piece] == [1000] * 4 and len(found) > 1
