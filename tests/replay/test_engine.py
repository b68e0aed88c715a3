"""Results come in order, from this process and from others, and no request ends the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from proxy.replay import engine
from proxy.replay.engine import DIED, Options, Result, Workers, is_among, results
from proxy.replay.order import Placed
from proxy.replay.plan_worker import Column, Planned
from proxy.replay.recorded import Figures, Recorded
from tests.replay.recordings import chat, placed, run, settings

LETHAL = b"lethal"


def start(options: Options) -> None:
    """A worker that needs nothing."""


def work(chunk: Sequence[Placed]) -> list[Result]:
    """Plans nothing; dies of one body."""
    if any(one.recorded.body == LETHAL for one in chunk):
        os._exit(9)
    return [Result(one, (Planned(prompt=one.place),)) for one in chunk]


def test_results_come_in_order_without_bodies() -> None:
    found = run(chat(1), b"{", chat(200), columns=(Column(), Column(window=4_000)))
    assert [one.placed.place for one in found] == [0, 1, 2]
    assert [bool(one.planned[0].unplanned) for one in found] == [False, True, False]
    assert all(len(one.planned) == 2 and one.placed.recorded.body == b"" for one in found)


def test_only_cuts_that_may_be_among_the_worst_have_rows() -> None:
    found = run(*(chat(turns, stem=f"s{turns}") for turns in (300, 250, 220, 200, 100, 3)))
    assert [one.cuts[0] is not None for one in found] == [True, True, True, False, False, False]


def test_a_conversation_has_one_of_the_worst_cuts() -> None:
    worst: dict[int, float] = {}
    shares = ((1, 0.5), (1, 0.4), (1, 0.6), (2, 0.1), (3, 0.2), (4, 0.05), (5, 0.3))
    assert [is_among(worst, talk, share) for talk, share in shares] == [True, False, True, True, True, False, True]
    assert worst == {1: 0.6, 3: 0.2, 5: 0.3}


def test_figures_alone_are_not_planned() -> None:
    (found,) = run(Recorded(figures=Figures(5)))
    assert found.planned == () and found.placed.recorded.figures == Figures(5)


def test_other_processes_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK_REQUESTS", 2)
    bodies = [chat(turns) for turns in (1, 100, 2, 3)]
    theirs = list(results(placed(*bodies), Options(settings(), (Column(),), 1)))
    assert [one.planned for one in theirs] == [one.planned for one in run(*bodies)]


def test_a_worker_that_dies_takes_one_request_with_it() -> None:
    bodies = [b"a", b"b", LETHAL, b"c", b"d", LETHAL, b"e"]
    requests = placed(*bodies)
    workers = Workers(Options(settings(), (Column(),), 1), start, work)
    try:
        found = list(workers.results([requests[:2], requests[2:4], requests[4:]]))
    finally:
        workers.close()
    assert [one.placed.place for one in found] == list(range(7))
    assert [one.planned[0].unplanned for one in found] == ["", "", DIED, "", "", DIED, ""]


def test_chunks_are_bounded_by_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK_BYTES", 10)
    monkeypatch.setattr(engine, "CHUNK_REQUESTS", 3)
    requests = placed(b"x" * 20, b"", b"", b"", b"x")
    chunks = engine._chunks(requests)
    assert [len(chunk) for chunk in chunks] == [1, 3, 1]


def test_no_more_is_read_ahead_than_workers_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def endless() -> Iterator[list[Placed]]:
        nonlocal read
        for one in placed(*[b"x"] * 100):
            read += 1
            yield [one]

    workers = Workers(Options(settings(), (Column(),), 1), start, work)
    try:
        assert next(workers.results(endless())).placed.place == 0
    finally:
        workers.close()
    assert read == engine.AHEAD + 1
