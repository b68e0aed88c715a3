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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from tests.deploy.board import PANELS, VARIABLES, filled, legend
from tests.deploy.figures import JOB, WAIT, Between, Grown, Plain, Played, Series, Table, by_rules, expected
from tests.deploy.prometheus_rule import ALERTS, rules
from tests.deploy.renders import KUSTOMIZE
from tests.deploy.traffic import (
    CHAT,
    RULES,
    SCRIPT,
    SUMMARY,
    SUMMARY_MODEL,
    ask,
    play,
    reported,
    say,
)
from tests.e2e.world import eventually, listening
from tests.ports import reserved_port
from tests.prometheus_server import PrometheusServer, Vector, prometheus_server
from tests.redis_server import redis_server

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_"))}
ANY = {"namespace": ".*", "pod": ".*", "model": ".*"}  # this job has no such labels
HOUR = {"__rate_interval": "1h", "__range": "1h"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A Prometheus that scraped the second playing, when to ask it, and what was played."""

    prometheus: PrometheusServer
    at: float
    instance: str
    played: Played

    def values(self, expr: str) -> Vector:
        """What an expression returns; an empty vector is a mistake of it, unless the test expects one."""
        return self.prometheus.query(filled(expr, job=JOB, **ANY, instance=self.instance, **HOUR), self.at)

    def factor(self, function: str, window: str = "1h") -> float:
        """What `rate` or `increase` makes of one."""
        ((_, found),) = self.values(f"sum({function}(plimsoll_requests_total[{window}]))")
        return found / len(self.played.done)


@contextmanager
def proxy_before(upstream: str, redis: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A proxy as it is shipped, in a process of its own: its URL and its admin port. The upstream takes no traces."""
    (folder / "ladders").mkdir()
    for name, text in RULES.items():
        (folder / name).write_text(text.replace("UPSTREAM", upstream))
    port, admin = reserved_port(), reserved_port()
    settings = {
        "PLIMSOLL_UPSTREAM": f"{upstream}/v1",
        "PLIMSOLL_PORT": str(port),
        "PLIMSOLL_ADMIN_PORT": str(admin),
        "PLIMSOLL_RULES": str(folder),
        "PLIMSOLL_REDIS": redis,
        "PLIMSOLL_SECRET": "secret",
        "PLIMSOLL_DRAIN": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": upstream,
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


def totals(admin: int) -> dict[str, float]:
    """The sums of all metrics that the proxy has, over their labels."""
    text = ask(f"http://127.0.0.1:{admin}", "/metrics", None, {})[1].decode()
    sums: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)", text, re.MULTILINE):
        sums[name] = sums.get(name, 0) + float(value)
    return sums


def ends(played: int, app: Simulator) -> Mapping[str, float]:
    """What must be counted when the script was played so many times, and all that follows later has come."""
    requests = {name: played * len(SCRIPT) for name in ("plimsoll_requests_total", "plimsoll_traced_requests_total")}
    return requests | {"plimsoll_extra_calls_total": len(asked_for_summaries(app))}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    app = simulator(SimulatorConfig(count=reported, text=SUMMARY))
    with (
        redis_server() as redis,
        listening(app) as upstream,
        proxy_before(f"http://127.0.0.1:{upstream}", redis.url, tmp_path_factory.mktemp("rules")) as (url, admin),
    ):
        play(url, app, "first")
        eventually(lambda: ends(1, app).items() <= totals(admin).items(), WAIT)
        before = len(asked_for_summaries(app))
        with prometheus_server(scraping(admin)) as prometheus:
            eventually(lambda: prometheus.query("job:plimsoll_requests:increase15m", time.time()), WAIT)
            done = play(url, app, "second")
            threading.Thread(target=_wait, args=(url,), daemon=True).start()
            eventually(lambda: ends(2, app).items() <= totals(admin).items(), WAIT)
            at = _scraped(prometheus, {**ends(2, app), "plimsoll_requests_in_flight": 1})
            yield Measured(prometheus, at, f"127.0.0.1:{admin}", Played(done, asked_for_summaries(app)[before:]))


def _scraped(prometheus: PrometheusServer, sums: Mapping[str, float]) -> float:
    """A time at which the rules were evaluated after Prometheus had scraped these sums.

    A sample has the time at which its scrape began, and is there some time later. Therefore this is a time whose
    samples are all there now, and were there when the rules were evaluated.
    """
    true = " and ".join(f"sum({name}) == {number}" for name, number in sums.items())
    eventually(lambda: prometheus.query(true, time.time()), WAIT)
    stale = " or ".join(f"({rule['record']} != {rule['expr']})" for rule in rules() if "record" in rule)
    since, found = time.time(), list[float]()

    def settled() -> bool:
        ((_, when),) = prometheus.query("timestamp(job:plimsoll_requests:increase15m)", time.time())
        found[:] = [when]
        if when <= since or not prometheus.query(f"timestamp(up) > {when}", time.time()):
            return False
        return bool(prometheus.query(true, when)) and not prometheus.query(stale, when)

    eventually(settled, WAIT)
    return found[0]


def asked_for_summaries(app: Simulator) -> list[bytes]:
    """The bodies of requests for summaries that reached the upstream."""
    return [one.body for one in tuple(app.received) if one.path == CHAT and one.json()["model"] == SUMMARY_MODEL]


def _wait(url: str) -> None:
    """A request that is in progress until the end."""
    with suppress(OSError, HTTPException):
        ask(url, CHAT, say("hi"), {"x-sim-delay": "600"})


NAMES = [panel["title"] for panel in PANELS]


def test_the_script_says_of_each_panel_what_it_must_show(measured: Measured) -> None:
    assert sorted(expected(measured.played)) == sorted(NAMES)


@pytest.mark.parametrize("panel", PANELS, ids=NAMES)
def test_a_panel_shows_what_happened(panel: dict[str, Any], measured: Measured) -> None:
    wanted = expected(measured.played)[panel["title"]]
    if isinstance(wanted, Table):
        fill(panel, wanted, measured)
        return
    found: Series = {}
    for target in panel["targets"]:
        function = "increase" if "increase(" in target["expr"] else "rate"
        per = measured.factor(function) if isinstance(wanted, Grown) else 1
        for labels, value in measured.values(target["expr"]):
            found[legend(target["legendFormat"], labels)] = value / per
    compare(found, wanted, measured.instance)


def fill(panel: dict[str, Any], wanted: Table, measured: Measured) -> None:
    """Fails unless the table's cells are those that are wanted; each column has an expression of its own."""
    found: Series = {}
    factor = measured.factor("increase")
    for target in panel["targets"]:
        assert target["format"] == "table" and target["instant"]
        for labels, value in measured.values(target["expr"]):
            name = legend(target["legendFormat"], labels)
            found[name] = value if name in wanted.equal else value / factor
    cells = {name: value for name, value in (wanted.grown | wanted.equal).items() if value}
    assert {name: value for name, value in found.items() if value} == pytest.approx(cells, rel=1e-6, abs=1e-9)


def compare(found: Series, wanted: Plain, instance: str) -> None:
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


BY_HAND = {
    "gpt-4": 0.340_450,  # observed: (7,793 + 26,224) x $10 + 14 x $20, per million
    "gpt-4o": 0.000_400,  # 5 x (8 x $2 + 7 x $8), and 8 x $2 + 3 x $8 for what breaks off after three events
    "gpt-4.1": 0.004_552,  # (753 + 329) x $4 + 14 x $16
    "gpt-4-0613": 0.059_956,  # 5,381 x $10; of 5,425 the cache holds 1,024 + 34 x 128 at $1; 14 x $20
}


def test_what_accepted_requests_would_have_cost_is_what_is_computed_by_hand(measured: Measured) -> None:
    found = measured.values("sum by (model) (increase(plimsoll_cost_asked_net_usd_total[1h])) > 0")
    costs = {labels["model"]: value / measured.factor("increase") for labels, value in found}
    assert costs == pytest.approx(BY_HAND, rel=1e-6)


@pytest.mark.parametrize("name", ["job", "namespace", "pod", "instance", "model"])
def test_a_variable_offers_what_there_is(name: str, measured: Measured) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["query"]["query"])
    assert found is not None and found[2] == name
    offered = {labels.get(name, "") for labels, _ in measured.values(f"group by ({name}) ({found[1]})")}
    models = {one.model for one in measured.played.done} | {""}
    none = {""}
    assert offered == {"job": {JOB}, "instance": {measured.instance}, "model": models}.get(name, none)


# What the rules say of the same traffic: the value that each alert compares, before it does.


def compared(expr: str) -> str:
    """The part of an alert's expression that stands before its first comparison; the whole of one without any."""
    depth = 0
    for index, sign in enumerate(expr):
        depth += (sign in "({[") - (sign in ")}]")
        if not depth and re.match(r" (>|<|==) ", expr[index:]):
            return expr[:index]
    return expr


EXPRESSIONS = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


def test_the_script_says_of_each_rule_what_it_must_find(measured: Measured) -> None:
    assert sorted(by_rules(measured.played)) == sorted(EXPRESSIONS)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_rule_finds_what_happened(name: str, measured: Measured) -> None:
    template, wanted = by_rules(measured.played)[name]
    expr = name if ":" in name else compared(EXPRESSIONS[name].strip())
    per = measured.factor("increase", "15m" if "15m" in name else "1h") if isinstance(wanted, Grown) else 1
    found = {legend(template, labels): value / per for labels, value in measured.values(expr)}
    compare(found, wanted, measured.instance)


def test_after_a_few_requests_only_what_must_never_be_is_an_alert(measured: Measured) -> None:
    """Each group of rules is evaluated at times of its own: what the alerts' group says comes after `measured.at`."""

    def firing() -> list[str]:
        found = measured.prometheus.query('ALERTS{alertstate="firing"}', time.time())
        return [labels["alertname"] for labels, _ in found]

    eventually(firing, WAIT)
    assert firing() == ["PlimsollTruncated"]
