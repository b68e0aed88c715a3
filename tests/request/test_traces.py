"""The traces of a process, made from its settings."""

from __future__ import annotations

import pytest

from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from proxy.request.traces import make_traces

HTTPS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318"}


def told(message: str, **figures: object) -> None:
    raise AssertionError(message)


def test_there_are_none_without_settings_for_them() -> None:
    assert make_traces(read_settings({}), told) is None


def test_the_sampler_is_that_of_the_settings() -> None:
    settings = read_settings({**HTTPS, "OTEL_TRACES_SAMPLER": "always_off"})
    traces = make_traces(settings, told)
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
        make_traces(read_settings({**HTTPS, name: "/no/such.pem"}), told)
