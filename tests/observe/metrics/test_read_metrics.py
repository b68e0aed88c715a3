"""What is read from its source at a scrape is shown as it is then."""

from __future__ import annotations

from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.read_metrics import CACHE_METRICS, BuildFacts
from tests.observe.scraping import Cache, scraped


def test_the_caches_figures_are_totals_and_its_breakers_are_as_they_are_now() -> None:
    cache = Cache()
    metrics = Metrics(cache=cache)
    cache.hits, cache.open = 5, 1
    found = scraped(metrics)
    assert found["plimsoll_cache_lookups_total{result=hit,tier=local}"] == 5
    assert found["plimsoll_cache_lookups_total{result=miss,tier=redis}"] == 1
    assert found["plimsoll_cache_troubles_total{kind=late}"] == 2
    assert found["plimsoll_cache_breaker_open{breaker=reading}"] == 1
    cache.hits, cache.open = 7, 0
    found = scraped(metrics)
    assert found["plimsoll_cache_lookups_total{result=hit,tier=local}"] == 7
    assert found["plimsoll_cache_lookups_total{result=miss,tier=local}"] == 3
    assert found["plimsoll_cache_breaker_open{breaker=reading}"] == 0


def test_every_row_of_a_source_is_shown() -> None:
    assert {row.name for row in CACHE_METRICS} <= {name.split("{")[0] for name in scraped(Metrics(cache=Cache()))}


class Reloads:
    """A reloader that failed once."""

    valid, loaded_at = False, 1_700_000_000.5

    def reloads(self) -> dict[tuple[str], int]:
        return {("success",): 3, ("failure",): 1}


def test_reloads_are_shown_with_the_time_of_the_last_good_one() -> None:
    found = scraped(Metrics(reloads=Reloads()))
    assert found["plimsoll_rules_reloads_total{result=success}"] == 3
    assert found["plimsoll_rules_reloads_total{result=failure}"] == 1
    assert found["plimsoll_rules_last_reload_successful"] == 0
    assert found["plimsoll_rules_last_reload_success_timestamp_seconds"] == 1_700_000_000.5


class Recording:
    """A recorder that a full disk failed twice."""

    def results(self) -> dict[tuple[str], int]:
        return {("written",): 5, ("dropped",): 1, ("failed",): 2}


def test_recorded_requests_are_shown_by_what_became_of_them() -> None:
    found = scraped(Metrics(recording=Recording()))
    name = "plimsoll_recorded_requests_total{{result={}}}".format
    assert [found[name(result)] for result in ("written", "dropped", "failed")] == [5, 1, 2]


def test_what_runs_is_shown_with_its_versions_and_the_date_of_its_table() -> None:
    found = scraped(Metrics(build=BuildFacts("0.1.0", "3.11.7", "1.2.3", 1_722_902_400.0)))
    assert found["plimsoll_build_info{litellm=1.2.3,python=3.11.7,version=0.1.0}"] == 1
    assert found["plimsoll_model_table_timestamp_seconds"] == 1_722_902_400
