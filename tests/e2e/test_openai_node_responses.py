"""Responses through the openai package for Node: the same through the proxy as straight, and past any window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, Told
from tests.e2e.node_clients import run_client
from tests.e2e.world import World, world

SAME = (
    *("answer", "text", "stream", "helper", "reasoning", "tools", "parallel", "parsed", "continued", "counted"),
    *("raw", "side", "unauthorised", "limited", "failing", "orphan", "impatient", "closed", "aborted"),
)


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=128_000, windows={"gpt-4": 8192})) as made:
        yield made


@pytest.fixture(scope="module")
def told(here: World) -> tuple[Told, Told]:
    """What the client was told straight, and through the proxy."""
    return run_client(here, "openai_responses.mjs")


@pytest.mark.parametrize("scenario", SAME)
def test_it_is_the_same_through_the_proxy(told: tuple[Told, Told], scenario: str) -> None:
    straight, through = (way[scenario] for way in told)
    assert straight == through


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("unauthorised", "AuthenticationError"),
        ("limited", "RateLimitError"),
        ("failing", "InternalServerError"),
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
