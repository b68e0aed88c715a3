"""Adds outcomes up under the labels of each metric. It knows no library and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proxy.fit.money import PricesOf
from proxy.model.bounded import Bounded
from proxy.model.outcome import UNFITTED, Outcome
from proxy.model.ports import Agreement
from proxy.observe.metrics.buffers import HistogramBuffer, Labels
from proxy.observe.metrics.costs import Costs, no_prices
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.groups import KEY, OTHER, Base, Group, Key
from proxy.observe.metrics.outcome_metrics import METRICS, eventful
from proxy.observe.metrics.series import Series
from proxy.observe.metrics.shared_labels import SharedLabels

# Of all workers together. A pair of endpoint and model has a hundred series, one with a caller sixteen; all together
# are a scrape of at most 1 MB (tests.bench.scrape).
MAX_PAIRS = 48
MAX_WITH_CALLER = 160  # sets of endpoint, model and caller
MAX_CALLERS = 100  # sets of endpoint and caller, for what is left of their models
PAIR, WITH_CALLER, OF_CALLER = "pair", "with caller", "caller"
LABEL_CACHE_SIZE = 1_000  # entries: names as clients write them

LabelOf = Callable[[str], str]
Folded = Callable[[str], None]  # is called once for each label that becomes `other`


def unnoticed(label: str) -> None:
    """Does nothing: the default of `Folded` parameters."""


class Aggregator:
    """The values of all rows of `METRICS`.

    `label` returns the label of a model's name, `prices` its prices. Rows of each of `endpoints` (names of APIs) start
    at 0 where an alert reads them. `by_caller`: rows that keep something have the label `CALLER`. `gen_ai`: a second
    family of metrics. `folded` is called by one of all workers once there are too many models, or callers of models.
    `agreed`: what replicas agree on. Must be created before the workers are forked: they agree on what is told apart.
    """

    def __init__(
        self,
        label: LabelOf,
        endpoints: Iterable[str] = (),
        prices: PricesOf = no_prices,
        by_caller: bool = False,
        gen_ai: GenAi | None = None,
        folded: Folded = unnoticed,
        agreed: Agreement | None = None,
    ) -> None:
        self._label = label
        self._labels: Bounded[str, str] = Bounded(LABEL_CACHE_SIZE)
        self._shared, self._agreed = SharedLabels(), agreed
        self._by_caller = by_caller
        self._folded, self._reported = folded, {""}
        self.exemplars = False  # whether outcomes with a trace become exemplars
        self.costs = Costs(prices)
        self._rows = [Series.of(metric) for metric in METRICS]
        self.gen_ai = gen_ai
        self.series = [*self._rows, *self.costs.series.values(), *(gen_ai.series.values() if gen_ai else ())]
        for endpoint in [*endpoints, *sorted(UNFITTED)]:
            pair = endpoint, "" if endpoint in UNFITTED else OTHER
            whole = (*pair, OTHER) if by_caller else pair
            for one in self._rows:
                one.begin(() if not one.metric.base else whole if one.metric.keeps else pair)

    def use_rules(self, label: LabelOf, prices: PricesOf) -> None:
        """Labels and prices further outcomes by other rules."""
        self._label, self.costs.prices = label, prices
        self._labels.clear()

    def label(self, model: str) -> str:
        """The label of a model: `other` if no table contains it."""
        label = self._labels.get(model)
        return self._labels.put(model, self._label(model)) if label is None else label

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Adds outcomes."""
        groups: dict[tuple[str | int, ...], list[Outcome]] = {}
        for outcome in outcomes:
            groups.setdefault(KEY(outcome), []).append(outcome)
        for key, members in groups.items():
            group = self._group(Key._make(key))
            unfitted = group.key.endpoint in UNFITTED
            events = members if unfitted else [outcome for outcome in members if eventful(outcome)]
            traced = [outcome for outcome in members if outcome.trace_id] if self.exemplars else []
            for one in self._rows:
                _add(one, group, members, events)
                if traced and one.metric.exemplars:
                    _mark(one, group, traced)
            self.costs.add(group, members)
            if self.gen_ai is not None:
                self.gen_ai.add(group, members)

    def _group(self, key: Key) -> Group:
        asked = self._base(key, key.model)
        if asked.folded not in self._reported:
            self._reported.add(asked.folded)
            if self._shared.is_first(f"folded {asked.folded}"):
                self._folded(asked.folded)
        return Group(key, asked, self._base(key, key.model_sent) if key.model_sent not in ("", key.model) else asked)

    def _base(self, key: Key, model: str) -> Base:
        """The first labels for a model. It is `other` if there are `MAX_PAIRS` already."""
        endpoint, folded = key.endpoint, ""
        label = "" if endpoint in UNFITTED else self.label(model)
        if label not in ("", OTHER) and not self._admit(PAIR, (endpoint, label), MAX_PAIRS):
            label, folded = OTHER, "model"
        pair = endpoint, label
        if not self._by_caller:
            return Base(pair, pair, pair, folded)
        whole = (*pair, key.caller or OTHER)
        if whole[2] == OTHER or self._admits(whole):
            return Base(pair, whole, whole, folded)
        rest = endpoint, label and OTHER, whole[2]
        return Base(pair, (*pair, OTHER), rest if self._admits(rest) else (*rest[:2], OTHER), folded or "caller")

    def _admits(self, whole: tuple[str, str, str]) -> bool:
        """Whether an endpoint, model and caller are told apart."""
        if whole[1] in ("", OTHER):
            return self._admit(OF_CALLER, whole, MAX_CALLERS)
        return self._admit(WITH_CALLER, whole, MAX_WITH_CALLER)

    def _admit(self, kind: str, labels: Labels, most: int) -> bool:
        if self._agreed is not None and not self._agreed.allows(kind, labels, most):
            return False
        return self._shared.admit(kind, labels, most)


def _mark(series: Series, group: Group, traced: Iterable[Outcome]) -> None:
    """Makes outcomes with a trace the exemplars of their buckets."""
    metric, buffer = series.metric, series.buffer
    labels = None if metric.labels_of is None else metric.labels_of(group)
    if labels is None or metric.value is None or not isinstance(buffer, HistogramBuffer):
        return
    for outcome in traced:
        value = metric.value(outcome)
        if value is not None:
            buffer.mark(labels, value, outcome.trace_id)


def _add(series: Series, group: Group, outcomes: Sequence[Outcome], events: Sequence[Outcome]) -> None:
    """Adds the outcomes of one group to a row; `events` are the eventful ones."""
    metric, add = series.metric, series.buffer.add
    if not metric.selects(group):
        return
    base = metric.base_of(group)
    if base not in series.begun:
        series.begin(base)
    if metric.samples is not None:
        for outcome in events:
            for labels, value in metric.samples(outcome):
                add((*base, *labels), (value,))
    common = None if metric.labels_of is None else metric.labels_of(group)
    if common is not None:
        if metric.value is None:
            add((*base, *common), (len(outcomes),))
        else:
            values = map(metric.value, outcomes)
            if metric.buckets or metric.newest:
                add((*base, *common), [value for value in values if value is not None])
            elif total := sum(filter(None, values)):  # the sum of a counter's values needs no list of them
                add((*base, *common), (total,))
