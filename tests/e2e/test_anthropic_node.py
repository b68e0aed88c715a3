"""The @anthropic-ai/sdk package for Node: the same through the proxy as straight, and past any window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, Told
from tests.e2e.node_clients import run_client
from tests.e2e.world import World, world

SAME = (
    *("answer", "stream", "helper", "thinking", "tools", "parallel", "parsed", "counted", "raw", "side", "threads"),
    *("unauthorised", "limited", "failing", "orphan", "impatient", "closed", "aborted"),
)


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=200_000)) as made:
        yield made


@pytest.fixture(scope="module")
def told(here: World) -> tuple[Told, Told]:
    """What the client was told straight, and through the proxy."""
    return run_client(here, "anthropic.mjs")


@pytest.mark.parametrize("scenario", SAME)
def test_it_is_the_same_through_the_proxy(told: tuple[Told, Told], scenario: str) -> None:
    straight, through = (way[scenario] for way in told)
    assert straight == through


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("unauthorised", "AuthenticationError"),
        ("limited", "RateLimitError"),
        ("failing", "OverloadedError"),
        ("orphan", "BadRequestError"),
        ("unfit", "BadRequestError"),
        ("impatient", "APIConnectionTimeoutError"),
        ("aborted", "APIUserAbortError"),
    ],
)
def test_a_failure_is_of_the_kind_that_programs_expect(told: tuple[Told, Told], scenario: str, kind: str) -> None:
    assert [way[scenario]["failure"]["kind"] for way in told] == [kind, kind]


@pytest.mark.parametrize(("scenario", "tries"), [("unauthorised", 1), ("limited", 3), ("failing", 2), ("orphan", 1)])
def test_a_failure_is_tried_as_often(here: World, told: tuple[Told, Told], scenario: str, tries: int) -> None:
    assert told
    assert [len(here.seen(f"{scenario} {tag}")) for tag in ("straight", "through")] == [tries, tries]


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
    assert len(here.seen(f"{scenario} through")[-1].json()["messages"]) < 1 + 2 * CALLS


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(told: tuple[Told, Told]) -> None:
    straight, through = (way["broken"]["failure"] for way in told)
    assert (straight["kind"], through["kind"]) == ("TypeError", "APIError")
    assert through["body"]["type"] == "error"
