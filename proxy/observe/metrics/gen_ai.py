"""The metrics of fitted requests in OpenTelemetry's names (semantic conventions for generative AI), as Prometheus has
them: a second family beside ours, for boards that read it.

A proxy is a client of the provider, which reports tokens, and a server to its clients, who wait for the answer. The
conventions are in development: https://github.com/open-telemetry/semantic-conventions-genai.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.apis import apis
from proxy.model.outcome import UNFITTED, Outcome
from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.groups import Group
from proxy.observe.metrics.outcome_metrics import Metric
from proxy.observe.metrics.series import Series

USUAL = "chat"  # the operation of another endpoint
UNKNOWN = "_OTHER"  # the provider of an upstream that rules do not name any more
PROVIDERS = {api.name: api.server.name for api in apis()}  # by endpoint, where the host is not known
OPERATIONS = {api.name: api.operation for api in apis()}  # by endpoint
COMMON = ("operation_name", "provider_name", "request_model", "response_model")
# The buckets that the conventions recommend: seconds from 0.01 to 81.92, and tokens from 1 to 4^13.
SECONDS = tuple(0.01 * 2**i for i in range(14))
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(float(4**i) for i in range(14))
FAILED = frozenset(("broken_off", "bug"))  # results that are errors, whatever the status

TOKEN_USAGE = Metric(
    "gen_ai_client_token_usage",
    "Number of input and output tokens used.",
    tuple(f"gen_ai_{name}" for name in (*COMMON, "token_type")),
    buckets=TOKENS,
    base="",
)
REQUEST_DURATION = Metric(
    "gen_ai_server_request_duration_seconds",
    "Generative AI server request duration such as time-to-last byte or last output token.",
    (*(f"gen_ai_{name}" for name in COMMON), "error_type"),
    buckets=SECONDS,
    base="",
)
FIRST_TOKEN = Metric(
    "gen_ai_server_time_to_first_token_seconds",
    "Time to generate first token for successful responses.",
    tuple(f"gen_ai_{name}" for name in COMMON),
    buckets=FIRST_TOKEN_SECONDS,
    base="",
)
PER_TOKEN = Metric(
    "gen_ai_server_time_per_output_token_seconds",
    "Time per output token generated after the first token for successful responses.",
    tuple(f"gen_ai_{name}" for name in COMMON),
    buckets=TOKEN_SECONDS,
    base="",
)
GEN_AI_METRICS = (TOKEN_USAGE, REQUEST_DURATION, FIRST_TOKEN, PER_TOKEN)


def _series() -> dict[str, Series]:
    return {metric.name: Series.of(metric) for metric in GEN_AI_METRICS}


@dataclass(slots=True)
class GenAi:
    """The values of `GEN_AI_METRICS`. `providers`: the name of the provider behind each upstream, empty
    where that is not known: then its API says."""

    providers: Mapping[str, str]
    series: dict[str, Series] = field(default_factory=_series)

    def add(self, group: Group, outcomes: Iterable[Outcome]) -> None:
        """Adds outcomes of one group."""
        if group.key.endpoint in UNFITTED:
            return
        operation = OPERATIONS.get(group.key.endpoint, USUAL)
        for outcome in outcomes:
            if outcome.attempts:
                provider = self.providers.get(outcome.upstream, UNKNOWN) or PROVIDERS.get(group.key.endpoint, UNKNOWN)
                self._add(outcome, (operation, provider, group.model, group.model_sent))

    def _add(self, o: Outcome, labels: Labels) -> None:
        error = str(o.status) if o.status >= 400 else o.result if o.result in FAILED else ""
        self._put(REQUEST_DURATION, (*labels, error), o.own_seconds + o.upstream_seconds)
        if o.usage is not None:
            self._put(TOKEN_USAGE, (*labels, "input"), o.usage.prompt)
            self._put(TOKEN_USAGE, (*labels, "output"), o.usage.completion)
        if error or not o.stream or o.first_byte_seconds is None:
            return
        self._put(FIRST_TOKEN, labels, o.first_byte_seconds)
        if o.usage is not None and o.usage.completion > 1:
            rest = max(0.0, o.upstream_seconds - o.first_byte_seconds)
            self._put(PER_TOKEN, labels, rest / (o.usage.completion - 1))

    def _put(self, metric: Metric, labels: Labels, value: float) -> None:
        self.series[metric.name].buffer.add(labels, (value,))
