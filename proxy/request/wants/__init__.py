"""Knowledge that steps request with a `Want`: one module for each kind, discovered in this folder.

A module defines `WANT`, a `WantKind`. The proxy's only other reference to a kind is the step that returns the `Want`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from proxy.apis import USUAL
from proxy.cache.cache import Cache
from proxy.config.rules import Rules
from proxy.config.settings import Settings
from proxy.model.lenient_json import Json
from proxy.model.plan import Want
from proxy.request.facts import Knowledge
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.internal_client import InternalClient
from proxy.upstreams.models_listing import Headers


class Provider(Protocol):
    """Fulfils the wants of one kind."""

    async def fulfil(self, want: Want, headers: Headers, ask: bool = True, spent: CallCost | None = None) -> Json:
        """The knowledge that a step wants, on behalf of the client with these headers; an empty value if it cannot be
        had in time. Without `ask` it makes no call. It adds the cost of its calls to `spent`. Never raises."""

    def with_rules(self, rules: Rules, knowledge: Knowledge) -> Provider:
        """The provider under other rules, with the calls under way and what is cached."""

    async def close(self) -> None:
        """Cancels the calls under way."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a provider is made of; `client` makes its calls, to an upstream that is a server of the kind `api`."""

    settings: Settings
    rules: Rules
    knowledge: Knowledge
    cache: Cache
    client: InternalClient
    api: str = USUAL.name


@dataclass(frozen=True, slots=True)
class WantKind:
    """How wants of one kind are fulfilled.

    `limits` bounds its calls: those under way, in all and of one caller, and those that wait, in all and of one caller.
    `upstream` reads the URL and the key of its own upstream from the settings; None twice: the clients' upstream.
    """

    kind: str
    limits: tuple[int, int, int, int]
    upstream: Callable[[Settings], tuple[str | None, str | None]]
    create: Callable[[Parts], Provider]


def want_kinds() -> Mapping[str, WantKind]:
    """The kinds of all modules in this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[WantKind] = [importlib.import_module(f"{__name__}.{name}").WANT for name in names]
    return {want.kind: want for want in found}
