"""The exposition: of one process and of several, and that Prometheus' own tool has no complaint."""

from __future__ import annotations

import shutil
import subprocess
import sys
import timeit
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.observe.metrics import Metrics, model_label
from tests.observe.scraping import UNCOUNTED, Cache, scraped
from tests.observe.test_log import FITTED, PASSED


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


def test_an_outcome_costs_microseconds() -> None:
    """The aim is 15 us; the bound is wide, for machines that do other things too."""
    metrics = Metrics(lambda model: model)
    assert min(timeit.repeat(lambda: metrics.observe(FITTED), number=200, repeat=10)) / 200 < 150e-6


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_own_tool_has_no_complaint(windows: Windows) -> None:
    metrics = Metrics(partial(model_label, windows), Cache())
    traffic = (FITTED, PASSED, UNCOUNTED, replace(FITTED, model_sent="gpt-4o", refusals=("vllm",), healed=True))
    for outcome in traffic:
        metrics.observe(replace(outcome, first_byte_seconds=0.1))
    done = subprocess.run(["promtool", "check", "metrics"], input=metrics.exposition(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


SEVERAL = """
import asyncio, os, sys
from pathlib import Path
from proxy.observe.metrics import Metrics
from tests.observe.test_log import FITTED, PASSED
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
    before = scraped(one)
    assert before["plimsoll_requests_total{endpoint=chat,model=gpt-4,result=fitted,status=200}"] == 1
    assert {name: value for name, value in scraped(other).items() if name in before and value < before[name]} == {}


def test_in_one_process_nothing_is_written_for_others() -> None:
    metrics: Any = Metrics(lambda model: model)
    metrics.observe(FITTED)
    assert metrics._timer is None
