"""Reports what became of each request: to metrics, the log, the recording and the page, and to what learns from it.

No client waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from proxy.model.outcome import Outcome, Repeated
from proxy.model.structs import replace
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.groups import OTHER
from proxy.request.bugs import report_bug
from proxy.request.context import RequestContext
from proxy.request.observers import Ended, Observer
from proxy.request.refusal_detection import RefusalDetector
from proxy.request.sent_prefixes import LEAST_TOKENS, SentPrefixes
from proxy.request.stages import Planned, Record
from proxy.request.totals import Totals
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.headers import Header, value_of
from proxy.wire.trace_context import trace_context


@dataclass(slots=True)
class Reporter:
    """Reports the requests of one gateway to its `observers`. `callers` are the values of `caller_header` by which
    metrics know callers that have no rule."""

    refusals: RefusalDetector
    metrics: Metrics
    observers: Sequence[Observer]
    callers: Collection[str] = ()
    caller_header: str | None = None
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    _finished: list[RequestContext] = field(default_factory=list)
    _sent_prefixes: SentPrefixes = field(default_factory=SentPrefixes)

    def with_rules(self, refusals: RefusalDetector, callers: Collection[str]) -> Reporter:
        """The reporter of further requests under other rules."""
        return replace(self, refusals=refusals, callers=callers, _finished=[])

    def keep(self, context: RequestContext) -> None:
        """The content of a request is about to be dropped, while its answer is still under way."""
        for observer in self.observers:
            try:
                observer.keep(context)
            except Exception as error:  # the client waits for its answer
                report_bug(context.record, error)

    def finish(self, context: RequestContext) -> None:
        """Reports the outcome; waits for a count under way, but the client does not."""
        counting = context.counting
        if counting is None or counting.done():
            self._report_soon(context)
            return
        task = asyncio.create_task(self._report_late(context, counting))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _report_late(self, context: RequestContext, counting: asyncio.Task[Planned]) -> None:
        await asyncio.wait([counting])
        self._report_soon(context)

    def _report_soon(self, context: RequestContext) -> None:
        """Reports when the loop has written the answer, together with other requests that end now: one after the other
        they cost half of what they cost in between."""
        if not self._finished:
            asyncio.get_running_loop().call_soon(self.report_all)
        self._finished.append(context)

    def report_all(self) -> None:
        """Reports the requests that have ended."""
        finished, self._finished = self._finished, []
        for context in finished:
            try:
                context.close()
                self._tell(self._learned(context), context.received.headers, context)
            except Exception as error:
                report_bug(context.record, error)
            finally:
                if context.hold is not None:
                    context.hold.settle(context.hold.held)  # if nobody could say what was used
                if context.record.held:
                    for observer in self.observers:
                        observer.drop(context)

    def _learned(self, context: RequestContext) -> Outcome:
        """The outcome of a request, from which its upstream's knowledge learns."""
        outcome, backend = context.final(), context.asked or context.home
        if outcome.stream and outcome.status == 200 and outcome.usage is None:
            outcome = self._with_refusal(context, outcome)
        if outcome.status == 200 and (outcome.prompt_sent or 0) >= LEAST_TOKENS:
            outcome = self._with_repeated(context, outcome)
        if backend is not None:
            figures = context.figures or context.figures_now()
            backend.learning.learn(context.received, context.answered, figures, outcome)
        return outcome

    def _tell(self, outcome: Outcome, headers: Headers, context: RequestContext | None = None) -> None:
        """Tells all observers, also where one fails."""
        if self.metrics.reads_headers:
            outcome = self._labelled(headers, outcome)
        ended = Ended(outcome, headers, context)
        for observer in self.observers:
            try:
                observer.ended(ended)
            except Exception as error:
                report_bug(Record() if context is None else context.record, error)

    def _with_refusal(self, context: RequestContext, outcome: Outcome) -> Outcome:
        """The outcome with the refusal that a stream turned out to be too late to be healed, if it is one."""
        tap = None if context.answered is None else context.answered.tap
        refusal = None if tap is None else self.refusals.in_relayed(tap)
        if refusal is None:
            return outcome
        self.refusals.remember(context.received.headers, outcome.model)
        return replace(outcome, result="refused", refusals=(*outcome.refusals, refusal.rule))

    def _labelled(self, headers: Sequence[Header], outcome: Outcome) -> Outcome:
        """The outcome with its caller and the id of its trace, where metrics show them."""
        name, caller, trace_id = self.caller_header, outcome.caller, ""
        if name is not None and not caller:
            value = (value_of(headers, name.encode()) or b"").decode("latin-1")
            caller = value if value in self.callers else OTHER
        if outcome.trace is not None:
            trace_id = outcome.trace.trace_id
        elif self.metrics.shows_traces and (found := trace_context(headers)) is not None and found.sampled:
            trace_id = found.trace_id
        if not trace_id and caller == outcome.caller:  # as mostly: a copy of so many fields takes a microsecond
            return outcome
        return replace(outcome, caller=caller, trace_id=trace_id)

    def _with_repeated(self, context: RequestContext, outcome: Outcome) -> Outcome:
        """The outcome with how much of its prompt was sent before."""
        figures, home = context.figures, context.home
        both = None if figures is None else figures.prefixes
        if both is None and figures is not None and figures.total is not None and home is not None:
            asked = home.planner.totals.totals.prefixes(figures.total)
            both = None if asked is None else (asked, None)
        if both is None:
            return outcome
        models = (outcome.model, outcome.model_sent)
        tenant = (figures.tenant if figures else b"") or tenant_of(context.received.headers)
        tenant += outcome.upstream.encode()  # whose prompt caches differ
        return replace(outcome, repeated=self._sent_prefixes.add(tenant, models, *both))

    def expected(self, planned: Planned, model: str, upstream: str, totals: Totals) -> Repeated | None:
        """How much of what is about to be sent for a model to an upstream was sent there before."""
        both, total = planned.prefixes, planned.total
        if both is None:
            short = total is None or total.prompt < LEAST_TOKENS
            asked = None if total is None or short else totals.prefixes(total)
            both = None if asked is None else (asked, None)
        if both is None:
            return None
        scanned, headers = planned.scanned, planned.received.headers
        tenant = (b"" if scanned is None else scanned.tenant) or tenant_of(headers)
        return self._sent_prefixes.expected(tenant + upstream.encode(), model, both[1] or both[0])

    def passed(self, headers: Headers, outcome: Outcome) -> None:
        """Reports a request that was passed through, with these headers."""
        self._tell(outcome, headers)

    async def close(self) -> None:
        """Waits at most five seconds for counts under way, and reports the requests that have ended."""
        if self._late:
            await asyncio.wait(self._late, timeout=5)
        self.report_all()
