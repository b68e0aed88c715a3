"""What is told of requests that have ended: when, in which order, to whom, and with which labels."""

from __future__ import annotations

import asyncio

import pytest

from proxy.apis.openai_chat import API
from proxy.config.settings import read_settings
from proxy.model.outcome import PASSTHROUGH, Outcome
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.request.context import RequestContext
from proxy.request.observers import Outcomes
from proxy.request.reporting import Reporter
from proxy.request.stages import Answered, Planned, Received, Record
from proxy.services import build


def reporter(told: list[Outcome]) -> Reporter:
    """The reporter of a gateway; its outcomes go to a list."""
    return build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), told.append).gateway.reporter


def ended(result: str, counting: asyncio.Task[Planned] | None = None) -> RequestContext:
    """A request that has ended."""
    received = Received(API, Mode.FIT, "/v1/chat/completions", [])
    return RequestContext(received, answered=Answered(200), record=Record(result), counting=counting)


def test_requests_that_end_now_are_told_together_once_the_loop_has_written_their_answers() -> None:
    told: list[Outcome] = []

    async def check() -> None:
        one = reporter(told)
        one.finish(ended("passed"))
        one.finish(ended("fitted"))
        assert told == []
        await asyncio.sleep(0)
        assert [outcome.result for outcome in told] == ["passed", "fitted"]

    asyncio.run(check())


def test_a_request_is_told_when_it_is_counted_and_at_the_end_if_it_is_not() -> None:
    told: list[Outcome] = []

    async def check() -> None:
        one, counted = reporter(told), asyncio.Event()

        async def count() -> Planned:
            await counted.wait()
            return Planned(Received(API, Mode.FIT))

        one.finish(ended("passed", asyncio.create_task(count())))
        await asyncio.sleep(0.01)
        assert told == []
        counted.set()
        await one.close()
        assert [outcome.result for outcome in told] == ["passed"]

    asyncio.run(check())


def test_a_bug_while_one_request_is_told_keeps_no_other_from_being_told(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        if outcome.result == "fitted":
            raise RuntimeError("canary-3141")
        told.append(outcome)

    async def check() -> None:
        one = replace(reporter([]), observers=[Outcomes(tell)])
        for result in ("passed", "fitted", "healed"):
            one.finish(ended(result))
        await one.close()

    asyncio.run(check())
    assert [outcome.result for outcome in told] == ["passed", "healed"]
    written = capfd.readouterr().err
    assert "RuntimeError" in written and "canary" not in written


@pytest.mark.parametrize(("sent", "caller"), [(b"search", "search"), (b"nobody-names-it", "other"), (None, "other")])
def test_only_callers_that_the_rules_name_are_labels(sent: bytes | None, caller: str) -> None:
    told: list[Outcome] = []
    one = reporter(told)
    one.metrics.reads_headers = True
    named = replace(one, callers=frozenset({"search"}), caller_header="x-team")
    headers = [] if sent is None else [(b"x-team", sent)]
    named.passed(headers, Outcome(PASSTHROUGH, "passed", 200))
    assert [outcome.caller for outcome in told] == [caller]


def test_requests_under_other_rules_are_told_apart_from_those_before() -> None:
    told: list[Outcome] = []

    async def check() -> None:
        old = reporter(told)
        old.finish(ended("passed"))
        new = old.with_rules(old.refusals, ())
        await new.close()
        assert told == []
        await asyncio.sleep(0)
        assert [outcome.result for outcome in told] == ["passed"]

    asyncio.run(check())


def test_an_observer_that_cannot_keep_what_it_wants_costs_no_client_its_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kept: list[RequestContext] = []

    class Broken(Outcomes):
        def keep(self, context: RequestContext) -> None:
            raise RuntimeError("canary-2718")

    class Keeping(Outcomes):
        def keep(self, context: RequestContext) -> None:
            kept.append(context)

    context = ended("passed")
    replace(reporter([]), observers=[Broken(print), Keeping(print)]).keep(context)
    assert kept == [context]
    written = capfd.readouterr().err
    assert "RuntimeError" in written and "canary" not in written
