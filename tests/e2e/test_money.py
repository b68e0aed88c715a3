"""Money through a running proxy: a conversation on a model with OpenAI's prices, whose costs are computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import Running, before_simulator, body
from tests.observe.scraping import scraped
from tests.serving import run

MODEL = "gpt-4o"  # in these tests: 4 dollars for a million tokens of input, 20 of output, 1 from the cache
RULES = f"""
window = [{{ model = "{MODEL}", tokens = 20000 }}]
price = [{{ model = "{MODEL}", input = 4, output = 20, cache_read = 1 }}]
"""
BASE = f"endpoint=chat,model={MODEL}"
SENT = f"{BASE},original=accepted"


def talk(turns: int) -> list[dict[str, Any]]:
    """A conversation that grows by two messages a turn, and begins alike at every turn."""
    roles = ("user", "assistant")
    words = "cargo tide quay crane pilot berth "
    return [{"role": roles[i % 2], "content": f"Entry {i}: {words * 45}"} for i in range(2 * turns + 1)]


def dollars(found: dict[str, float], name: str, labels: str) -> float:
    return round(found[f"plimsoll_cost_{name}_usd_total{{{labels}}}"] * 1e6, 3)


async def turn(proxy: Running, messages: Sequence[dict[str, Any]], cached: int, **more: Any) -> tuple[int, int, int]:
    """One turn of which the upstream says that so many tokens were cached: tokens asked, sent and replied."""
    sent = body([*messages], MODEL, max_tokens=500, **more)
    before = len(proxy.outcomes)
    assert (await proxy.chat(sent, b"x-sim-cached: %d" % cached)).status == 200
    outcome = await proxy.told(before + 1)
    assert outcome.usage is not None and outcome.prompt is not None and outcome.prompt_sent is not None
    assert outcome.usage.prompt == outcome.prompt_sent, "the simulator counts as we do"
    return outcome.prompt, outcome.prompt_sent, outcome.usage.completion


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "windows.toml").write_text(RULES)
    return str(tmp_path)


def test_a_conversation_costs_what_its_tokens_cost(rules: str) -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(window=20_000), PLIMSOLL_RULES=rules) as (_, proxy):
            prompt, _, reply = await turn(proxy, talk(10), 0)
            longer, _, more = await turn(proxy, talk(12), 2_048)
            found = scraped(proxy.services.metrics)
            gross = 4 * (prompt + longer) + 20 * (reply + more)
            assert dollars(found, "asked", BASE) == dollars(found, "sent", SENT) == gross
            assert dollars(found, "asked_net", BASE) == dollars(found, "sent_net", SENT) == gross - 3 * 2_048
            expected = 1_024 + (prompt - 1_024) // 128 * 128
            assert found[f"plimsoll_repeated_prefix_tokens_total{{{BASE}}}"] == expected
            assert found[f"plimsoll_cached_prompt_tokens_total{{{BASE}}}"] == 2_048
            assert found[f"plimsoll_cached_error_ratio_count{{{BASE}}}"] == 2
            assert found[f"plimsoll_priced_requests_total{{basis=usage,{BASE}}}"] == 2

    run(check())


def test_what_is_cut_although_it_would_have_been_accepted_saves_and_may_lose_the_cache(
    rules: str, tmp_path: Path
) -> None:
    """A header caps the window at 6,000 tokens, to cap the cost; the model itself has room for the original."""

    async def check() -> None:
        async with before_simulator(SimulatorConfig(window=20_000), PLIMSOLL_RULES=rules) as (_, proxy):
            first, _, _ = await turn(proxy, talk(10), 0)
            await proxy.chat(body(talk(12), MODEL, max_tokens=500), b"x-plimsoll-window: 6000", b"x-sim-cached: 0")
            cut = await proxy.told(2)
            assert cut.prompt is not None and cut.prompt_sent is not None and cut.prompt_sent < cut.prompt
            assert cut.repeated is not None and cut.repeated.asked == first and cut.repeated.prefix == "moved"
            assert cut.usage is not None and not cut.too_long
            found = scraped(proxy.services.metrics)
            replies = 20 * sum(o.usage.completion for o in proxy.outcomes if o.usage)
            assert dollars(found, "sent", SENT) == 4 * (first + cut.prompt_sent) + replies
            assert dollars(found, "asked", BASE) == 4 * (first + cut.prompt) + replies
            cached = 1_024 + (first - 1_024) // 128 * 128
            assert dollars(found, "sent_net", SENT) == dollars(found, "sent", SENT)
            assert dollars(found, "asked_net", BASE) == dollars(found, "asked", BASE) - 3 * cached

    run(check())


def test_a_stable_cut_keeps_the_prefix_and_a_new_one_moves_it(rules: str) -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(window=20_000), PLIMSOLL_RULES=rules) as (_, proxy):
            for turns in range(28, 42):
                await turn(proxy, talk(turns), 0)
            found = scraped(proxy.services.metrics)
            kinds = {
                kind: found.get(f"plimsoll_cuts_total{{{BASE},prefix={kind}}}", 0)
                for kind in ("first", "kept", "moved")
            }
            cut = sum(o.prompt != o.prompt_sent for o in proxy.outcomes)
            assert sum(kinds.values()) == cut > 0
            assert kinds["kept"] > kinds["moved"] > 0, "the cut goes deep, and then it stays"
            assert found[f"plimsoll_rescued_requests_total{{{BASE}}}"] == sum(o.too_long for o in proxy.outcomes) > 0

    run(check())
