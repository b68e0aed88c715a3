"""Frameworks for agents in Python (openai-agents, pydantic-ai) on each API: the same through the proxy as straight, and
past any window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, Told
from tests.e2e.python_clients import run_client
from tests.e2e.world import World, world

OPENAI, PYDANTIC = "tests.e2e.python.openai_agents", "tests.e2e.python.pydantic_ai_agents"
APIS = {OPENAI: ("responses", "chat"), PYDANTIC: ("responses", "chat", "messages")}
AGENTS = ("agent", "agentstream")
PAIRS = [(script, api) for script, apis in APIS.items() for api in apis]
SAME = {
    OPENAI: ("answer", "stream", "tools", "value", "unauthorised", "limited", "cancelled", "impatient"),
    PYDANTIC: ("answer", "stream", "tools", "value", "schema", "unauthorised", "limited", "cancelled"),
}
Found = dict[str, tuple[Told, Told]]


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=128_000)) as made:
        yield made


@pytest.fixture(scope="module")
def found(here: World) -> Found:
    """What each framework was told straight, and through the proxy."""
    return {script: run_client(here, script) for script in APIS}


@pytest.mark.parametrize(("script", "api"), PAIRS)
def test_it_is_the_same_through_the_proxy(found: Found, script: str, api: str) -> None:
    straight, through = found[script]
    for scenario in SAME[script]:
        assert straight[f"{api} {scenario}"] == through[f"{api} {scenario}"], scenario
    assert through[f"{api} value"]["answer"]["said"] == {"name": "sim", "freeboard": 1.5, "certified": True}
    assert through[f"{api} tools"]["answer"]["calls"] == 2


@pytest.mark.parametrize(("script", "api"), PAIRS)
def test_a_failure_is_tried_as_often(here: World, found: Found, script: str, api: str) -> None:
    assert found
    for scenario in ("answer", "unauthorised", "limited"):
        tries = [len(here.seen(f"{api} {scenario} {way}")) for way in ("straight", "through")]
        assert tries[0] == tries[1] > 0, scenario


@pytest.mark.parametrize(
    ("script", "scenario"),
    [(OPENAI, "reasoning agent"), *((script, f"{api} {kind}") for script, api in PAIRS for kind in AGENTS)],
)
def test_an_agent_runs_on_past_a_window_that_nobody_knew(found: Found, script: str, scenario: str) -> None:
    """Straight it ends with the refusal; through the proxy with its answer, after all calls."""
    straight, through = (way[scenario] for way in found[script])
    assert "context" in straight["failure"]["says"] or "too long" in straight["failure"]["says"]
    answer = through["answer"]
    assert (answer["calls"], answer["requests"]) == (CALLS, CALLS + 1)
    assert "".join(answer["said"]).startswith("The simulator read")


def test_a_conversation_that_the_upstream_stores_is_the_same_through_the_proxy(here: World, found: Found) -> None:
    straight, through = (way["responses stored"] for way in found[OPENAI])
    assert straight == through and through["answer"]["calls"] == CALLS
    sent = here.seen("responses stored through")
    assert sent[-1].json()["previous_response_id"] and len(sent[-1].json()["input"]) == 1
    assert [request.body for request in sent] == [r.body for r in here.seen("responses stored straight")]


@pytest.mark.parametrize("api", APIS[PYDANTIC])
def test_what_nothing_makes_fit_is_the_error_that_means_it(here: World, found: Found, api: str) -> None:
    """pydantic-ai reads it in the code, or in Anthropic's words."""
    for way in found[PYDANTIC]:
        assert way[f"{api} unfit"]["failure"]["kind"] == "ModelContextWindowExceededError"
    assert [len(here.seen(f"{api} unfit {way}")) for way in ("straight", "through")] == [1, 0]
