"""The settings of traces: OpenTelemetry's own `OTEL_*` variables, as far as they concern traces over HTTP.

They are no flags, and traces are off until they name a collector. Names and defaults are those of OpenTelemetry's
specification (sdk-environment-variables, protocol/exporter).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from proxy.config import values
from proxy.config.values import Parser, choice, optional, quoted, whole

PATH = "/v1/traces"  # appended to the endpoint of all signals
LOCAL = "http://localhost:4318"
PROTOBUF, JSON = "http/protobuf", "http/json"
GZIP = "gzip"
SERVICE_NAME = "plimsoll"
HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)  # RFC 9110, 5.6.2


@dataclass(frozen=True, slots=True)
class Sampler:
    """`parent_based`: a request that continues a trace is sampled if its parent is. `ratio`: the part of all others
    that is sampled."""

    parent_based: bool
    ratio: float


class Kind(NamedTuple):
    """A sampler without its argument; `ratio` is None where the argument sets it."""

    parent_based: bool
    ratio: float | None


SAMPLERS: Mapping[str, Kind] = MappingProxyType(
    {
        "always_on": Kind(False, 1.0),
        "always_off": Kind(False, 0.0),
        "traceidratio": Kind(False, None),
        "parentbased_always_on": Kind(True, 1.0),
        "parentbased_always_off": Kind(True, 0.0),
        "parentbased_traceidratio": Kind(True, None),
    }
)


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where traces are exported to, and which. `timeout` in seconds. `headers` go with every export; they may contain a
    key. `resource` describes this process: pairs of names and values, `service.name` among them."""

    url: str
    protocol: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    compression: str
    timeout: float
    certificate: Path | None
    client_certificate: Path | None
    client_key: Path | None
    resource: tuple[tuple[str, str], ...]
    sampler: Sampler


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs of names and percent-encoded values: `a=1,b=two%20words`. Never repeats the text, which may have a key."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError("must be pairs such as name=value, separated by commas")
        found.append((name.strip(), unquote(value.strip())))
    return tuple(found)


def headers(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs that are valid as headers; their names in lower case."""
    found = pairs(text)
    if not all(HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable() for name, value in found):
        raise ValueError("contains a name or a value that no header may have")
    return tuple((name.lower(), value) for name, value in found)


def ratio(text: str) -> float:
    """A part of 1."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError(f"is {quoted(text)}, must be a number from 0 to 1")
    return found


class Variable(NamedTuple):
    """One variable. An `exporter`'s may also be set for traces alone, which then wins: OTEL_EXPORTER_OTLP_TIMEOUT and
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT."""

    name: str
    parse: Parser
    default: str = ""

    @property
    def for_traces(self) -> str:
        """Its name for traces alone."""
        return self.name.replace("_OTLP_", "_OTLP_TRACES_")


endpoint = values.url(LOCAL, "OTEL_EXPORTER_OTLP_HEADERS")
DISABLED = Variable("OTEL_SDK_DISABLED", values.boolean, "false")
EXPORTER = Variable("OTEL_TRACES_EXPORTER", choice("otlp", "none"), "otlp")
ENDPOINT = Variable("OTEL_EXPORTER_OTLP_ENDPOINT", optional(endpoint))
PROTOCOL = Variable("OTEL_EXPORTER_OTLP_PROTOCOL", choice(PROTOBUF, JSON), PROTOBUF)
HEADERS = Variable("OTEL_EXPORTER_OTLP_HEADERS", headers)
COMPRESSION = Variable("OTEL_EXPORTER_OTLP_COMPRESSION", choice("none", GZIP), "none")
TIMEOUT = Variable("OTEL_EXPORTER_OTLP_TIMEOUT", whole(1), "10000")
CERTIFICATE = Variable("OTEL_EXPORTER_OTLP_CERTIFICATE", optional(Path))
CLIENT_CERTIFICATE = Variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", optional(Path))
CLIENT_KEY = Variable("OTEL_EXPORTER_OTLP_CLIENT_KEY", optional(Path))
SERVICE = Variable("OTEL_SERVICE_NAME", str)
RESOURCE = Variable("OTEL_RESOURCE_ATTRIBUTES", pairs)
SAMPLER = Variable("OTEL_TRACES_SAMPLER", choice(*SAMPLERS), "parentbased_always_on")
SAMPLER_ARG = Variable("OTEL_TRACES_SAMPLER_ARG", ratio, "1.0")
VARIABLES = (
    *(DISABLED, EXPORTER, ENDPOINT, PROTOCOL, HEADERS, COMPRESSION, TIMEOUT, CERTIFICATE, CLIENT_CERTIFICATE),
    *(CLIENT_KEY, SERVICE, RESOURCE, SAMPLER, SAMPLER_ARG),
)
NAMES = frozenset(name for variable in VARIABLES for name in (variable.name, variable.for_traces))


class _Reader:
    """Reads variables; notes the problems of all of them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def set_by(self, variable: Variable) -> str:
        """The name by which a variable is set; an empty text is none."""
        names = (variable.for_traces, variable.name)
        return next((name for name in names if self._environ.get(name, "").strip()), "")

    def get(self, variable: Variable) -> Any:
        """The parsed value, or None if it is wrong."""
        name = self.set_by(variable)
        try:
            return variable.parse(self._environ[name].strip() if name else variable.default)
        except ValueError as error:
            self.problems.append(f"{name} {error}")
            return None


def read_traces(environ: Mapping[str, str]) -> tuple[TraceSettings | None, list[str]]:
    """The settings of traces, None if they are off; and the problems, one line each, which name the variable.

    Traces are on if an endpoint is set, or `OTEL_TRACES_EXPORTER=otlp`, and off in any case with
    `OTEL_TRACES_EXPORTER=none` or `OTEL_SDK_DISABLED=true`.
    """
    reader = _Reader(environ)
    off = reader.get(DISABLED) or reader.get(EXPORTER) == "none"
    if off or not (reader.set_by(ENDPOINT) or reader.set_by(EXPORTER)):
        return None, reader.problems
    given = reader.get(ENDPOINT) or LOCAL
    resource = dict(reader.get(RESOURCE) or ())
    resource["service.name"] = reader.get(SERVICE) or resource.get("service.name") or SERVICE_NAME
    settings = TraceSettings(
        url=given if reader.set_by(ENDPOINT) == ENDPOINT.for_traces else given.rstrip("/") + PATH,
        protocol=reader.get(PROTOCOL),
        headers=reader.get(HEADERS),
        compression=reader.get(COMPRESSION),
        timeout=(reader.get(TIMEOUT) or 0) / 1000,
        certificate=reader.get(CERTIFICATE),
        client_certificate=reader.get(CLIENT_CERTIFICATE),
        client_key=reader.get(CLIENT_KEY),
        resource=tuple(resource.items()),
        sampler=_sampler(reader),
    )
    return settings, reader.problems


def _sampler(reader: _Reader) -> Sampler:
    kind = SAMPLERS[reader.get(SAMPLER) or SAMPLER.default]
    return Sampler(kind.parent_based, reader.get(SAMPLER_ARG) or 0.0 if kind.ratio is None else kind.ratio)
