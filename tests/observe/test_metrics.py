"""What is counted of outcomes, under which names, at which price; and that Prometheus' own tool has no complaint."""

from __future__ import annotations

import random
import shutil
import string
import subprocess
import sys
import timeit
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import parser

from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.metrics import BATCH_SIZE, CACHE_METRICS, MAX_MODEL_LABELS, METRICS, OTHER, Metrics, model_label
from tests.observe.test_log import FITTED, PASSED

CLAMPED = Note("clamp_output", 100, 100, 4096, 1200, "gpt-4", "gpt-4")
SWITCHED = Note("switch_model", 9000, 9100, 3000, 3000, "gpt-4", "gpt-4o")
UNCOUNTED = Outcome("chat", "passed", 200, model="gpt-4o", usage=Usage(10, 2, 4), upstream_seconds=0.5)


class Cache:
    """A cache that says what a test makes it say."""

    def __init__(self) -> None:
        self.hits = 0
        self.open = 0

    def lookups(self) -> dict[tuple[str, str], int]:
        return {("local", "hit"): self.hits, ("local", "miss"): 3, ("redis", "hit"): 0, ("redis", "miss"): 1}

    def failures(self) -> dict[tuple[str], int]:
        return {("late",): 2, ("errors",): 0}

    def open_breakers(self) -> dict[tuple[str], int]:
        return {("reading",): self.open, ("writing",): 0}


@pytest.fixture(scope="module")
def windows() -> Windows:
    return load_windows(load_rules(None).windows)


def scraped(metrics: Metrics) -> dict[str, float]:
    """Each sample by its name and labels, as Prometheus would read them."""
    families = parser.text_string_to_metric_families(metrics.exposition().decode())
    return {
        name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(labels.items())) + "}" if labels else ""): value
        for family in families
        for name, labels, value, *_ in family.samples
    }


def counted(*outcomes: Outcome) -> dict[str, float]:
    metrics = Metrics(lambda model: model)
    for outcome in outcomes:
        metrics.observe(outcome)
    return scraped(metrics)


def test_requests_are_counted_by_what_became_of_them() -> None:
    found = counted(FITTED, FITTED, PASSED, replace(FITTED, result="unfit", status=400))
    assert found["plimsoll_requests_total{endpoint=chat,result=fitted,status=200}"] == 2
    assert found["plimsoll_requests_total{endpoint=chat,result=unfit,status=400}"] == 1
    assert found["plimsoll_requests_total{endpoint=passthrough,result=passed,status=200}"] == 1


def test_the_window_is_seen_before_and_after() -> None:
    found = counted(FITTED, replace(FITTED, load_before=0.05, load_after=0.05))
    assert found["plimsoll_window_load_before_ratio_bucket{le=1.25}"] == 1
    assert found["plimsoll_window_load_before_ratio_bucket{le=1.5}"] == 2
    assert found["plimsoll_window_load_before_ratio_sum"] == pytest.approx(1.37)
    assert found["plimsoll_window_load_after_ratio_bucket{le=0.85}"] == 2
    assert found["plimsoll_window_load_after_ratio_count"] == 2


def test_tokens_are_counted_in_sent_and_cut_by_step() -> None:
    found = counted(FITTED, replace(FITTED, model_sent="gpt-4o", notes=(CLAMPED, SWITCHED)))
    assert found["plimsoll_prompt_tokens_total{model=gpt-4}"] == 2 * 7793
    assert found["plimsoll_prompt_sent_tokens_total{model=gpt-4}"] == 3691
    assert found["plimsoll_prompt_sent_tokens_total{model=gpt-4o}"] == 3691
    assert found["plimsoll_cut_tokens_total{step=prune_history}"] == 4102
    assert "plimsoll_cut_tokens_total{step=clamp_output}" not in found
    assert "plimsoll_cut_tokens_total{step=switch_model}" not in found, "another tokenizer's count is no cut"
    assert found["plimsoll_steps_total{step=clamp_output}"] == 1
    assert found["plimsoll_switches_total{from=gpt-4,to=gpt-4o}"] == 1


def test_replies_are_counted_as_asked_as_granted_and_as_they_came() -> None:
    found = counted(replace(FITTED, reply_asked=4096, reply_sent=1200), UNCOUNTED)
    assert found["plimsoll_reply_asked_tokens_total"] == 4096
    assert found["plimsoll_reply_granted_tokens_total"] == 1200
    assert found["plimsoll_completion_tokens_total"] == 9
    assert found["plimsoll_cached_prompt_tokens_total"] == 4


def test_refusals_are_counted_met_and_healed() -> None:
    healed = replace(FITTED, refusals=("vllm", "vllm"), healed=True)
    found = counted(healed, replace(UNCOUNTED, refusals=("tgi",)))
    assert found["plimsoll_refusals_total{healed=true,rule=vllm}"] == 2
    assert found["plimsoll_refusals_total{healed=false,rule=tgi}"] == 1


def test_counts_are_held_against_what_the_upstream_counted() -> None:
    off = replace(FITTED, quality="estimated", prompt_sent=106, usage=Usage(100))
    found = counted(FITTED, off, replace(FITTED, usage=None), replace(FITTED, usage=Usage(0)))
    assert found["plimsoll_counts_total{quality=exact}"] == 3
    assert found["plimsoll_count_error_ratio_bucket{le=0.001,quality=exact}"] == 1
    assert found["plimsoll_count_error_ratio_bucket{le=-0.001,quality=exact}"] == 0
    assert found["plimsoll_count_error_ratio_bucket{le=0.05,quality=estimated}"] == 0
    assert found["plimsoll_count_error_ratio_bucket{le=0.1,quality=estimated}"] == 1
    failed = counted(replace(FITTED, status=500))
    assert not any(name.startswith("plimsoll_count_error") for name in failed), "a failure's usage says nothing"


def test_our_own_time_is_kept_apart_from_the_upstreams() -> None:
    found = counted(FITTED, replace(PASSED, first_byte_seconds=0.3))
    assert found["plimsoll_own_seconds_bucket{endpoint=chat,le=0.0025}"] == 1
    assert found["plimsoll_own_seconds_bucket{endpoint=chat,le=0.001}"] == 0
    assert found["plimsoll_upstream_seconds_sum{endpoint=chat}"] == 0.25
    assert found["plimsoll_first_byte_seconds_bucket{endpoint=passthrough,le=0.5}"] == 1
    assert "plimsoll_upstream_seconds_count{endpoint=chat}" not in counted(replace(FITTED, upstream_seconds=0.0))


def test_what_is_under_way_is_shown() -> None:
    metrics = Metrics()
    metrics.in_flight.inc()
    metrics.in_flight.inc()
    assert scraped(metrics)["plimsoll_requests_in_flight"] == 2
    metrics.in_flight.dec()
    assert scraped(metrics)["plimsoll_requests_in_flight"] == 1


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


def test_other_rules_label_the_outcomes_that_come_after_them() -> None:
    metrics = Metrics(lambda model: OTHER)
    metrics.observe(FITTED)
    metrics.use_label(lambda model: "named")
    metrics.observe(FITTED)
    found = scraped(metrics)
    assert [found[f"plimsoll_model_requests_total{{model={label}}}"] for label in (OTHER, "named")] == [1, 1]


def test_every_row_is_shown_once_it_has_something_to_show() -> None:
    metrics = Metrics(lambda model: model, Cache())
    everything = replace(
        FITTED, model_sent="gpt-4o", refusals=("vllm",), first_byte_seconds=0.1, truncated=True, uncounted=True
    )
    metrics.observe(everything)
    metrics.observe(replace(FITTED, notes=(), planned=FITTED.notes))
    metrics.observe(replace(PASSED, bytes_in=1))
    shown = {name.split("{")[0] for name in scraped(metrics)}
    for row in METRICS:
        assert (f"{row.name}_bucket" if row.buckets else row.name) in shown
    assert {figure.name for figure in CACHE_METRICS} <= shown
    assert "process_resident_memory_bytes" in shown
    assert not any(name.endswith("_created") for name in shown)


def test_outcomes_of_all_kinds_are_told_apart_however_many_are_added_up_at_once() -> None:
    for often in (1, BATCH_SIZE - 1, BATCH_SIZE, 3 * BATCH_SIZE + 1):
        found = counted(*[o for _ in range(often) for o in (FITTED, PASSED)])
        assert sum(v for name, v in found.items() if name.startswith("plimsoll_requests_total")) == 2 * often
        assert sum(v for name, v in found.items() if name.startswith("plimsoll_prompt_tokens_total")) == (
            often * (FITTED.prompt or 0)
        )


def test_a_passed_request_tells_nothing_of_tokens() -> None:
    found = counted(PASSED)
    assert not [name for name, value in found.items() if value and ("token" in name or "load" in name)]
    assert not [name for name in found if name.startswith("plimsoll_model_requests_total")]


def test_ten_thousand_invented_names_make_one_series(windows: Windows) -> None:
    dice = random.Random(1)
    metrics = Metrics(partial(model_label, windows))
    for _ in range(10_000):
        name = "".join(dice.choices(string.ascii_lowercase + string.digits + "-/", k=20))
        metrics.observe(replace(FITTED, model=name, model_sent=name))
    models = [name for name in scraped(metrics) if "model=" in name]
    assert len(models) < 50
    assert "plimsoll_model_requests_total{model=other}" in models


@pytest.mark.parametrize("spelling", ["gpt-4o-{}", "{}/gpt-4o", "gpt-4o:{}", "ft:gpt-4o-2024-08-06:{}::x", "gpt-4o@{}"])
def test_a_thousand_spellings_of_one_model_make_one_series(windows: Windows, spelling: str) -> None:
    metrics = Metrics(partial(model_label, windows))
    for i in range(1_000):
        metrics.observe(replace(FITTED, model=spelling.format(f"{i:06}x"), model_sent=""))
    assert len([name for name in scraped(metrics) if "model=" in name]) <= 6


def test_models_that_are_known_are_called_by_their_names(windows: Windows) -> None:
    label_of = Metrics(partial(model_label, windows)).label_of
    assert [label_of(m) for m in ("gpt-4o", "gpt-4", "azure/eu/gpt-4o-2024-08-06")] == [
        "gpt-4o",
        "gpt-4",
        "gpt-4o-2024-08-06",
    ]
    assert [label_of(m) for m in ("nobody-knows-it", "", "x" * 5_000)] == [OTHER] * 3


def test_a_users_own_row_gives_the_name(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour-*"\ntokens = 9000\n')
    windows = load_windows(load_rules(tmp_path).windows)
    assert {model_label(windows, f"harbour-{i}") for i in range(20)} == {"harbour-*"}


def test_there_is_an_end_to_the_models_that_are_told_apart() -> None:
    metrics = Metrics(lambda model: model)
    labels = {metrics.label_of(f"model-{i}") for i in range(5_000)}
    assert len(labels) == MAX_MODEL_LABELS + 1 and OTHER in labels
    assert metrics.label_of("model-0") == "model-0"


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
from tests.observe.test_metrics import Cache

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
        'plimsoll_requests_total{endpoint="chat",result="fitted",status="200"} 6.0',
        'plimsoll_requests_total{endpoint="passthrough",result="passed",status="200"} 1.0',
        'plimsoll_prompt_tokens_total{model="gpt-4"} 46758.0',
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
    assert "plimsoll_requests_total{endpoint=chat,result=fitted,status=200}" in scraped(metrics)


def test_a_scrape_of_another_worker_finds_no_less_than_the_one_before(tmp_path: Path) -> None:
    one, other = (Metrics(lambda model: model, folder=tmp_path) for _ in range(2))
    one.observe(FITTED)
    before = scraped(one)
    assert before["plimsoll_requests_total{endpoint=chat,result=fitted,status=200}"] == 1
    assert {name: value for name, value in scraped(other).items() if name in before and value < before[name]} == {}


def test_in_one_process_nothing_is_written_for_others() -> None:
    metrics: Any = Metrics(lambda model: model)
    metrics.observe(FITTED)
    assert metrics._timer is None
