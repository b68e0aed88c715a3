"""What the board and the alerts show is what happened: a real Prometheus scrapes a real proxy under scripted traffic.

The script is played twice, with a key each. Prometheus starts in between, so that every series has a first value, and
what grows over any range of time is the second playing. Prometheus extrapolates growth to the range that is asked for;
as all series are scraped together, one factor does that for all, and the number of requests has it, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from tests.deploy.board import PANELS, VARIABLES, filled, legend
from tests.deploy.figures import JOB, WAIT, Between, Expected, Grown, Series, by_rules, expected
from tests.deploy.prometheus_rule import ALERTS, rules
from tests.deploy.renders import KUSTOMIZE
from tests.deploy.traffic import (
    CHAT,
    LADDERS,
    SCRIPT,
    SUMMARY,
    SUMMARY_MODEL,
    Done,
    ask,
    play,
    reported,
    say,
)
from tests.e2e.world import eventually, listening
from tests.prometheus_server import PrometheusServer, Vector, prometheus_server
from tests.redis_server import free_port, redis_server

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_"))}
HOUR = {"__rate_interval": "1h", "__range": "1h"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A Prometheus that scraped the second playing, when to ask it, and what was played."""

    prometheus: PrometheusServer
    at: float
    instance: str
    done: list[Done]
    summaries: list[bytes]  # the requests for them

    def values(self, expr: str) -> Vector:
        """What an expression returns; an empty vector is a mistake of it, unless the test expects one."""
        return self.prometheus.query(filled(expr, job=JOB, instance=self.instance, model=".*", **HOUR), self.at)

    def factor(self, function: str, window: str = "1h") -> float:
        """What `rate` or `increase` makes of one."""
        ((_, found),) = self.values(f"sum({function}(plimsoll_requests_total[{window}]))")
        return found / len(self.done)


@contextmanager
def proxy_before(url: str, redis: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A proxy as it is shipped, in a process of its own: its URL and its admin port."""
    (folder / "ladders").mkdir()
    for name, text in LADDERS.items():
        (folder / "ladders" / f"{name}.toml").write_text(text)
    port, admin = free_port(), free_port()
    settings = {
        "PLIMSOLL_UPSTREAM": url,
        "PLIMSOLL_PORT": str(port),
        "PLIMSOLL_ADMIN_PORT": str(admin),
        "PLIMSOLL_RULES": str(folder),
        "PLIMSOLL_REDIS": redis,
        "PLIMSOLL_SECRET": "secret",
        "PLIMSOLL_DRAIN": "1",
    }
    command = [sys.executable, "-m", "proxy.cli", "serve"]
    process = subprocess.Popen(command, env=CLEAN | settings, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: _answers(f"http://127.0.0.1:{admin}"), WAIT)
        yield f"http://127.0.0.1:{port}", admin
    finally:
        process.terminate()
        process.wait(WAIT)


def _answers(url: str) -> bool:
    try:
        return ask(url, "/readyz", None, {})[0] == 200
    except OSError:
        return False


def scraping(port: int) -> dict[str, Any]:
    """The configuration of a Prometheus: with our rules, and with what the operator makes of our PodMonitor."""
    monitor = yaml.safe_load((KUSTOMIZE / "monitoring" / "podmonitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"endpoint": endpoint["port"]}}
    job = {"job_name": JOB, "static_configs": [target], "relabel_configs": endpoint["relabelings"]}
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [job],
    }


def counted(admin: int) -> float:
    """The requests that the proxy counted so far."""
    text = ask(f"http://127.0.0.1:{admin}", "/metrics", None, {})[1].decode()
    found = re.findall(r"^plimsoll_requests_total\{.*\} (.+)$", text, re.MULTILINE)
    return sum(map(float, found))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    app = simulator(SimulatorConfig(count=reported, text=SUMMARY))
    with (
        redis_server() as redis,
        listening(app) as upstream,
        proxy_before(f"http://127.0.0.1:{upstream}/v1", redis.url, tmp_path_factory.mktemp("rules")) as (url, admin),
    ):
        play(url, app, "first")
        eventually(lambda: counted(admin) == len(SCRIPT), WAIT)
        with prometheus_server(scraping(admin)) as prometheus:
            up = "sum(plimsoll_requests_total) and on () job:plimsoll_requests:increase15m"
            eventually(lambda: [n for _, n in prometheus.query(up, time.time())] == [len(SCRIPT)], WAIT)
            before = len(asked_for_summaries(app))
            done = play(url, app, "second")
            threading.Thread(target=_wait, args=(url,), daemon=True).start()
            seen = f"sum(plimsoll_requests_total) == {2 * len(SCRIPT)} and sum(plimsoll_requests_in_flight) == 1"
            at = _time_of(prometheus, f"{seen} and sum(plimsoll_extra_calls_total) == {2 * before}")
            yield Measured(prometheus, at, f"127.0.0.1:{admin}", done, asked_for_summaries(app)[before:])


def asked_for_summaries(app: Simulator) -> list[bytes]:
    """The bodies of requests for summaries that reached the upstream."""
    return [one.body for one in tuple(app.received) if one.method == "POST" and one.json()["model"] == SUMMARY_MODEL]


def _wait(url: str) -> None:
    """A request that is in progress until the end."""
    with suppress(OSError, HTTPException):
        ask(url, CHAT, say("hi"), {"x-sim-delay": "600"})


def _time_of(prometheus: PrometheusServer, true: str) -> float:
    """When the rules were evaluated after something had become so."""
    record = f"timestamp(job:plimsoll_requests:increase15m) and on () ({true})"
    eventually(lambda: prometheus.query(record, time.time()), WAIT)
    since = time.time()
    found: Vector = []

    def later() -> bool:
        found[:] = prometheus.query(record, time.time())
        return bool(found) and found[0][1] > since

    eventually(later, WAIT)
    return found[0][1]


NAMES = [panel["title"] for panel in PANELS]


def test_the_script_says_of_each_panel_what_it_must_show(measured: Measured) -> None:
    assert sorted(expected(measured.done, measured.summaries)) == sorted(NAMES)


@pytest.mark.parametrize("panel", PANELS, ids=NAMES)
def test_a_panel_shows_what_happened(panel: dict[str, Any], measured: Measured) -> None:
    wanted = expected(measured.done, measured.summaries)[panel["title"]]
    found: Series = {}
    for target in panel["targets"]:
        function = "increase" if "increase(" in target["expr"] else "rate"
        per = measured.factor(function) if isinstance(wanted, Grown) else 1
        for labels, value in measured.values(target["expr"]):
            found[legend(target["legendFormat"], labels)] = value / per
    compare(found, wanted, measured.instance)


def compare(found: Series, wanted: Expected, instance: str) -> None:
    """Fails unless the series are those that are wanted."""
    if isinstance(wanted, Between):
        assert sorted(found) == sorted(name.format(instance=instance) for name in wanted.legends)
        assert all(wanted.least <= value <= wanted.most for value in found.values()), found
        return
    series = {name.format(instance=instance): value for name, value in wanted.series.items()}
    if isinstance(wanted, Grown):
        assert found, "known values start at 0"
        found = {name: value for name, value in found.items() if value}
        series = {name: value * wanted.per for name, value in series.items() if value}
    assert found == pytest.approx(series, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["job", "instance", "model"])
def test_a_variable_offers_what_there_is(name: str, measured: Measured) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["query"]["query"])
    assert found is not None and found[2] == name
    offered = {labels.get(name, "") for labels, _ in measured.values(f"group by ({name}) ({found[1]})")}
    models = {one.model for one in measured.done} | {""}
    assert offered == {"job": {JOB}, "instance": {measured.instance}, "model": models}[name]


# What the rules say of the same traffic: the value that each alert compares, before it does.


def compared(expr: str) -> str:
    """The part of an alert's expression that stands before its first comparison; the whole of one without any."""
    depth = 0
    for index, sign in enumerate(expr):
        depth += (sign in "({[") - (sign in ")}]")
        if not depth and re.match(r" (>|<|==) ", expr[index:]):
            return expr[:index]
    return expr


RULES = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


def test_the_script_says_of_each_rule_what_it_must_find(measured: Measured) -> None:
    assert sorted(by_rules(measured.done)) == sorted(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_finds_what_happened(name: str, measured: Measured) -> None:
    template, wanted = by_rules(measured.done)[name]
    expr = name if ":" in name else compared(RULES[name].strip())
    per = measured.factor("increase", "15m" if "15m" in name else "1h") if isinstance(wanted, Grown) else 1
    found = {legend(template, labels): value / per for labels, value in measured.values(expr)}
    compare(found, wanted, measured.instance)


def test_no_alert_fires_after_a_few_requests(measured: Measured) -> None:
    assert measured.values("ALERTS") == []
