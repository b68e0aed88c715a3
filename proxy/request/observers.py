"""Who is told of each request that has ended: metrics, the log, the recording and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from proxy.model.outcome import Outcome
from proxy.observe.recent import Recent
from proxy.observe.recording.recorded_lines import Request
from proxy.observe.recording.recorder import Recorder
from proxy.request.budgets import Budgets
from proxy.request.context import RequestContext
from proxy.upstreams.models_listing import Headers


class Ended(msgspec.Struct, frozen=True):
    """A request that has ended. `context`: if it was fitted."""

    outcome: Outcome
    headers: Headers
    context: RequestContext | None = None


class Observer(Protocol):
    """Is told of requests. None can change what a client gets; if one fails, the others are told all the same."""

    def ended(self, ended: Ended) -> None:
        """A request has ended."""

    def keep(self, context: RequestContext) -> None:
        """The content of a request is about to be dropped, while its answer is still under way."""

    def drop(self, context: RequestContext) -> None:
        """What was kept of a request is not needed any more."""


class Silent:
    """An observer that keeps nothing."""

    def keep(self, context: RequestContext) -> None:
        """See `Observer.keep`."""

    def drop(self, context: RequestContext) -> None:
        """See `Observer.drop`."""


@dataclass(frozen=True, slots=True)
class Outcomes(Silent):
    """Tells outcomes: metrics or the log."""

    tell: Callable[[Outcome], None]

    def ended(self, ended: Ended) -> None:
        """See `Observer.ended`."""
        self.tell(ended.outcome)


@dataclass(frozen=True, slots=True)
class Settling(Silent):
    """Settles what requests hold of budgets."""

    budgets: Budgets

    def ended(self, ended: Ended) -> None:
        """See `Observer.ended`."""
        context = ended.context
        if context is not None and context.hold is not None:
            answered = context.answered
            came, failed = (0, False) if answered is None else (answered.came, answered.failed)
            self.budgets.settle(context.hold, ended.outcome, came, failed)


@dataclass(frozen=True, slots=True)
class OnPage(Silent):
    """Lists requests on the page."""

    recent: Recent

    def ended(self, ended: Ended) -> None:
        """See `Observer.ended`."""
        context = ended.context
        self.recent.add(ended.outcome, None if context is None or context.figures is None else context.figures.shown)


@dataclass(frozen=True, slots=True)
class Recording:
    """Writes requests into the recording."""

    recorder: Recorder

    def ended(self, ended: Ended) -> None:
        """See `Observer.ended`."""
        self.recorder.add([self._request(ended.outcome, ended.headers, ended.context)])

    def _request(self, outcome: Outcome, headers: Headers, context: RequestContext | None) -> Request:
        if context is None:
            return Request(outcome, headers)
        received, answered = context.received, context.answered
        if answered is None or answered.tap is None:
            return Request(outcome, headers, True, received.controls.own, received.body)
        held = context.record.held
        self.drop(context)  # of an answer that took its time
        return Request(outcome, headers, True, received.controls.own, received.body or held, answered.tap.finish)

    def keep(self, context: RequestContext) -> None:
        """See `Observer.keep`."""
        context.record.held = self.recorder.hold(context.received.body)

    def drop(self, context: RequestContext) -> None:
        """See `Observer.drop`."""
        held, context.record.held = context.record.held, b""
        if held:
            self.recorder.drop(held)
