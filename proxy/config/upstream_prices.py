"""The prices of a model at each upstream: those of the provider behind its host."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from proxy.config.price_hosts import provider_at
from proxy.config.upstreams import DEFAULT, UpstreamRow
from proxy.config.windows import Windows
from proxy.fit.money import Prices


def upstream_prices(
    windows: Windows, default: str, rows: Iterable[UpstreamRow]
) -> Callable[[str, str | None], Prices | None]:
    """`proxy.fit.money.PricesOf` by these windows, the URL of the default upstream and the rows of others."""
    taken = [(row.name, [pattern.strip().lower() for pattern in row.models]) for row in rows]
    providers = {row.name: row.provider or _provider(row.url) for row in rows}
    providers |= dict.fromkeys(("", DEFAULT), _provider(default))

    def home(model: str) -> str:
        """The upstream that requests for a model go to."""
        named = (name for name, globs in taken if any(fnmatch.fnmatchcase(model.lower(), glob) for glob in globs))
        return next(named, DEFAULT)

    def prices(model: str, upstream: str | None) -> Prices | None:
        return windows.prices(model, providers.get(home(model) if upstream is None else upstream, ""))

    return prices


def _provider(url: str) -> str:
    return provider_at(urlsplit(url).hostname or "")
