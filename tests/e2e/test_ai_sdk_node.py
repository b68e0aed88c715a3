"""The AI SDK for Node with its OpenAI provider (Responses and chat) and its Anthropic provider, through the proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, Told
from tests.e2e.node_clients import run_client
from tests.e2e.world import World, world

PROVIDERS = ("responses", "chat", "messages")
SAME = ("answer", "stream", "object", "unauthorised", "limited", "aborted", "closed")
STATELESS = "stateless"  # Responses with `store: false`: every item goes along. Else ids refer to what is stored.
AGENTS = (
    *(f"{provider} {kind}" for provider in (*PROVIDERS, STATELESS) for kind in ("agent", "agentstream")),
    "reasoning agent",
)


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=128_000)) as made:
        yield made


@pytest.fixture(scope="module")
def told(here: World) -> tuple[Told, Told]:
    """What the client was told straight, and through the proxy."""
    return run_client(here, "ai.mjs")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("scenario", SAME)
def test_it_is_the_same_through_the_proxy(told: tuple[Told, Told], provider: str, scenario: str) -> None:
    straight, through = (way[f"{provider} {scenario}"] for way in told)
    assert straight == through


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("scenario", "tries"), [("answer", 1), ("unauthorised", 1), ("limited", 3)])
def test_it_is_tried_as_often(here: World, told: tuple[Told, Told], provider: str, scenario: str, tries: int) -> None:
    assert told
    seen = [len(here.seen(f"{provider} {scenario} {tag}")) for tag in ("straight", "through")]
    assert seen == [tries, tries]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_nothing_makes_fit_is_an_error_that_is_not_tried_again_and_costs_nothing(
    here: World, told: tuple[Told, Told], provider: str
) -> None:
    for way in told:
        failure = way[f"{provider} unfit"]["failure"]
        assert (failure["kind"], failure["statusCode"], failure["isRetryable"]) == ("APICallError", 400, False)
        assert "prompt is too long" in failure["responseBody"] or "context_length_exceeded" in failure["responseBody"]
    assert [len(here.seen(f"{provider} unfit {tag}")) for tag in ("straight", "through")] == [1, 0]


@pytest.mark.parametrize("scenario", AGENTS)
def test_an_agent_runs_on_past_a_window_that_nobody_knew(here: World, told: tuple[Told, Told], scenario: str) -> None:
    """Straight it ends with the refusal; through the proxy with its answer, after all calls."""
    straight, through = (way[scenario] for way in told)
    assert straight["failure"]["kind"] == "APICallError"
    assert (through["answer"]["calls"], through["answer"]["finishReason"]) == (CALLS, "stop")
    sent = here.seen(f"{scenario} through")[-1].json()
    assert len(sent.get("messages") or sent["input"]) < 3 * CALLS
