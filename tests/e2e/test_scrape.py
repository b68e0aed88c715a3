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
from proxy.observe.outcome_metrics import OTHER
from tests.e2e.world import World, eventually, world

BODY: dict[str, Any] = demo.BODY
HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
BIG = [{"type": "function", "function": {"name": f"t{i}", "description": "What it is for. " * 90}} for i in range(60)]
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
    assert total("plimsoll_prompt_tokens_total", endpoint="chat", model="gpt-4") > 7793
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
