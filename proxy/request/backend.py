"""One upstream as requests see it: what sends to it, plans for it, and learns from its answers."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config.upstreams import UpstreamRow
from proxy.request.answers import AnswerLearning
from proxy.request.facts import Knowledge
from proxy.request.heal import Healer
from proxy.request.prepare import Planner
from proxy.upstreams.routing import Route
from proxy.upstreams.upstream import Sender


@dataclass(frozen=True, slots=True)
class Backend:
    """One upstream, with what plans for it, what is known of its models and what learns from its answers. `route` is
    None for the default upstream. `name`: empty if there is no other one."""

    name: str
    upstream: Sender
    knowledge: Knowledge
    planner: Planner
    healer: Healer
    learning: AnswerLearning
    route: Route | None = None

    @property
    def row(self) -> UpstreamRow | None:
        """The row of upstreams.toml."""
        return None if self.route is None else self.route.row

    def speaks(self, path: str) -> bool:
        """Whether it has the API of a path. The default upstream is asked."""
        return self.route is None or self.route.speaks(path)
