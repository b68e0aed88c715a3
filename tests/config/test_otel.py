"""OpenTelemetry's variables: what turns traces on, what they mean, and what stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.otel import Sampler, TraceSettings, read_traces
from proxy.config.settings import read_settings
from proxy.errors import ConfigError

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def read(**environ: str) -> TraceSettings:
    settings, problems = read_traces({**ENDPOINT, **environ})
    assert problems == [] and settings is not None
    return settings


def problems(**environ: str) -> list[str]:
    return read_traces({**ENDPOINT, **environ})[1]


def test_traces_are_off_without_an_endpoint() -> None:
    assert read_traces({}) == (None, [])
    assert read_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": " ", "OTEL_TRACES_EXPORTER": ""}) == (None, [])
    assert read_traces({"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) == (None, [])
    assert read_settings({}).traces is None


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_traces_can_be_turned_off_and_nothing_else_is_read(off: dict[str, str]) -> None:
    assert read_traces({**ENDPOINT, **off, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) == (None, [])


def test_the_defaults_are_those_of_the_specification() -> None:
    assert read_settings(ENDPOINT).traces == TraceSettings(
        url="http://collector:4318/v1/traces",
        protocol="http/protobuf",
        headers=(),
        compression="none",
        timeout=10.0,
        certificate=None,
        client_certificate=None,
        client_key=None,
        resource=(("service.name", "plimsoll"),),
        sampler=Sampler(True, 1.0),
    )


def test_a_collector_on_this_machine_needs_only_the_exporter() -> None:
    settings, _ = read_traces({"OTEL_TRACES_EXPORTER": "otlp"})
    assert settings is not None and settings.url == "http://localhost:4318/v1/traces"


def test_every_variable_is_read() -> None:
    prefix = "OTEL_EXPORTER_OTLP"
    assert read(
        **{
            f"{prefix}_ENDPOINT": "https://collector/otlp/",
            f"{prefix}_PROTOCOL": "http/json",
            f"{prefix}_HEADERS": "Authorization=Basic%20YTpi, x-tenant = 7",
            f"{prefix}_COMPRESSION": "gzip",
            f"{prefix}_TIMEOUT": "2500",
            f"{prefix}_CERTIFICATE": "/etc/ca.pem",
            f"{prefix}_CLIENT_CERTIFICATE": "/etc/cert.pem",
            f"{prefix}_CLIENT_KEY": "/etc/key.pem",
            "OTEL_SERVICE_NAME": "llm-proxy",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=unused,k8s.pod.name=plimsoll-0,team=a%2Cb",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.1",
        }
    ) == TraceSettings(
        url="https://collector/otlp/v1/traces",
        protocol="http/json",
        headers=(("authorization", "Basic YTpi"), ("x-tenant", "7")),
        compression="gzip",
        timeout=2.5,
        certificate=Path("/etc/ca.pem"),
        client_certificate=Path("/etc/cert.pem"),
        client_key=Path("/etc/key.pem"),
        resource=(("service.name", "llm-proxy"), ("k8s.pod.name", "plimsoll-0"), ("team", "a,b")),
        sampler=Sampler(True, 0.1),
    )


def test_what_is_set_for_traces_alone_wins_and_its_url_is_used_as_it_is() -> None:
    found = read(
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://tempo:4318/mine/",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/json",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="2000",
    )
    assert (found.url, found.protocol, found.timeout) == ("http://tempo:4318/mine/", "http/json", 2.0)


def test_the_name_of_the_service_may_be_a_resource_attribute() -> None:
    assert read(OTEL_RESOURCE_ATTRIBUTES="service.name=from-there").resource == (("service.name", "from-there"),)


@pytest.mark.parametrize(
    ("name", "argument", "sampler"),
    [
        ("always_on", "x", Sampler(False, 1.0)),
        ("always_off", "", Sampler(False, 0.0)),
        ("traceidratio", "0.5", Sampler(False, 0.5)),
        ("traceidratio", "0", Sampler(False, 0.0)),
        ("parentbased_always_on", "", Sampler(True, 1.0)),
        ("parentbased_always_off", "", Sampler(True, 0.0)),
        ("parentbased_traceidratio", "", Sampler(True, 1.0)),
    ],
)
def test_samplers_have_the_names_of_the_specification(name: str, argument: str, sampler: Sampler) -> None:
    assert read(OTEL_TRACES_SAMPLER=name, OTEL_TRACES_SAMPLER_ARG=argument).sampler == sampler


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is 'grpc', must be one of http/protobuf, http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "x", "is 'x', must be one of http/protobuf, http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "is 'zipkin', must be one of otlp, none"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "is '2', must be a number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "is 'nan', must be a number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "half", "is 'half', must be a number from 0 to 1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "is '10s', must be a whole number of at least 1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "is 'zstd', must be one of none, gzip"),
        ("OTEL_SDK_DISABLED", "maybe", "is 'maybe', must be true or false"),
        ("OTEL_RESOURCE_ATTRIBUTES", "no pairs", "must be pairs such as name=value, separated by commas"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=1", "must be pairs such as name=value, separated by commas"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_its_variable(name: str, value: str, said: str) -> None:
    environ = {**ENDPOINT, "OTEL_TRACES_SAMPLER": "traceidratio", name: value}
    assert read_traces(environ)[1] == [f"{name} {said}"]
    with pytest.raises(ConfigError, match=f"^{name} "):
        read_settings(environ)


def test_an_unknown_sampler_is_refused() -> None:
    (line,) = problems(OTEL_TRACES_SAMPLER="jaeger_remote")
    assert line.startswith("OTEL_TRACES_SAMPLER is 'jaeger_remote', must be one of always_on, ")


@pytest.mark.parametrize("url", ["collector:4317", "grpc://collector", "http://", "http://c/?x=1", "http://c:0"])
def test_an_endpoint_must_be_a_plain_url(url: str) -> None:
    (line,) = problems(OTEL_EXPORTER_OTLP_ENDPOINT=url)
    assert line.startswith("OTEL_EXPORTER_OTLP_ENDPOINT ") and "such as http://localhost:4318" in line


def test_all_problems_are_told_at_once_with_those_of_other_settings() -> None:
    with pytest.raises(ConfigError) as error:
        read_settings(
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "a", "OTEL_TRACES_SAMPLER": "b", "PLIMSOLL_PORT": "c"}
        )
    names = [line.split()[0] for line in str(error.value).splitlines()]
    assert names == ["PLIMSOLL_PORT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_SAMPLER"]


SECRET = "canary-7182"


@pytest.mark.parametrize("value", [SECRET, f"a={SECRET}\r\nb: c", f"a b={SECRET}", f"a=%00{SECRET}", f"a=ü{SECRET}"])
def test_no_problem_repeats_a_header(value: str) -> None:
    (line,) = problems(OTEL_EXPORTER_OTLP_HEADERS=value)
    assert line.startswith("OTEL_EXPORTER_OTLP_HEADERS ") and SECRET not in line


def test_no_key_is_in_the_repr_or_in_what_is_said_of_a_url() -> None:
    assert SECRET not in repr(read(OTEL_EXPORTER_OTLP_HEADERS=f"api-key={SECRET}"))
    (line,) = problems(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://me:{SECRET}@collector")
    assert SECRET not in line and "OTEL_EXPORTER_OTLP_HEADERS" in line
