"""Adds outcomes up under the labels of each metric. It knows no library and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from proxy.fit.money import PricesOf
from proxy.model.bounded import Bounded
from proxy.model.outcome import UNFITTED, Outcome
from proxy.observe.metrics.buffers import HistogramBuffer, Labels
from proxy.observe.metrics.costs import Costs, no_prices
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.outcome_metrics import BASE, CALLER, KEY, METRICS, OTHER, Group, Key, eventful
from proxy.observe.metrics.series import Series

MAX_MODEL_LABELS = 100  # tables contain thousands of models, and clients choose among them
MAX_BASES = 200  # sets of values of `BASE` that are told apart: each has some hundred series
LABEL_CACHE_SIZE = 1_000  # entries: names as clients write them

LabelOf = Callable[[str], str]
Known = Mapping[Labels, Sequence[Labels]]  # values that start at 0, by the names of a row's labels
NONE_KNOWN: Known = MappingProxyType({})


@dataclass(slots=True)
class ModelLabels:
    """The labels of models, a bounded number: `label` returns that of a name as a client wrote it."""

    label: LabelOf
    _found: Bounded[str, str] = field(default_factory=lambda: Bounded(LABEL_CACHE_SIZE))
    _models: set[str] = field(default_factory=set)

    def of(self, model: str) -> str:
        """The label of a model: `other` if no table contains it, or if there are `MAX_MODEL_LABELS` labels already."""
        label = self._found.get(model)
        if label is None:
            label = self.label(model)
            if label not in self._models and len(self._models) >= MAX_MODEL_LABELS:
                label = OTHER
            self._models.add(label)
            self._found.put(model, label)
        return label

    def relabelled(self, label: LabelOf) -> ModelLabels:
        """The labels by another function; those that there are count towards the bound."""
        return ModelLabels(label, _models=self._models)


class Aggregator:
    """The values of all rows of `METRICS`.

    `label` returns the label of a model's name, `prices` its prices. Rows of each of `endpoints` (names of APIs) start
    at 0. `by_caller`: the label `CALLER` follows those of `BASE`. `gen_ai`: a second family of metrics.
    """

    def __init__(
        self,
        label: LabelOf,
        endpoints: Iterable[str] = (),
        known: Known = NONE_KNOWN,
        prices: PricesOf = no_prices,
        by_caller: bool = False,
        gen_ai: GenAi | None = None,
    ) -> None:
        self.models = ModelLabels(label)
        self.base_labels = (*BASE, CALLER) if by_caller else BASE
        self.exemplars = False  # whether outcomes with a trace become exemplars
        self._by_caller = by_caller
        self.costs = Costs(prices)
        self._rows = [Series.of(metric, known.get(metric.labels, ())) for metric in METRICS]
        self.gen_ai = gen_ai
        self.series = [*self._rows, *self.costs.series.values(), *(gen_ai.series.values() if gen_ai else ())]
        self._bases: set[Labels] = set()
        caller = (OTHER,) if by_caller else ()
        bases = [(endpoint, OTHER, *caller) for endpoint in endpoints]
        for base in [*bases, *((endpoint, "", *caller) for endpoint in sorted(UNFITTED))]:
            self._bases.add(base)
            for one in self.series:
                one.begin(base if one.metric.base else ())

    def use_rules(self, label: LabelOf, known: Known, prices: PricesOf) -> None:
        """Labels and prices further outcomes by other rules; `known` are values that start at 0 then."""
        self.models = self.models.relabelled(label)
        self.costs.prices = prices
        for one in self._rows:
            one.know(known.get(one.metric.labels, ()))

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Adds outcomes."""
        groups: dict[tuple[str, ...], list[Outcome]] = {}
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
        return Group(key, asked, self._base(key, key.model_sent) if key.model_sent not in ("", key.model) else asked)

    def _base(self, key: Key, model: str) -> Labels:
        """The values of `BASE` (and `CALLER`). Model and caller are `other` if there are `MAX_BASES` already."""
        unfitted = key.endpoint in UNFITTED
        caller = (key.caller or OTHER,) if self._by_caller else ()
        base = (key.endpoint, "" if unfitted else self.models.of(model), *caller)
        if base not in self._bases and len(self._bases) >= MAX_BASES:
            base = (key.endpoint, "" if unfitted else OTHER, *((OTHER,) if caller else ()))
        self._bases.add(base)
        return base


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
    base = group.sent if metric.base == "sent" else group.asked if metric.base else ()
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
