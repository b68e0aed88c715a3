"""Responses through the openai package for Node: the same through the proxy as straight, and past any window."""

from __future__ import annotations

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, Told
from tests.e2e.node_clients import fails_as, same_through_the_proxy, told_by, tried, worlds
from tests.e2e.world import World

SAME = (
    *("answer", "text", "stream", "helper", "reasoning", "tools", "parallel", "parsed", "continued", "counted"),
    *("raw", "side", "unauthorised", "limited", "failing", "orphan", "impatient", "closed", "aborted"),
)


here = worlds(SimulatorConfig(window=128_000, windows={"gpt-4": 8192}))
told = told_by("openai_responses.mjs")
test_it_is_the_same_through_the_proxy = same_through_the_proxy(*SAME)
test_a_failure_is_of_the_kind_that_programs_expect = fails_as(
    {
        "unauthorised": "AuthenticationError",
        "limited": "RateLimitError",
        "failing": "InternalServerError",
        "orphan": "BadRequestError",
        "unfit": "BadRequestError",
        "impatient": "APIConnectionTimeoutError",
        "aborted": "APIUserAbortError",
    }
)
test_a_failure_is_tried_as_often = tried({"unauthorised": 1, "limited": 3, "failing": 2, "orphan": 1})


def test_what_nothing_makes_fit_costs_nothing(here: World, told: tuple[Told, Told]) -> None:
    failures = [way["unfit"]["failure"] for way in told]
    assert [(f["status"], f["code"], f["param"]) for f in failures] == [(400, "context_length_exceeded", "input")] * 2
    for way in told:
        last = way["unfitstream"]["answer"][-1]
        assert last["type"] == "response.failed" and last["response"]["error"]["code"] == "context_length_exceeded"
    assert [len(here.seen(f"unfit {tag}")) for tag in ("straight", "through")] == [1, 0]
    assert not here.seen("unfitstream through")


@pytest.mark.parametrize("scenario", ["agent", "agentstream", "agentstored"])
def test_an_agent_runs_on_past_a_window_that_nobody_knew(here: World, told: tuple[Told, Told], scenario: str) -> None:
    """Straight it ends with the refusal; through the proxy with its answer, after all calls."""
    straight, through = (way[scenario] for way in told)
    assert straight.get("answer", {"status": "failed"})["status"] == "failed"
    assert through == {"answer": {"calls": CALLS, "status": "completed"}}
    assert len(here.seen(f"{scenario} through")[-1].json()["input"]) < 2 + 3 * CALLS


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(told: tuple[Told, Told]) -> None:
    """The event that tells of it is one of the stream; then the connection breaks off."""
    assert [way["broken"]["failure"]["kind"] for way in told] == ["TypeError"] * 2
