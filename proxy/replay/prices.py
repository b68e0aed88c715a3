"""The prices of recorded requests: those of the provider that each was sent to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.config.settings import USUAL_UPSTREAM, Settings
from proxy.config.upstream_prices import upstream_prices
from proxy.config.upstreams import DEFAULT, UpstreamRow
from proxy.config.windows import Windows
from proxy.fit.money import Prices, PricesOf
from proxy.replay.recorded import Recorded

PricesAt = Callable[[Recorded], PricesOf]  # what a request's model costs where it was sent
MAX_UPSTREAMS = 100  # without a row that are told apart


def no_prices(recorded: Recorded) -> PricesOf:
    """No model has a price."""
    return lambda model, upstream: None


@dataclass(slots=True)
class RecordedPrices:
    """`PricesAt` by the rules and the upstream of these settings. `unknown`: the names of upstreams in the recording
    that have no row: their models have the prices of their vendors.

    Where the settings name no upstream, the default one says nothing of who answered: a model has the price of its
    vendor.
    """

    windows: Windows
    settings: Settings
    rows: Sequence[UpstreamRow]
    unknown: dict[str, None] = field(default_factory=dict)
    _by_upstream: PricesOf = field(init=False)
    _names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        said = "" if self.settings.upstream == USUAL_UPSTREAM else self.settings.upstream
        self._by_upstream = upstream_prices(self.windows, said, self.rows)
        self._names = frozenset({"", DEFAULT, *(row.name for row in self.rows)})

    def __call__(self, recorded: Recorded) -> PricesOf:
        """The prices of a request. For an upstream of None, as everywhere, they are those of the one that requests for
        the model go to now."""
        if not recorded.provider:
            if recorded.upstream is not None and recorded.upstream not in self._names:
                self._add_unknown(recorded.upstream)
            return self._by_upstream

        def prices(model: str, upstream: str | None) -> Prices | None:
            if upstream is None:
                return self._by_upstream(model, None)
            return self.windows.prices(model, recorded.provider)

        return prices

    def _add_unknown(self, name: str) -> None:
        if len(self.unknown) < MAX_UPSTREAMS:
            self.unknown[name] = None
