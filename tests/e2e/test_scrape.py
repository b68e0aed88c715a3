"""A scrape after traffic of all kinds: Prometheus' own tool has no complaint, and every promised figure is there."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import parser

from proxy.cli import demo
from proxy.observe.metrics.groups import OTHER
from tests.e2e.world import World, eventually, world
from tests.observe.metrics.test_exposition import strict

BODY: dict[str, Any] = demo.BODY
HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
CHOICES = {"type": "string", "enum": [f"harbour-{n}" for n in range(60)]}  # no step may shorten these
BIG = [
    {"type": "function", "function": {"name": f"t{i}", "parameters": {"type": "object", "properties": {"a": CHOICES}}}}
    for i in range(60)
]
TRAFFIC: tuple[tuple[Any, dict[str, str]], ...] = (
    (HELLO, {}),
    ({**HELLO, "stream": True, "stream_options": {"include_usage": True}}, {}),
    (BODY, {}),
    ({**BODY, "model": "gpt-4-0613", "messages": BODY["messages"][:60], "max_tokens": 400}, {"x-sim-window": "2500"}),
    ({**HELLO, "model": "gpt-4", "tools": BIG}, {}),
    ({**HELLO, "model": "nobody-knows-it"}, {}),
    ({**HELLO, "model": 7}, {}),
    (HELLO, {"x-plimsoll-mode": "off"}),
    (HELLO, {"x-plimsoll-mode": "sideways"}),
    (HELLO, {"x-sim-status": "500"}),
    ({**HELLO, "stream": True}, {"x-sim-abort": "3", "x-sim-text": "a b c d e f"}),
)


def asked(here: World, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
    address = urlsplit(here.through)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    try:
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers or {})
        return connection.getresponse().read()
    except http.client.IncompleteRead:
        return b""
    finally:
        connection.close()


@pytest.fixture(scope="module")
def scrape() -> bytes:
    with world() as here:
        for body, headers in TRAFFIC:
            asked(here, "/v1/chat/completions", body, headers)
        asked(here, "/v1/models")
        eventually(lambda: len(here.outcomes) > len(TRAFFIC))
        return asked(here, "/metrics")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_own_tool_has_no_complaint(scrape: bytes) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=scrape, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_all_that_is_promised_is_there(scrape: bytes) -> None:
    """DESIGN 10: requests by outcome, load, tokens, replies, refusals, counts, cache, times, in flight."""
    samples = [s for family in parser.text_string_to_metric_families(scrape.decode()) for s in family.samples]
    value = {(s.name, *sorted(s.labels.items())): s.value for s in samples}
    results = {s.labels["result"] for s in samples if s.name == "plimsoll_requests_total" and s.value}
    assert results >= {"passed", "fitted", "healed", "unfit", "rejected", "broken_off", "not_understood"}
    assert sum(s.value for s in samples if s.name == "plimsoll_requests_total") == len(TRAFFIC) + 1
    refusals = [s for s in samples if s.name == "plimsoll_refusals_total" and s.value]
    assert [(s.labels["healed"], s.value) for s in refusals] == [("true", 1)]

    def total(name: str, **labels: str) -> float:
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    assert total("plimsoll_cut_tokens_total", step="prune_history") > 3000, "and not what was refused"
    assert total("plimsoll_prompt_tokens_total", endpoint="chat", model="gpt-4") == 7793, "and not what went nowhere"
    assert total("plimsoll_prompt_tokens_total", endpoint="chat", model=OTHER) > 0
    assert total("plimsoll_counts_total", quality="exact") >= 5
    assert total("plimsoll_counts_total", quality="estimated", model=OTHER) == 1
    assert total("plimsoll_count_error_ratio_count", quality="exact") >= 3
    assert total("plimsoll_heals_total", result="healed", model="gpt-4-0613") == 1
    assert total("plimsoll_rescued_requests_total", model="gpt-4") == 1
    assert total("plimsoll_rescued_requests_total") == 2
    assert total("plimsoll_window_tokens", model="gpt-4", source="litellm") == 8192
    assert value[("plimsoll_cache_lookups_total", ("result", "miss"), ("tier", "local"))] > 0
    assert value[("plimsoll_requests_in_flight",)] == 0
    for name in (
        "plimsoll_window_load_before_ratio_count",
        "plimsoll_window_load_after_ratio_count",
        "plimsoll_window_headroom_tokens_count",
        "plimsoll_window_requests_total",
        "plimsoll_reply_asked_tokens_total",
        "plimsoll_reply_granted_tokens_total",
        "plimsoll_completion_tokens_total",
    ):
        assert total(name, endpoint="chat", model="gpt-4") > 0, name
    for name in ("plimsoll_own_seconds_count", "plimsoll_upstream_seconds_count", "plimsoll_first_byte_seconds_count"):
        assert value[(name, ("endpoint", "chat"))] >= 5, name
        assert value[(name, ("endpoint", "passthrough"))] == 1, name


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A scrape of OpenMetrics by callers and with OpenTelemetry's names, after a scrape and three requests."""
    rules = tmp_path_factory.mktemp("rules")
    (rules / "callers.toml").write_text('callers = ["search"]')
    accept = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    with world(PLIMSOLL_RULES=str(rules), PLIMSOLL_CALLER_HEADER="X-Team", PLIMSOLL_GEN_AI_METRICS="true") as here:
        asked(here, "/metrics", headers=accept)
        traced = {"x-team": "search", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        asked(here, "/v1/chat/completions", BODY, traced)
        asked(
            here, "/v1/chat/completions", HELLO, {"x-team": "a-stranger", "traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}
        )
        asked(here, "/v1/models", headers={"x-team": "search"})
        eventually(lambda: len(here.outcomes) > 2, 30)
        assert all(dict(r.headers)[b"x-team"] for r in here.simulator.received), "it goes on like any header"
        return asked(here, "/metrics", headers=accept)


def samples_of(told: bytes) -> list[Any]:
    return [sample for family in strict(told) for sample in family.samples]


def test_a_caller_of_the_list_is_a_label_and_any_other_is_other(told: bytes) -> None:
    requests = {
        (s.labels["caller"], s.labels["endpoint"], s.labels["result"])
        for s in samples_of(told)
        if s.name == "plimsoll_requests_total" and s.value
    }
    assert requests == {("search", "chat", "fitted"), (OTHER, "chat", "passed"), ("search", "passthrough", "passed")}
    assert b"a-stranger" not in told


def test_a_bucket_shows_the_trace_that_the_client_records(told: bytes) -> None:
    traces = {(s.name, s.exemplar.labels["trace_id"]) for s in samples_of(told) if s.exemplar}
    times = ("own", "upstream", "first_byte")
    assert traces == {(f"plimsoll_{name}_seconds_bucket", TRACE) for name in times}, "and none that nobody records"


def test_the_phases_of_a_request_that_was_cut_are_shown(told: bytes) -> None:
    phases = {s.labels["phase"] for s in samples_of(told) if s.name == "plimsoll_own_phase_seconds_count"}
    assert {"plan", "render"} <= phases <= {"count", "plan", "render"}
    spent = {s.labels["phase"]: s.value for s in samples_of(told) if s.name == "plimsoll_own_phase_seconds_sum"}
    own = sum(s.value for s in samples_of(told) if s.name == "plimsoll_own_seconds_sum")
    assert 0 < spent["plan"] + spent["render"] <= own


def test_opentelemetrys_names_are_there_too(told: bytes) -> None:
    tokens = {
        s.labels["gen_ai_request_model"]: s.value
        for s in samples_of(told)
        if s.name == "gen_ai_client_token_usage_sum" and s.labels["gen_ai_token_type"] == "input"
    }
    assert tokens.keys() == {"gpt-4", "gpt-4o"} and tokens["gpt-4"] > 3_000
