"""Reports what became of each request: to metrics, the log, the recording and the page, and to what learns from it.

No client waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.model.outcome import Outcome
from proxy.model.structs import replace
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.outcome_metrics import OTHER
from proxy.observe.recent import Recent
from proxy.observe.recording.recorded_lines import Request
from proxy.observe.recording.recorder import Recorder
from proxy.request.answers import AnswerLearning, outcome_of
from proxy.request.bugs import report_bug
from proxy.request.context import RequestContext
from proxy.request.prepare import Planner
from proxy.request.refusal_detection import RefusalDetector
from proxy.request.routes import Routes
from proxy.request.sent_prefixes import LEAST_TOKENS, SentPrefixes
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.headers import Header, value_of
from proxy.wire.trace_context import trace_context


@dataclass(slots=True)
class Reporter:
    """Reports the requests of one gateway. `tell` writes the log; `caller_header` is the header by which metrics know
    callers."""

    planner: Planner
    learning: AnswerLearning
    refusals: RefusalDetector
    metrics: Metrics
    tell: Callable[[Outcome], None]
    caller_header: str | None = None
    routes: Routes | None = None  # set if there are several upstreams
    recorder: Recorder | None = None
    recent: Recent | None = None  # set if there is a page
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    _finished: list[RequestContext] = field(default_factory=list)
    _sent_prefixes: SentPrefixes = field(default_factory=SentPrefixes)

    def with_rules(
        self, planner: Planner, learning: AnswerLearning, refusals: RefusalDetector, routes: Routes | None
    ) -> Reporter:
        """The reporter of further requests under other rules."""
        return replace(self, planner=planner, learning=learning, refusals=refusals, routes=routes, _finished=[])

    def finish(self, context: RequestContext) -> None:
        """Reports the outcome; waits for a count under way, but the client does not."""
        counting = context.record.counting
        if counting is None or counting.done():
            self._report_soon(context)
            return
        task = asyncio.create_task(self._report_late(context, counting))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _report_late(self, context: RequestContext, counting: asyncio.Task[None]) -> None:
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
        recorded: list[Request] = []
        for context in finished:
            self._report(context, recorded)
        if self.recorder is not None and recorded:
            self.recorder.add(recorded)

    def _report(self, context: RequestContext, recorded: list[Request]) -> None:
        """Reports one; what is recorded of it is added to the others."""
        try:
            context.close()
            outcome = outcome_of(context)
            if outcome.stream and outcome.status == 200 and outcome.usage is None:
                outcome = self._with_refusal(context, outcome)
            learning = self.learning if self.routes is None else self.routes.asked(context).learning
            if outcome.status == 200 and (outcome.prompt_sent or 0) >= LEAST_TOKENS:
                outcome = self._with_repeated(context, outcome)
            learning.learn(context, outcome)
            if self.metrics.reads_headers:
                outcome = self._labelled(context.received.headers, outcome)
            self.metrics.observe(outcome)
            self.tell(outcome)
            if self.recorder is not None:
                recorded.append(_recorded(self.recorder, context, outcome))
            if self.recent is not None:
                self.recent.add(outcome, None if context.figures is None else context.figures.shown)
        except Exception as error:
            report_bug(context.record, error)
        finally:
            if context.record.held and self.recorder is not None:
                self.recorder.drop(context.record.held)

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
        name, caller, trace_id = self.caller_header, "", ""
        if name is not None:
            value = (value_of(headers, name.encode()) or b"").decode("latin-1")
            caller = value if value in self.planner.rules.callers else OTHER
        if outcome.trace is not None:
            trace_id = outcome.trace.trace_id
        elif self.metrics.shows_traces and (found := trace_context(headers)) is not None and found.sampled:
            trace_id = found.trace_id
        return replace(outcome, caller=caller, trace_id=trace_id)

    def _with_repeated(self, context: RequestContext, outcome: Outcome) -> Outcome:
        """The outcome with how much of its prompt was sent before."""
        total, figures = context.total, context.figures
        both = None if figures is None else figures.prefixes
        if both is None and total is not None:
            planner = self.planner if self.routes is None else self.routes.home(context).planner
            asked = planner.totals.totals.prefixes(total)
            both = None if asked is None else (asked, None)
        if both is None:
            return outcome
        models = (outcome.model, outcome.model_sent)
        tenant = (figures.tenant if figures else b"") or tenant_of(context.received.headers)
        tenant += outcome.upstream.encode()  # whose prompt caches differ
        return replace(outcome, repeated=self._sent_prefixes.add(tenant, models, *both))

    def passed(self, headers: Sequence[Header], outcome: Outcome) -> None:
        """Reports a request that was passed through, with these headers."""
        if self.metrics.reads_headers:
            outcome = self._labelled(headers, outcome)
        self.metrics.observe(outcome)
        self.tell(outcome)
        if self.recorder is not None:
            self.recorder.add([Request(outcome, headers)])
        if self.recent is not None:
            self.recent.add(outcome)

    async def close(self) -> None:
        """Waits at most five seconds for counts under way, and reports the requests that have ended."""
        if self._late:
            await asyncio.wait(self._late, timeout=5)
        self.report_all()


def _recorded(recorder: Recorder, context: RequestContext, outcome: Outcome) -> Request:
    received, answered = context.received, context.answered
    if answered is None or answered.tap is None:
        return Request(outcome, received.headers, True, received.controls, received.body)
    held, context.record.held = context.record.held, b""  # of an answer that took its time
    recorder.drop(held)
    return Request(outcome, received.headers, True, received.controls, received.body or held, answered.tap.finish)
