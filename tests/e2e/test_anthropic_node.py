"""The @anthropic-ai/sdk package for Node: the same through the proxy as straight, and past any window."""

from __future__ import annotations

import json

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, RESULTS, Told
from tests.e2e.node_clients import fails_as, same_through_the_proxy, told_by, tried, worlds
from tests.e2e.world import World

SAME = (
    *("answer", "stream", "helper", "thinking", "tools", "parallel", "parsed", "counted", "raw", "side", "threads"),
    *("unauthorised", "limited", "failing", "orphan", "impatient", "closed", "aborted"),
)


here = worlds(SimulatorConfig(window=200_000))
told = told_by("anthropic.mjs")
test_it_is_the_same_through_the_proxy = same_through_the_proxy(*SAME)
test_a_failure_is_of_the_kind_that_programs_expect = fails_as(
    {
        "unauthorised": "AuthenticationError",
        "limited": "RateLimitError",
        "failing": "OverloadedError",
        "orphan": "BadRequestError",
        "unfit": "BadRequestError",
        "impatient": "APIConnectionTimeoutError",
        "aborted": "APIUserAbortError",
    }
)
test_a_failure_is_tried_as_often = tried({"unauthorised": 1, "limited": 3, "failing": 2, "orphan": 1})


def test_what_nothing_makes_fit_is_refused_in_the_same_words_and_costs_nothing(
    here: World, told: tuple[Told, Told]
) -> None:
    for way in told:
        error = way["unfit"]["failure"]["body"]["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("prompt is too long: ") and error["message"].endswith("> 4000 maximum")
    assert [len(here.seen(f"unfit {tag}")) for tag in ("straight", "through")] == [1, 0]


@pytest.mark.parametrize("scenario", ["agent", "agentstream", "agentthinking", "runner"])
def test_an_agent_runs_on_past_a_window_that_nobody_knew(here: World, told: tuple[Told, Told], scenario: str) -> None:
    straight, through = (way[scenario] for way in told)
    assert straight["failure"]["body"]["error"]["message"].startswith("prompt is too long: ")
    answer = through["answer"]
    assert (answer["calls"], answer["stop"]) == (CALLS, "end_turn") and answer["prompt"] < 7000
    sent = json.dumps(here.seen(f"{scenario} through")[-1].json()["messages"])
    assert len(sent) < sum(map(len, RESULTS))


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(told: tuple[Told, Told]) -> None:
    straight, through = (way["broken"]["failure"] for way in told)
    assert (straight["kind"], through["kind"]) == ("TypeError", "APIError")
    assert through["body"]["type"] == "error"
