"""Upstreams that close unannounced, clients of every version, workers that die, doors without file descriptors."""

from __future__ import annotations

import pytest

from tests.bench.closing import ENDS, closing, never, told

REQUESTS = 400


@pytest.mark.parametrize(("end", "workers"), [*((end, 1) for end in ENDS), ("at once", 2)])
def test_F9_no_post_is_lost_to_an_upstream_that_closes_after_every_answer(end: str, workers: int) -> None:
    got = told(closing(ENDS[end]), REQUESTS, workers=workers)
    assert got.failed <= 1  # a direct client with new connections has none
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


@pytest.mark.parametrize(("end", "workers"), [*((end, 1) for end in ENDS), ("at once", 2)])
def test_R1_no_post_is_lost_to_an_upstream_that_closes_after_every_stream(end: str, workers: int) -> None:
    got = told(closing(ENDS[end], streams_only=True), REQUESTS, streams=2, workers=workers)
    assert got.failed <= 1
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


def test_R1_an_upstream_that_keeps_its_connections_is_believed_once_it_has_shown_it() -> None:
    got = told(closing(never), 2 * REQUESTS, clients=4, streams=2)
    assert got.statuses == {200: 2 * REQUESTS}
    assert got.connections < REQUESTS / 2
