"""The scripted day of budgets, small; and that its oracle counts, and its judge notices, what they are there for."""

from __future__ import annotations

import json

import pytest

from proxy.simulator.openai_chat.counting import count_prompt
from tests.bench.budget_callers import DAY_S, REPLY, Allowance, body_of
from tests.bench.budget_day import FIT, Sizes, listens, lived, overshoot, upstream
from tests.bench.budget_upstream import Book, Row
from tests.bench.budget_work import looping, reading, task

SMALL = Sizes(tasks=1, loops=4, replicas=2, workers=1, files=(1, 2), tokens=300)


def test_a_small_day_overruns_no_limit_and_all_replicas_cut_alike() -> None:
    with upstream() as port:
        assert listens(port)
        day = lived(FIT, 1, 2_500, port, SMALL)
    assert day.problems == []
    assert sum(seen.tasks for seen in day.seen.values()) == 19
    assert {stage: cut[1] for stage, cut in day.cuts.items()} == dict.fromkeys(range(4), 0)
    assert sum(seen.refused for seen in day.seen.values()) > 0


def test_the_upstream_counts_as_the_simulator_and_caches_prefixes() -> None:
    made, book = task("x"), Book()
    messages = [*made.opening, *(one for place, file in enumerate(made.files) for one in reading(file, place))]
    first = book.enter("key", body_of(messages))
    assert first.prompt == count_prompt(body_of(messages))
    assert first.cached == 0
    again = book.enter("key", body_of([*messages, {"role": "user", "content": made.questions[0].text}]))
    assert first.prompt - 131 <= again.cached <= first.prompt
    assert book.enter("other", body_of(messages)).cached == 0


def test_the_same_seed_makes_the_same_work() -> None:
    assert task("1 team-00 0") == task("1 team-00 0") != task("2 team-00 0")
    assert json.dumps(looping("1", 3)) == json.dumps(looping("1", 3))


@pytest.mark.parametrize(("cached", "found"), [(1_024, (0, 0)), (0, (24, 1_024 + 24 - REPLY))])
def test_an_overshoot_is_explained_by_what_the_cache_forgot(cached: int, found: tuple[int, int]) -> None:
    row = Row(0, "key", 0.0, 1.0, prompt=2_000, could=1_024, cached=cached, completion=24, digest="")
    assert overshoot([row], 2_000, "uncached") == found


def test_an_allowance_lets_nobody_use_more_than_the_day_has() -> None:
    allowance, used = Allowance(1_000 / DAY_S), 0
    while allowance.wait():
        allowance.use(90)
        used += 90
    assert 900 < used <= 1_090
