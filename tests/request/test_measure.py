"""Measuring bodies: what is done in a thread, what is asked of the shared counts."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from typing import Any

import pytest

from proxy.apis.openai_chat import API, ChatCompletions
from proxy.app import Services, build
from proxy.config.settings import read_settings
from proxy.model.limits import LearnedLimits
from proxy.model.plan import Ladder, Mode, Plan
from proxy.model.scan import PrefixDigest, Total
from proxy.request import measure as module
from proxy.request.context import RequestContext
from proxy.request.measure import HEAVY_BYTES, INLINE_BYTES, SHARED_BYTES, Measuring
from proxy.request.totals import Part, Totals
from tests.e2e.services import body, sentence, talk
from tests.makers import assistant, tool_round, user

PLAIN = body(talk(20))


def services() -> Services:
    """A house whose upstream nobody asks."""
    made = build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), lambda outcome: None)
    made.gateway.planner.knowledge.offline = True
    return made


def measured(measuring: Measuring, sent: bytes, ladder: Ladder, *headers: tuple[bytes, bytes]) -> RequestContext:
    """A visit that was measured."""
    context = RequestContext(API, Mode.FIT, body=sent)

    async def measure() -> None:
        await measuring.look(context, headers)
        await measuring.measure(context, headers, ladder)

    asyncio.run(measure())
    return context


# Threads.


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Which work was done in the event loop's own thread."""
    seen: dict[str, bool] = {}

    def noting(holder: Any, name: str) -> None:
        work: Callable[..., Any] = getattr(holder, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            seen[name] = threading.current_thread() is threading.main_thread()
            return work(*args, **kwargs)

        monkeypatch.setattr(holder, name, noted if holder is module else staticmethod(noted))

    for name in ("scan", "parse", "render"):
        noting(ChatCompletions, name)
    noting(module, "plan")
    return seen


def test_a_short_request_is_measured_at_once(places: dict[str, bool]) -> None:
    one = services()
    context = measured(one.gateway.planner.measuring, PLAIN[: INLINE_BYTES * 2], one.rules.ladders["default"])
    assert len(context.plain) <= INLINE_BYTES and places == {"scan": True, "parse": True, "plan": True}


def test_what_is_new_and_long_is_counted_in_a_thread_and_then_known(places: dict[str, bool]) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    sent = body([*talk(40), {"role": "user", "content": sentence(0, 4_000)}], "gpt-4o")
    measured(measuring, sent, ladder)
    assert places == {"scan": True, "parse": True, "plan": False}
    measured(measuring, sent, ladder)
    assert places["plan"] is True


def test_a_long_request_is_cut_in_a_thread_however_well_it_is_known(places: dict[str, bool]) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    for _ in range(2):
        context = measured(measuring, body(talk(400)), ladder)
        assert context.plan is not None and context.plan.changed and places["plan"] is False


def test_a_heavy_request_is_wholly_a_threads(places: dict[str, bool]) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    sent = body([{"role": "user", "content": sentence(i, 4)} for i in range(20_000)])
    assert len(sent) > HEAVY_BYTES
    for packed, headers in ((sent, ()), (gzip.compress(sent), ((b"content-encoding", b"gzip"),))):
        context = measured(measuring, packed, ladder, *headers)
        assert context.plan is not None
        asyncio.run(measuring.render(context, context.plan))
        assert places == {"scan": False, "parse": False, "plan": False, "render": False}
        assert context.plain == sent


def test_large_tools_are_counted_in_a_thread_too(places: dict[str, bool]) -> None:
    one = services()
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": sentence(i, 200), "parameters": {}}}
        for i in range(20)
    ]
    measured(one.gateway.planner.measuring, body(talk(2), "gpt-4o", tools=tools), one.rules.ladders["default"])
    assert places["plan"] is False


def test_what_is_only_counted_has_no_step() -> None:
    one = services()
    context = RequestContext(API, Mode.FIT, body=body(talk(400)))

    async def counted() -> Plan:
        await one.gateway.planner.measuring.look(context, ())
        return await one.gateway.planner.measuring.count(context, (), one.rules.ladders["default"])

    made = asyncio.run(counted())
    assert made.notes == () and made.draft.excess > 0 and context.plan is made


# Shared counts.


def test_only_long_messages_are_asked_for_and_all_of_those_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    one = services()
    asked: list[int] = []
    stored: list[int] = []
    cache = one.cache

    async def fetch(pairs: list[tuple[bytes, bytes]]) -> None:
        asked.extend(len(material) for _, material in pairs)

    monkeypatch.setattr(type(cache), "fetch_counts", lambda self, pairs: fetch(pairs))
    monkeypatch.setattr(type(cache), "store_counts", lambda self, pairs: stored.extend(len(m) for _, m in pairs))
    said = [{"role": "user", "content": sentence(i, words)} for i, words in enumerate((20, 500, 30, 3_000))]
    measured(one.gateway.planner.measuring, body(said, "gpt-4o"), one.rules.ladders["default"])
    assert len(asked) == 2 and min(asked) >= SHARED_BYTES and asked == stored


def test_closing_ends_the_threads() -> None:
    one = services()
    one.gateway.planner.measuring.pool.close()
    with pytest.raises(RuntimeError):
        measured(one.gateway.planner.measuring, body(talk(400)), one.rules.ladders["default"])


# Totals: what a request costs, without a plan.


def totalled(measuring: Measuring, sent: bytes, ladder: Ladder) -> RequestContext:
    """A visit whose total was counted."""
    context = RequestContext(API, Mode.FIT, body=sent)

    async def count() -> None:
        scan = await measuring.look(context, ())
        await measuring.total(context, scan, ladder, ())

    asyncio.run(count())
    return context


@pytest.mark.parametrize("turns", [2, 60, 400])
def test_a_total_is_what_a_plan_counts(turns: int) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    sent = body(talk(turns), "gpt-4o", max_tokens=50)
    context, planned = totalled(measuring, sent, ladder), measured(measuring, sent, ladder)
    assert context.total is not None and context.window is not None and planned.plan is not None
    before = planned.plan.before
    assert (context.total.prompt, context.total.messages) == (before.prompt, len(talk(turns)))
    assert (context.total.quality, context.window.tokens) == (before.meter.quality, before.window.tokens)


def test_a_total_that_was_counted_is_known(places: dict[str, bool]) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    sent = body(talk(400), "gpt-4o")
    context = totalled(measuring, sent, ladder)
    places.clear()
    assert totalled(measuring, sent, ladder).total == context.total and "parse" not in places
    again = RequestContext(API, Mode.FIT, body=sent)
    scan = asyncio.run(measuring.look(again, ()))
    assert measuring.known(again, scan, ladder) and again.total == context.total
    other = RequestContext(API, Mode.FIT, body=body(talk(398), "gpt-4o"))
    scan = asyncio.run(measuring.look(other, ()))
    assert not measuring.known(other, scan, ladder) and other.total is None


def test_a_heavy_total_is_not_looked_up_at_once(places: dict[str, bool]) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    sent = body([{"role": "user", "content": sentence(i, 4)} for i in range(20_000)], "gemini-2.5-flash")
    context = totalled(measuring, sent, ladder)
    assert context.total is not None and places == {"scan": False, "parse": False}
    assert context.scan is not None and not measuring.known(context, context.scan, ladder)


@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-3.5-turbo-0301", "claude-3-opus"])
def test_of_a_heavy_conversation_that_grew_what_is_new_is_read_at_once(
    places: dict[str, bool], model: str, led: bool
) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    said = [{"role": "user", "content": sentence(i, 4)} for i in range(20_000)]
    if led:
        said[0]["role"] = "system"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    totalled(measuring, body(said, model, tools=tools), ladder)
    for new in ([user("one more")], tool_round("c", "r"), [assistant("done"), user("and?")]):
        said += new
        places.clear()
        prefixes = totalled(measuring, body(said, model, tools=tools), ladder)
        assert places == {"scan": True, "parse": True}
        assert prefixes.scan is not None and prefixes.scan.new < 1_000
        other = totalled(services().gateway.planner.measuring, body(said, model, tools=tools), ladder)
        assert prefixes.total == other.total and prefixes.total is not None and prefixes.total.messages == len(said)
    places.clear()
    again = totalled(measuring, body(said, model, tools=tools), ladder)
    assert again.total == prefixes.total and places == {"scan": True}


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-3.5-turbo-0301", "claude-3-opus"])
def test_of_another_question_to_the_same_text_only_the_question_is_counted(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    told = [{"role": "system", "content": "s"}, user(sentence(0, 2_000)), *tool_round("c", "r"), assistant("yes")]
    totalled(measuring, body([*told, user("first?")], model), ladder)
    starts: list[int] = []
    count = Totals.count

    def noting(self: Totals, marks: PrefixDigest | None, part: Part, learned: LearnedLimits) -> Total:
        starts.append(part.start)
        return count(self, marks, part, learned)

    monkeypatch.setattr(Totals, "count", noting)
    again = totalled(measuring, body([*told, user("second?")], model), ladder)
    assert starts == [len(told)]
    other = totalled(services().gateway.planner.measuring, body([*told, user("second?")], model), ladder)
    assert again.total == other.total


def test_a_result_that_came_later_is_counted_with_its_call() -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    said = [user(sentence(0, 2_000)), *tool_round("c", "result")]
    totalled(measuring, body(said[:-1], "gpt-4o"), ladder)
    prefixes = totalled(measuring, body(said, "gpt-4o"), ladder)
    other = totalled(services().gateway.planner.measuring, body(said, "gpt-4o"), ladder)
    assert prefixes.scan is not None and prefixes.scan.known is not None and prefixes.total == other.total


def test_a_new_text_in_a_known_conversation_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one = services()
    measuring, ladder = one.gateway.planner.measuring, one.rules.ladders["default"]
    asked: list[int] = []

    async def fetch(pairs: list[tuple[bytes, bytes]]) -> None:
        asked.extend(len(material) for _, material in pairs)

    monkeypatch.setattr(type(one.cache), "fetch_counts", lambda self, pairs: fetch(pairs))
    said = [{"role": "user", "content": sentence(i, 500)} for i in range(20)]
    totalled(measuring, body(said, "gpt-4o"), ladder)
    assert len(asked) == 20
    asked.clear()
    totalled(measuring, body([*said, {"role": "user", "content": sentence(20, 3_000)}], "gpt-4o"), ladder)
    assert len(asked) == 1 and asked[0] > 10_000
