"""Scanning, counting and planning: what runs in a thread, and which counts are read from Redis."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from typing import Any

import pytest

from proxy.apis.openai_chat import API, request
from proxy.config.settings import read_settings
from proxy.model.limits import LearnedLimits
from proxy.model.plan import Ladder, Mode, Plan
from proxy.model.scan import PrefixDigest, Total
from proxy.request import planning as module
from proxy.request.context import RequestContext
from proxy.request.prepare import Planner
from proxy.request.stages import Counted, Descent, Received, Scanned
from proxy.request.totals import SHARED_BYTES, Part, Totals
from proxy.request.work import HEAVY_BYTES, INLINE_BYTES
from proxy.services import Services, build
from tests.e2e.services import body, sentence, talk
from tests.makers import assistant, tool_round, user

PLAIN = body(talk(20))


def services() -> Services:
    """A house whose upstream nobody asks."""
    made = build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), lambda outcome: None)
    made.gateway.default.planner.knowledge.offline = True
    return made


def received(sent: bytes, *headers: tuple[bytes, bytes]) -> RequestContext:
    """A request that has arrived."""
    return RequestContext(Received(API, Mode.FIT, "", headers, body=sent))


async def scan(planner: Planner, context: RequestContext) -> Scanned:
    """The scanned body."""
    return await planner.scanner.whole(context.received, planner.scanner.scan_now(context.received))


def planned(planner: Planner, sent: bytes, ladder: Ladder, *headers: tuple[bytes, bytes]) -> tuple[Scanned, Descent]:
    """A request that was planned."""
    context = received(sent, *headers)

    async def make() -> tuple[Scanned, Descent]:
        scanned = await scan(planner, context)
        return scanned, await planner.plans.build(context.received, scanned, ladder, context.record)

    return asyncio.run(make())


def plan_of(made: tuple[Scanned, Descent]) -> Plan:
    """The plan of a planned request."""
    return made[1].plan


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

        monkeypatch.setattr(holder, name, noted)

    for name in ("scan", "parse", "render"):
        noting(request, name)
    noting(module, "plan")
    return seen


def test_a_short_request_is_measured_at_once(places: dict[str, bool]) -> None:
    one = services()
    scanned, _ = planned(one.gateway.default.planner, PLAIN[: INLINE_BYTES * 2], one.rules.ladders["default"])
    assert len(scanned.plain) <= INLINE_BYTES and places == {"scan": True, "parse": True, "plan": True}


def test_what_is_new_and_long_is_counted_in_a_thread_and_then_known(places: dict[str, bool]) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    sent = body([*talk(40), {"role": "user", "content": sentence(0, 4_000)}], "gpt-4o")
    planned(planner, sent, ladder)
    assert places == {"scan": True, "parse": True, "plan": False}
    planned(planner, sent, ladder)
    assert places["plan"] is True


def test_a_long_request_is_cut_in_a_thread_however_well_it_is_known(places: dict[str, bool]) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    for _ in range(2):
        made = planned(planner, body(talk(400)), ladder)
        assert plan_of(made).changed and places["plan"] is False


def test_a_heavy_request_is_wholly_a_threads(places: dict[str, bool]) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    sent = body([{"role": "user", "content": sentence(i, 40)} for i in range(5_000)])
    assert len(sent) > HEAVY_BYTES
    for packed, headers in ((sent, ()), (gzip.compress(sent), ((b"content-encoding", b"gzip"),))):
        scanned, made = planned(planner, packed, ladder, *headers)
        asyncio.run(planner.plans.render(API, scanned, made))
        assert places == {"scan": False, "parse": False, "plan": False, "render": False}
        assert scanned.plain == sent


def test_large_tools_are_counted_in_a_thread_too(places: dict[str, bool]) -> None:
    one = services()
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": sentence(i, 200), "parameters": {}}}
        for i in range(20)
    ]
    planned(one.gateway.default.planner, body(talk(2), "gpt-4o", tools=tools), one.rules.ladders["default"])
    assert places["plan"] is False


def test_what_is_only_counted_has_no_step() -> None:
    one, context = services(), received(body(talk(400)))
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]

    async def count() -> Descent:
        scanned = await scan(planner, context)
        return await planner.plans.count(context.received, scanned, ladder, context.record)

    made = asyncio.run(count()).plan
    assert made is not None and made.notes == () and made.draft.excess > 0


# Shared counts.


def test_only_long_messages_are_asked_for_and_all_of_those_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    one = services()
    asked: list[int] = []
    stored: list[int] = []
    cache = one.cache

    async def fetch(pairs: list[tuple[bytes, bytes]]) -> None:
        asked.extend(len(material) for _, material in pairs)

    monkeypatch.setattr(type(cache), "fetch_counts", lambda self, pairs, tenant: fetch(pairs))
    monkeypatch.setattr(type(cache), "store_counts", lambda self, pairs: stored.extend(len(m) for _, m in pairs))
    said = [{"role": "user", "content": sentence(i, words)} for i, words in enumerate((20, 500, 30, 3_000))]
    planned(one.gateway.default.planner, body(said, "gpt-4o"), one.rules.ladders["default"])
    assert len(asked) == 2 and min(asked) >= SHARED_BYTES and asked == stored


def test_closing_ends_the_threads() -> None:
    one = services()
    one.pool.close()
    with pytest.raises(RuntimeError):
        planned(one.gateway.default.planner, body(talk(400)), one.rules.ladders["default"])


# Totals: what a request costs, without a plan.


def counted(planner: Planner, sent: bytes, ladder: Ladder) -> tuple[Scanned, Counted]:
    """A request that was counted without a plan."""
    context = received(sent)

    async def count() -> tuple[Scanned, Counted]:
        scanned = await scan(planner, context)
        return scanned, await planner.totals.count(context.received, scanned, ladder)

    return asyncio.run(count())


@pytest.mark.parametrize("turns", [2, 60, 400])
def test_a_total_is_what_a_plan_counts(turns: int) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    sent = body(talk(turns), "gpt-4o", max_tokens=50)
    found, before = counted(planner, sent, ladder)[1], plan_of(planned(planner, sent, ladder)).before
    assert found.total is not None
    assert (found.total.prompt, found.total.messages) == (before.prompt, len(talk(turns)))
    assert (found.total.quality, found.window.tokens) == (before.meter.quality, before.window.tokens)


def test_a_total_that_was_counted_is_known(places: dict[str, bool]) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    sent = body(talk(400), "gpt-4o")
    first = counted(planner, sent, ladder)[1]
    places.clear()
    assert counted(planner, sent, ladder)[1] == first and "parse" not in places
    again = asyncio.run(scan(planner, received(sent)))
    assert first.total is not None and planner.totals.known(API, again) == first.total
    other = asyncio.run(scan(planner, received(body(talk(398), "gpt-4o"))))
    assert planner.totals.known(API, other) is None


def test_a_heavy_total_is_not_looked_up_at_once(places: dict[str, bool]) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    sent = body([{"role": "user", "content": sentence(i, 4)} for i in range(20_000)], "gemini-2.5-flash")
    scanned, found = counted(planner, sent, ladder)
    assert found.total is not None and places == {"scan": False, "parse": False}
    assert planner.totals.known(API, scanned) is None


@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-3.5-turbo-0301", "claude-3-opus"])
def test_of_a_heavy_conversation_that_grew_what_is_new_is_read_at_once(
    places: dict[str, bool], model: str, led: bool
) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    said = [{"role": "user", "content": sentence(i, 150)} for i in range(1_500)]
    if led:
        said[0]["role"] = "system"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    counted(planner, body(said, model, tools=tools), ladder)
    for new in ([user("one more")], tool_round("c", "r"), [assistant("done"), user("and?")]):
        said += new
        places.clear()
        scanned, found = counted(planner, body(said, model, tools=tools), ladder)
        assert places == {"scan": True, "parse": True} and scanned.scan.new < 1_000
        _, other = counted(services().gateway.default.planner, body(said, model, tools=tools), ladder)
        assert found == other and found.total is not None and found.total.messages == len(said)
    places.clear()
    assert counted(planner, body(said, model, tools=tools), ladder)[1] == found and places == {"scan": True}


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-3.5-turbo-0301", "claude-3-opus"])
def test_of_another_question_to_the_same_text_only_the_question_is_counted(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    told = [{"role": "system", "content": "s"}, user(sentence(0, 2_000)), *tool_round("c", "r"), assistant("yes")]
    counted(planner, body([*told, user("first?")], model), ladder)
    starts: list[int] = []
    count = Totals.count

    def noting(self: Totals, marks: PrefixDigest | None, part: Part, learned: LearnedLimits) -> Total:
        starts.append(part.start)
        return count(self, marks, part, learned)

    monkeypatch.setattr(Totals, "count", noting)
    _, again = counted(planner, body([*told, user("second?")], model), ladder)
    assert starts == [len(told)]
    _, other = counted(services().gateway.default.planner, body([*told, user("second?")], model), ladder)
    assert again == other


def test_a_result_that_came_later_is_counted_with_its_call() -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    said = [user(sentence(0, 2_000)), *tool_round("c", "result")]
    counted(planner, body(said[:-1], "gpt-4o"), ladder)
    scanned, found = counted(planner, body(said, "gpt-4o"), ladder)
    _, other = counted(services().gateway.default.planner, body(said, "gpt-4o"), ladder)
    assert scanned.scan.known is not None and found == other


def test_a_new_text_in_a_known_conversation_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one = services()
    planner, ladder = one.gateway.default.planner, one.rules.ladders["default"]
    asked: list[int] = []

    async def fetch(pairs: list[tuple[bytes, bytes]]) -> None:
        asked.extend(len(material) for _, material in pairs)

    monkeypatch.setattr(type(one.cache), "fetch_counts", lambda self, pairs, tenant: fetch(pairs))
    said = [{"role": "user", "content": sentence(i, 500)} for i in range(20)]
    counted(planner, body(said, "gpt-4o"), ladder)
    assert len(asked) == 20
    asked.clear()
    counted(planner, body([*said, {"role": "user", "content": sentence(20, 3_000)}], "gpt-4o"), ladder)
    assert len(asked) == 1 and asked[0] > 10_000
