"""The exposition: of one process and of several, and that Prometheus' own tool has no complaint."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from proxy.config.rules import load_rules
from proxy.config.upstream_prices import upstream_prices
from proxy.config.windows import Windows, load_windows
from proxy.model.outcome import Outcome, Repeated
from proxy.observe.metrics.exposition import Metrics, model_label, prefers_openmetrics
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.read_metrics import BuildFacts
from proxy.observe.metrics.text_formats import Family, exposition
from tests.counted_work import calls_of
from tests.observe.outcomes import FITTED, PASSED
from tests.observe.scraping import UNCOUNTED, Cache, scraped


@pytest.fixture(scope="module")
def windows() -> Windows:
    return load_windows(load_rules(None).windows)


def test_what_is_under_way_is_shown() -> None:
    metrics = Metrics()
    metrics.in_flight.inc()
    metrics.in_flight.inc()
    assert scraped(metrics)["plimsoll_requests_in_flight"] == 2
    metrics.in_flight.dec()
    assert scraped(metrics)["plimsoll_requests_in_flight"] == 1


def test_the_process_is_shown_beside_the_requests() -> None:
    assert scraped(Metrics())["process_resident_memory_bytes"] > 0


def test_an_outcome_costs_little() -> None:
    """The aim is 15 us."""
    metrics = Metrics(lambda model: model)
    metrics.observe(FITTED)
    assert calls_of(lambda: metrics.observe(FITTED)) < 200


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_own_tool_has_no_complaint(windows: Windows) -> None:
    build = BuildFacts("0.1.0", "3.11.7", "1.2.3", 1_722_902_400.0)
    metrics = Metrics(
        partial(model_label, windows),
        Cache(),
        prices=upstream_prices(windows, "", ()),
        build=build,
        gen_ai=GenAi({}),
        by_caller=True,
    )
    traffic: tuple[Outcome, ...] = (
        FITTED,
        PASSED,
        UNCOUNTED,
        replace(FITTED, model_sent="gpt-4o", refusals=("vllm",), healed=True),
    )
    traffic = (*traffic, replace(FITTED, repeated=Repeated(2_000, 1_500, 5.0, "kept"), phases=(("plan", 0.1),)))
    for outcome in traffic:
        metrics.observe(replace(outcome, first_byte_seconds=0.1))
    done = subprocess.run(["promtool", "check", "metrics"], input=metrics.exposition(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


SEVERAL = """
import asyncio, os, sys
from pathlib import Path
from proxy.observe.metrics.exposition import Metrics
from tests.observe.outcomes import FITTED, PASSED
from tests.observe.scraping import Cache

folder = Path(sys.argv[1])
parent = Metrics(folder=folder)

def work(stays):
    cache = Cache()
    cache.hits, cache.open = 2, stays
    metrics = Metrics(lambda model: model, cache, folder=folder)
    async def serve():
        for _ in range(3):
            metrics.in_flight.inc()
            metrics.observe(FITTED)
        metrics.in_flight.dec()
        await asyncio.sleep(1.2)  # other workers read what this one counted after a second at most
    asyncio.run(serve())

for stays in (0, 1):
    pid = os.fork()
    if not pid:
        work(stays)
        os._exit(0)
    os.waitpid(pid, 0)
    if not stays:
        parent.end(pid)
metrics = Metrics(lambda model: model, Cache(), folder=folder)
metrics.observe(PASSED)
sys.stdout.buffer.write(metrics.exposition())
"""


def several(folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Two workers that counted and are gone, of which one is known to be; a third one is asked."""
    return subprocess.run([sys.executable, "-c", SEVERAL, str(folder)], capture_output=True)


def test_any_worker_tells_what_all_have_counted(tmp_path: Path) -> None:
    done = several(tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    for line in (
        'plimsoll_requests_total{endpoint="chat",model="gpt-4",result="fitted",status="200"} 6.0',
        'plimsoll_requests_total{endpoint="passthrough",model="",result="passed",status="200"} 1.0',
        'plimsoll_prompt_tokens_total{endpoint="chat",model="gpt-4"} 46758.0',
        'plimsoll_own_seconds_count{endpoint="chat"} 6.0',
        'plimsoll_own_seconds_bucket{endpoint="chat",le="0.0025"} 6.0',
        'plimsoll_cache_lookups_total{result="hit",tier="local"} 4.0',
        'plimsoll_cache_breaker_open{breaker="reading"} 1.0',
        "plimsoll_requests_in_flight 2.0",
    ):
        assert line in text.splitlines(), f"{line} is not in\n{text}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_own_tool_has_no_complaint_of_several_workers(tmp_path: Path) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=several(tmp_path).stdout, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_folder_that_cannot_be_written_to_costs_no_figure_of_this_worker(tmp_path: Path) -> None:
    metrics = Metrics(lambda model: model, folder=tmp_path / "nowhere")
    metrics.observe(FITTED)
    metrics.publish()
    metrics.end(1)
    assert "plimsoll_requests_total{endpoint=chat,model=gpt-4,result=fitted,status=200}" in scraped(metrics)


def test_a_scrape_of_another_worker_finds_no_less_than_the_one_before(tmp_path: Path) -> None:
    one, other = (Metrics(lambda model: model, folder=tmp_path) for _ in range(2))
    one.observe(FITTED)
    before = {name: value for name, value in scraped(one).items() if name.startswith("plimsoll_")}
    assert before["plimsoll_requests_total{endpoint=chat,model=gpt-4,result=fitted,status=200}"] == 1
    assert {name: value for name, value in scraped(other).items() if name in before and value < before[name]} == {}


def test_in_one_process_nothing_is_written_for_others() -> None:
    metrics: Any = Metrics(lambda model: model)
    metrics.observe(FITTED)
    assert metrics._timer is None


OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "preferred"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (OPENMETRICS, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0, text/plain", True),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.4", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        (";;,=,", False),
    ],
)
def test_who_prefers_openmetrics_gets_it(accept: str, preferred: bool) -> None:
    assert prefers_openmetrics(accept) == preferred
    kind, body = asyncio.run(Metrics().scrape(accept))
    assert kind.startswith(b"application/openmetrics-text" if preferred else b"text/plain")
    assert body.endswith(b"# EOF\n") == preferred


def scrape(metrics: Metrics, accept: str = OPENMETRICS) -> tuple[bytes, bytes]:
    """What a scrape is answered."""
    return asyncio.run(metrics.scrape(accept))


SIGNED = re.compile(rb"_error_ratio|_difference_tokens")  # names of histograms of values that may be negative


def strict(body: bytes) -> list[Metric]:
    """The families as the reference parser reads them. It rejects a histogram with a count and without a sum, as those
    of values that may be negative are; Prometheus reads them."""
    lines = [line for line in body.splitlines(keepends=True) if not SIGNED.search(line)]
    return list(text_string_to_metric_families(b"".join(lines).decode()))  # type: ignore[no-untyped-call]


def exemplars(body: bytes) -> dict[tuple[str, str], tuple[str, float]]:
    """Of each bucket that has one: the trace id and the value, by the metric and the bucket."""
    samples = [s for family in strict(body) for s in family.samples]
    return {
        (s.name, s.labels["le"]): (s.exemplar.labels["trace_id"], s.exemplar.value)
        for s in samples
        if s.exemplar is not None
    }


def test_buckets_show_the_trace_of_a_request_once_somebody_reads_them() -> None:
    metrics = Metrics(lambda model: model)
    metrics.observe(replace(FITTED, trace_id="a" * 32))
    scrape(metrics, "")
    assert not metrics.reads_headers
    assert exemplars(scrape(metrics)[1]) == {} and metrics.reads_headers and metrics.shows_traces
    metrics.observe(replace(FITTED, trace_id="a" * 32))
    metrics.observe(replace(FITTED, trace_id="b" * 32, own_seconds=0.0021))
    metrics.observe(replace(FITTED, own_seconds=0.0022))
    found = exemplars(scrape(metrics)[1])
    assert found["plimsoll_own_seconds_bucket", "0.0025"] == ("b" * 32, 0.0021)
    assert found["plimsoll_upstream_seconds_bucket", "0.25"] == ("b" * 32, 0.25)
    assert b"aaaa" not in scrape(metrics, "")[1] and b"bbbb" not in scrape(metrics, "")[1], "the text format has none"


def test_exemplars_of_other_workers_are_shown(tmp_path: Path) -> None:
    one, other = (Metrics(lambda model: model, folder=tmp_path) for _ in range(2))
    scrape(one)
    one.observe(replace(FITTED, trace_id="c" * 32))
    one.publish()
    assert exemplars(scrape(other)[1])["plimsoll_own_seconds_bucket", "0.0025"][0] == "c" * 32


def test_all_of_it_is_openmetrics() -> None:
    metrics = Metrics(
        lambda model: model, Cache(), gen_ai=GenAi({}), by_caller=True, build=BuildFacts("1", "2", "3", 4.0)
    )
    metrics.observe(replace(FITTED, trace_id="d" * 32, refusals=("vllm",), phases=(("plan", 0.1),)))
    names = [family.name for family in strict(scrape(metrics)[1])]
    assert len(names) == len(set(names)) > 30


def test_M1_a_scrape_is_written_beside_the_event_loop_and_scrapes_at_the_same_time_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def written(families: Iterable[Family], openmetrics: bool) -> bytes:
        threads.append(threading.get_ident())
        return exposition(families, openmetrics)

    async def three() -> list[tuple[bytes, bytes]]:
        return await asyncio.gather(*[metrics.scrape(accept) for accept in ("", "", OPENMETRICS)])

    monkeypatch.setattr("proxy.observe.metrics.exposition.exposition", written)
    metrics = Metrics(lambda model: model)
    metrics.observe(FITTED)
    (_, text), (_, same), (_, openmetrics) = asyncio.run(three())
    assert text is same and text != openmetrics
    assert len(threads) == 2 and threading.get_ident() not in threads


def test_a_client_that_leaves_takes_no_body_from_another() -> None:
    async def scrapes() -> bytes:
        leaving, staying = (asyncio.create_task(metrics.scrape()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        return (await staying)[1]

    metrics = Metrics(lambda model: model)
    metrics.observe(FITTED)
    assert b"plimsoll_requests_total" in asyncio.run(scrapes())
    assert scraped(metrics), "and a later one is another"


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("text-embedding-3-small", "text-embedding-3-small"),
        ("openai/text-embedding-3-large", "text-embedding-3-large"),
        ("Gpt-4o", "gpt-4o"),
        ("nobody-knows-it", "other"),
    ],
)
def test_M3_models_of_embeddings_have_a_name_too(windows: Windows, model: str, label: str) -> None:
    assert model_label(windows, model) == label
