"""The metrics of finished requests, one row each, and the values that an outcome adds to them. It stores nothing.

Theory of operation
-------------------

Outcomes are aggregated by `Group`. A row says with `base` whose model its first labels name, and adds labels of its
own:

* `labels_of` a group returns one set of labels for all its outcomes. The `value` of each is added to it.
* `samples` of an outcome are added one by one. It is called only for outcomes that are `eventful`, which few are.

Prometheus sees no increase from nothing to one. A set of labels that an alert reads therefore starts at 0 (`zeros`).
Others that are there for each model begin with their first value, as each series costs memory in every Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from proxy.apis.paths import family
from proxy.model.outcome import UNFITTED, WEBSOCKET, Outcome, Unmoved
from proxy.model.plan import Mode, Note
from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.groups import BASE, CALLER, Group

LOAD_BUCKETS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5, 2.0, 4.0, 10.0)
HEADROOM_BUCKETS = tuple(map(float, (0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 1_000_000)))
OWN_SECONDS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
UPSTREAM_SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
COUNT_ERRORS = (-0.25, -0.1, -0.05, -0.02, -0.01, -0.001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.25)
COUNT_DIFFERENCES = tuple(map(float, (-1_000, -100, -20, -4, -1, 0, 3, 20, 100, 1_000)))

# The results of requests, each with its usual status.
RESULTS = (
    *(("passed", "200"), ("fitted", "200"), ("healed", "200"), ("refused", "400"), ("rejected", "400")),
    *(("unfit", "400"), ("over_budget", "403"), ("not_understood", "200")),
    *(("upstream_error", "502"), ("upstream_error", "504")),
    *(("broken_off", "200"), ("cancelled", "499"), ("stopped", "503"), ("bug", "200"), ("bug", "500")),
)
ALERTED = (("unfit", "400"), ("upstream_error", "502"), ("upstream_error", "504"), ("broken_off", "200"))
FITTED_ONLY = frozenset(("unfit",))

Samples = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric and the values that outcomes add to it: a histogram if it has `buckets`; with `newest` a gauge of the
    last value; else a counter.

    `labels` follow those of `BASE`, if `base` says whose model stands there. `labels_of` returns their values, None
    for a group without values. `value` is None for an outcome without one; without `value` outcomes are counted.
    `zeros` are values of `labels` that start at 0. Groups that `selects` rejects add nothing. `exemplars`: its buckets
    show the trace of a request. `keeps`: the row has the label `CALLER`, and where there are too many sets of labels,
    what it counts keeps its model or its caller.
    """

    name: str
    help: str
    labels: Labels = ()
    labels_of: Callable[[Group], Labels | None] | None = lambda group: ()
    value: Callable[[Outcome], float | None] | None = None
    buckets: tuple[float, ...] = ()
    samples: Callable[[Outcome], Samples] | None = None
    selects: Callable[[Group], bool] = lambda group: True
    base: Literal["", "asked", "sent"] = "asked"
    zeros: tuple[Labels, ...] = ()
    newest: bool = False
    exemplars: bool = False
    keeps: Literal["", "model", "caller"] = ""

    def all_labels(self, by_caller: bool = False) -> Labels:
        """The names of all its labels, where callers are told apart or not."""
        if not self.base:
            return self.labels
        return (*BASE, *((CALLER,) if by_caller and self.keeps else ()), *self.labels)

    def base_of(self, group: Group) -> Labels:
        """The values of its first labels for a group."""
        if not self.base:
            return ()
        base = group.sent if self.base == "sent" else group.asked
        if not self.keeps:
            return base.pair
        return base.keeps_model if self.keeps == "model" else base.keeps_caller

    def starts_at_zero(self, base: Labels) -> Iterable[Labels]:
        """The sets of labels that start at 0 for the values `base` of its first labels."""
        unfitted = bool(base) and base[0] in UNFITTED
        if unfitted and self.name != REQUESTS:
            return ()
        return [(*base, *labels) for labels in self.zeros if not (unfitted and labels[0] in FITTED_ONLY)]


def eventful(o: Outcome) -> object:
    """Whether an outcome has what rows with `samples` read; most have not, and cost nothing more."""
    changed = o.notes or o.planned_result or o.too_long
    return changed or o.refusals or o.uncounted or o.truncated or o.unmoved_by or o.bytes_in or o.bytes_out or o.phases


def _cuts(notes: Iterable[Note]) -> Samples:
    return [((n.step,), n.tokens_before - n.tokens_after) for n in notes if n.tokens_after < n.tokens_before]


def _rescued(o: Outcome) -> Samples:
    return [((), 1)] if (o.too_long or o.healed) and 200 <= o.status < 300 else []


def count_error(o: Outcome) -> float | None:
    """Error of the prompt's count against the upstream's usage: (counted - reported) / reported; None without both."""
    if o.usage is None or not o.usage.prompt or o.prompt_sent is None:
        return None
    return (o.prompt_sent - o.usage.prompt) / o.usage.prompt


def _count_difference(o: Outcome) -> float | None:
    """Tokens that the upstream's usage reports more than we counted; None without both, or if it cut the prompt."""
    if o.usage is None or not o.usage.prompt or o.prompt_sent is None or o.truncated:
        return None
    return float(o.usage.prompt - o.prompt_sent)


def _headroom(o: Outcome) -> float | None:
    return None if o.prompt_sent is None else max(0, o.window - o.prompt_sent - o.reserve)


def _endpoint(group: Group) -> Labels:
    return (group.key.endpoint,)


def _observes(group: Group) -> bool:
    return group.key.mode == Mode.OBSERVE


def _is_unfitted(group: Group) -> bool:
    return group.key.endpoint in UNFITTED


REQUESTS = "plimsoll_requests_total"
METRICS = (
    Metric(
        REQUESTS,
        "Requests by result and status; the model is empty where requests pass through unmeasured.",
        ("result", "status"),
        lambda group: (group.key.result, str(group.key.status)),
        zeros=ALERTED,
        keeps="model",
    ),
    Metric(
        "plimsoll_labels_folded_total",
        "Requests with a label that is other because there are too many: the model, or the caller or its model.",
        ("label",),
        lambda group: (group.asked.folded,) if group.asked.folded else None,
        base="",
        zeros=(("model",), ("caller",)),
    ),
    Metric(
        "plimsoll_budget_requests_total",
        "Requests under a budget of callers.toml, by its name, and the stage that it was in (0 to 3).",
        ("budget", "stage"),
        lambda group: (group.key.budget, str(group.key.stage)) if group.key.budget else None,
        base="",
    ),
    Metric(
        "plimsoll_planned_requests_total",
        "Requests whose mode is observe, by what would have been done: passed, fitted or unfit.",
        ("result",),
        lambda group: ("passed",) if _observes(group) else None,
        lambda o: 1 if o.attempts and not o.planned_result else None,
        samples=lambda o: [((o.planned_result,), 1)] if o.planned_result else [],
        selects=_observes,
    ),
    Metric(
        "plimsoll_rescued_requests_total",
        "Requests that were answered although as the client sent them they do not fit the window, or were refused.",
        labels_of=None,
        samples=_rescued,
    ),
    Metric(
        "plimsoll_heals_total",
        "Requests that the upstream refused for their length, by whether a smaller one was answered: healed or failed.",
        ("result",),
        labels_of=None,
        samples=lambda o: [(("healed" if o.healed else "failed",), 1)] if o.refusals else [],
        zeros=(("healed",), ("failed",)),
    ),
    Metric(
        "plimsoll_window_load_before_ratio",
        "Load of the window, (prompt + reply) / window, as the client sent the request. A reply without a limit takes "
        "the reserve, but no more than the prompt leaves.",
        value=attrgetter("load_before"),
        buckets=LOAD_BUCKETS,
    ),
    Metric(
        "plimsoll_window_load_after_ratio",
        "Load of the window, (prompt + reply) / window, as the request was sent upstream.",
        value=attrgetter("load_after"),
        buckets=LOAD_BUCKETS,
    ),
    Metric(
        "plimsoll_window_headroom_tokens",
        "Tokens of the window that prompt and reserve, as sent upstream, leave free.",
        value=_headroom,
        buckets=HEADROOM_BUCKETS,
    ),
    Metric(
        "plimsoll_window_requests_total",
        "Measured requests by the source of the window that they were compared with.",
        ("source",),
        lambda group: (group.key.window_source,) if group.key.window_source else None,
    ),
    Metric(
        "plimsoll_window_tokens",
        "The window of a model from a source, as it was last used.",
        ("model", "source"),
        lambda group: (group.model_sent, group.key.window_source) if group.key.window_source else None,
        attrgetter("window"),
        base="",
        newest=True,
    ),
    Metric(
        "plimsoll_prompt_tokens_total",
        "Prompt tokens as clients sent them, of requests that were sent upstream.",
        value=lambda o: None if o.prompt_sent is None else o.prompt,
        keeps="caller",
    ),
    Metric(
        "plimsoll_prompt_sent_tokens_total",
        "Prompt tokens as sent upstream, by the model that was sent.",
        value=attrgetter("prompt_sent"),
        base="sent",
        keeps="caller",
    ),
    Metric(
        "plimsoll_cut_tokens_total",
        "Prompt tokens removed, by step.",
        ("step",),
        labels_of=None,
        samples=lambda o: _cuts(o.notes),
    ),
    Metric(
        "plimsoll_steps_total",
        "Requests that a step changed, by step.",
        ("step",),
        labels_of=None,
        samples=lambda o: [((note.step,), 1) for note in o.notes],
    ),
    Metric(
        "plimsoll_planned_cut_tokens_total",
        "Prompt tokens that would have been removed, by step, in requests whose mode is observe.",
        ("step",),
        labels_of=None,
        samples=lambda o: _cuts(o.planned),
        selects=_observes,
    ),
    Metric(
        "plimsoll_planned_steps_total",
        "Requests that a step would have changed, by step, in requests whose mode is observe.",
        ("step",),
        labels_of=None,
        samples=lambda o: [((note.step,), 1) for note in o.planned],
        selects=_observes,
    ),
    Metric(
        "plimsoll_unfitted_requests_total",
        "Requests that passed through without being measured, by endpoint; an unknown endpoint is other.",
        ("endpoint",),
        labels_of=None,
        samples=lambda o: [((family(o.path),), 1)],
        selects=_is_unfitted,
        base="",
    ),
    Metric(
        "plimsoll_reply_asked_tokens_total",
        "Reply tokens requested by clients: the sum of their reply limits.",
        value=attrgetter("reply_asked"),
    ),
    Metric(
        "plimsoll_reply_granted_tokens_total",
        "Reply tokens requested upstream: the sum of the reply limits sent.",
        value=attrgetter("reply_sent"),
    ),
    Metric(
        "plimsoll_switches_total",
        "Requests that were sent to another model, by the two models.",
        ("from", "to"),
        lambda group: (group.model, group.model_sent) if group.key.model_sent not in ("", group.key.model) else None,
        base="",
    ),
    Metric(
        "plimsoll_unmoved_total",
        "Requests that were cut although their ladder allows another model, by why they were not moved to it.",
        ("reason",),
        labels_of=None,
        samples=lambda o: [((reason,), 1) for reason in o.unmoved_by],
        base="",
        zeros=tuple((reason.value,) for reason in Unmoved),
    ),
    Metric(
        "plimsoll_refusals_total",
        "Upstream errors that said a request was too long, by the rule that matched and whether a retry succeeded.",
        ("rule", "healed"),
        labels_of=None,
        samples=lambda o: [((rule, str(o.healed).lower()), 1) for rule in o.refusals],
        base="",
    ),
    Metric(
        "plimsoll_counts_total",
        "Counted requests by the quality of the count: exact, calibrated or estimated.",
        ("quality",),
        lambda group: (group.key.quality,) if group.key.quality else None,
    ),
    Metric(
        "plimsoll_counts_dropped_total",
        "Requests that fit by their size in bytes and were never counted, because the queue for counting was full.",
        labels_of=None,
        samples=lambda o: [((), 1)] if o.uncounted else [],
        base="",
        zeros=((),),
    ),
    Metric(
        "plimsoll_count_error_ratio",
        "Error of the prompt's count against the upstream's usage, (counted - reported) / reported, by the model sent.",
        ("quality",),
        lambda group: (group.key.quality,) if group.key.status == 200 else None,
        count_error,
        COUNT_ERRORS,
        base="sent",
    ),
    Metric(
        "plimsoll_count_difference_tokens",
        "Tokens that the upstream's usage reports more than were counted, by the model sent and the prompt's shape: "
        "text, tools, schema, history (with calls) or parallel.",
        ("shape",),
        lambda group: (group.key.shape,) if group.key.shape and group.key.status == 200 else None,
        _count_difference,
        COUNT_DIFFERENCES,
        base="sent",
    ),
    Metric(
        "plimsoll_cached_prompt_tokens_total",
        "Prompt tokens that upstreams reported as read from their prompt cache, by the model sent.",
        value=lambda o: o.usage.cached if o.usage is not None else None,
        base="sent",
        keeps="caller",
    ),
    Metric(
        "plimsoll_completion_tokens_total",
        "Reply tokens that upstreams reported, by the model sent.",
        value=lambda o: o.usage.completion if o.usage is not None else None,
        base="sent",
        keeps="caller",
    ),
    Metric(
        "plimsoll_truncated_prompts_total",
        "Prompts that the upstream truncated silently: its usage reports far fewer tokens than were sent.",
        labels_of=None,
        samples=lambda o: [((), 1)] if o.truncated else [],
        base="sent",
        zeros=((),),
    ),
    Metric(
        "plimsoll_websocket_bytes_total",
        "Bytes through closed WebSockets: in (from clients) and out (to clients).",
        ("direction",),
        labels_of=None,
        samples=lambda o: [(("in",), o.bytes_in), (("out",), o.bytes_out)],
        selects=lambda group: group.key.endpoint == WEBSOCKET,
        base="",
        zeros=(("in",), ("out",)),
    ),
    Metric(
        "plimsoll_own_seconds",
        "Time spent in the proxy itself, without the time of the upstream.",
        ("endpoint",),
        _endpoint,
        attrgetter("own_seconds"),
        OWN_SECONDS_BUCKETS,
        base="",
        exemplars=True,
    ),
    Metric(
        "plimsoll_own_phase_seconds",
        "Parts of the time in the proxy itself: count, plan, render, heal; of counts in the background, too.",
        ("endpoint", "phase"),
        None,
        samples=lambda o: [((o.endpoint, phase), seconds) for phase, seconds in o.phases],
        buckets=OWN_SECONDS_BUCKETS,
        base="",
    ),
    Metric(
        "plimsoll_upstream_seconds",
        "Time from sending a request upstream to the end of the response.",
        ("endpoint",),
        _endpoint,
        lambda o: o.upstream_seconds or None,
        UPSTREAM_SECONDS_BUCKETS,
        base="",
        exemplars=True,
    ),
    Metric(
        "plimsoll_upstream_requests_total",
        "Requests by the upstream that was asked last, where there are several, and by their status.",
        ("upstream", "status"),
        lambda group: (group.key.upstream, str(group.key.status)),
        selects=lambda group: bool(group.key.upstream),
        base="",
    ),
    Metric(
        "plimsoll_upstream_response_seconds",
        "Time from sending a request to the end of the response, by the upstream that was asked last.",
        ("upstream",),
        lambda group: (group.key.upstream,),
        lambda o: o.upstream_seconds or None,
        UPSTREAM_SECONDS_BUCKETS,
        selects=lambda group: bool(group.key.upstream),
        base="",
    ),
    Metric(
        "plimsoll_first_byte_seconds",
        "Time from sending a request upstream to the first byte of the response body.",
        ("endpoint",),
        _endpoint,
        attrgetter("first_byte_seconds"),
        UPSTREAM_SECONDS_BUCKETS,
        base="",
        exemplars=True,
    ),
)
