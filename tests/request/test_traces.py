"""The traces of a process, made from its settings."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config.settings import read_settings
from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.model.outcome import Outcome
from proxy.model.trace import AttemptSpan, Trace
from proxy.request.traces import make_traces
from tests.otlp import read_json

HTTPS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318"}


def told(message: str, **figures: object) -> None:
    raise AssertionError(message)


def test_there_are_none_without_settings_for_them() -> None:
    assert make_traces(read_settings({}), (), told) is None


def test_the_sampler_is_that_of_the_settings() -> None:
    settings = read_settings({**HTTPS, "OTEL_TRACES_SAMPLER": "always_off"})
    traces = make_traces(settings, (), told)
    assert settings.traces is not None and traces is not None
    assert traces.tracer.sampler == settings.traces.sampler


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "^OTEL_EXPORTER_OTLP_CERTIFICATE, /no/such.pem: No such file"),
        (
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            "^OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, /no/such.pem: No such file",
        ),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start_and_is_named_by_its_variable(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_traces(read_settings({**HTTPS, name: "/no/such.pem"}), (), told)


def test_upstreams_follow_the_rules() -> None:
    traces = make_traces(read_settings({**HTTPS, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}), (), told)
    assert traces is not None
    trace = Trace("c" * 32, "a" * 16, "POST", 1, 2, "", (AttemptSpan("1" * 16, 1, 2, 200, "local"),))
    outcome = Outcome("chat", "passed", 200, path="/v1/chat/completions", trace=trace, upstream="local")

    def attributes() -> dict[str, Any]:
        return read_json(traces.body([outcome])).spans[1].attributes

    assert "server.address" not in attributes()
    traces.use_upstreams([UpstreamRow("local", "http://vllm:8000/v1", models=("qwen*",))])
    assert (attributes()["server.address"], attributes()["server.port"]) == ("vllm", 8000)
    traces.use_upstreams([])
    assert "server.address" not in attributes()
