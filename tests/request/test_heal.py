"""Plans after a refusal: what it teaches, of which model, and what is sent then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proxy.apis.anthropic_messages import API as MESSAGES
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof, Shape
from proxy.model.outcome import Refusal
from proxy.model.ports import Medium
from proxy.model.structs import replace
from proxy.request.heal import Healer
from proxy.request.prepare import Planner
from proxy.request.stages import Planned
from proxy.request.work import Pool
from tests.e2e.services import body, talk
from tests.request.planned import TENANT, Arrived, arrived, prepared, services

REFUSED = Refusal("x", limit=4_096)
TEACHES_NOTHING = Refusal("x", bounds="roles")  # the roles of the request alternate
T = TypeVar("T")


def healed(planner: Planner, context: Arrived, refusal: Refusal = REFUSED) -> Any:
    """What is sent after a refusal, parsed; None where nothing is."""
    again = asyncio.run(
        heal(Healer(planner.knowledge, planner.plans, planner.plans.pool, planner.requests), context, refusal)
    )
    if again is None:
        return None
    context.planned = again
    return json.loads(again.payload)


async def heal(healer: Healer, context: Arrived, refusal: Refusal) -> Planned | None:
    """What is sent after a refusal."""
    context.planned = await healer.measured(context.stage, context.record)
    return await healer.heal(context.planned, refusal, context.record)


@pytest.mark.parametrize("model", ["gpt-4", "gpt-4o"])
def test_a_refusal_makes_a_smaller_request_of_what_the_client_sent(model: str) -> None:
    made = services()
    context = arrived(body(talk(100), model))
    assert prepared(made.gateway.default.planner, context) is context.received.body
    smaller = healed(made.gateway.default.planner, context)
    assert 2 < len(smaller["messages"]) < 102 and context.result == "fitted"
    assert made.cache.learned_limits(model, TENANT).window == 4_096
    smallest = healed(made.gateway.default.planner, context, Refusal("x", limit=2_500))
    assert len(smallest["messages"]) < len(smaller["messages"])


def test_what_was_learned_in_the_meantime_heals_a_request_that_was_not_planned() -> None:
    made = services()
    context = arrived(body(talk(100), "gpt-4o"))
    prepared(made.gateway.default.planner, context)
    made.cache.record_proof(
        "gpt-4o", TENANT, LearnedLimits(window=4_096), Proof(0, 0)
    )  # another request was refused while this one was away
    assert len(healed(made.gateway.default.planner, context)["messages"]) < 102


@pytest.mark.parametrize("known", ["a limit", "media", "counts"])
def test_after_a_refused_probe_only_limits_that_were_tested_make_another_attempt(known: str) -> None:
    """What usage taught of images or of counts is no limit: the refusal itself must make the request smaller."""
    made = services()
    context = arrived(body(talk(100), "gpt-4o"))
    prepared(made.gateway.default.planner, context)
    assert context.scanned is not None
    context.planned = replace(context.stage, scanned=replace(context.scanned, probing=True, tenant=TENANT))
    if known == "media":
        made.knowledge.media.learn(TENANT, "gpt-4o", (Medium(7, 700, False),), 1_000, 1_500)
    elif known == "counts":
        for _ in range(6):
            made.cache.record_sample("gpt-4o", TENANT, Shape.TEXT, (1_000, 1_060), None, None)
    else:
        made.cache.record_proof("gpt-4o", TENANT, LearnedLimits(window=4_096), Proof(0, 0))
    assert made.knowledge.learned("gpt-4o", TENANT) != NOTHING_LEARNED
    assert len(healed(made.gateway.default.planner, context, Refusal("x"))["messages"]) < 102


def test_where_nothing_smaller_is_left_nothing_is_sent() -> None:
    made = services()
    context = arrived(body(talk(4)))
    prepared(made.gateway.default.planner, context)
    assert healed(made.gateway.default.planner, context, Refusal("x", limit=300)) is None


def test_what_the_upstream_would_shorten_itself_is_cut_once_it_is_refused() -> None:
    made, said = services(), talk(100)[1:]
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    sent = body(said, "claude-3-opus", max_tokens=500, context_management=edits)
    context = arrived(sent, api=MESSAGES, window=3_000)
    assert prepared(made.gateway.default.planner, context) is sent
    smaller = healed(made.gateway.default.planner, context, Refusal("x", limit=3_000, prompt=5_000))
    assert 1 < len(smaller["messages"]) < 101 and smaller["context_management"] == edits


class BrokenPool(Pool):
    """A pool in which all work fails."""

    async def run(self, heavy: bool, work: Callable[..., T], *args: object) -> T:
        raise KeyError("content")


def test_a_bug_while_healing_sends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    planner, context = services().gateway.default.planner, arrived(body(talk(100)))
    payload = prepared(planner, context)
    healer = Healer(planner.knowledge, planner.plans, BrokenPool(planner.plans.pool.executor), planner.requests)
    assert asyncio.run(heal(healer, context, REFUSED)) is None
    assert context.planned is not None and context.planned.payload == payload and context.result == "bug"
    assert "kind=KeyError at=test_heal.py:" in capfd.readouterr().err


ALLOWED = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o-mini,gpt-4o"}


def test_a_refusal_of_what_was_moved_teaches_of_the_model_that_it_was_moved_to() -> None:
    made = services(**ALLOWED)
    context = arrived(body(talk(400)))
    assert json.loads(prepared(made.gateway.default.planner, context))["model"] == "gpt-4o-mini"
    assert healed(made.gateway.default.planner, context, Refusal("x", limit=9_000))["model"] == "gpt-4o"
    assert made.cache.learned_limits("gpt-4o-mini", TENANT) == LearnedLimits(9_000)
    assert made.cache.learned_limits("gpt-4", TENANT) == LearnedLimits()


@pytest.mark.parametrize("bounds", ["window", "body"])
def test_a_refusal_without_figures_of_what_was_moved_moves_it_on_and_is_forgotten(bounds: str) -> None:
    made = services(**ALLOWED)
    context = arrived(body(talk(2_200)))
    assert json.loads(prepared(made.gateway.default.planner, context))["model"] == "gpt-4o-mini"
    first = healed(made.gateway.default.planner, context, Refusal("x", bounds=bounds))
    assert first["model"] == "gpt-4o"
    assert (
        made.cache.learned_limits("gpt-4o-mini", TENANT)
        == made.cache.learned_limits("gpt-4", TENANT)
        == LearnedLimits()
    )
    second = healed(made.gateway.default.planner, context, Refusal("x", bounds=bounds))  # but not to the first
    assert second is None or second["model"] == "gpt-4"


def test_a_refusal_of_what_was_moved_that_teaches_nothing_heals_nothing() -> None:
    made = services(**ALLOWED)
    context = arrived(body(talk(400)))
    prepared(made.gateway.default.planner, context)
    assert healed(made.gateway.default.planner, context, TEACHES_NOTHING) is None
    assert made.cache.learned_limits("gpt-4o-mini", TENANT) == LearnedLimits()


def test_nothing_heals_where_nothing_was_understood() -> None:
    context = arrived(b"{")
    planner = services().gateway.default.planner
    prepared(planner, context)
    assert healed(planner, context) is None


def test_a_refusal_of_what_was_known_to_be_too_long_teaches_nothing(tmp_path: Any) -> None:
    (tmp_path / "ladder.toml").write_text('on_unfit = "forward"\n[[step]]\nname = "clamp_output"\n')
    made = services(PLIMSOLL_RULES=str(tmp_path))
    context = arrived(body(talk(400)))
    assert prepared(made.gateway.default.planner, context) is context.received.body
    assert healed(made.gateway.default.planner, context, Refusal("x", limit=8_192)) is None
    assert made.cache.learned_limits("gpt-4", TENANT) == LearnedLimits()


def test_what_a_refusal_heals_recalls_too(tmp_path: Path) -> None:
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "tides.md").write_text("# Vell\nA town with nine bells.\n# Oar\nA river.")
    (tmp_path / "ladder.toml").write_text('[[lorebook]]\nmodel = "gpt-4o*"\nname = "tides"\n')
    made = services(PLIMSOLL_RULES=str(tmp_path), PLIMSOLL_LADDER="rag")
    context = arrived(body([*talk(100)[:-1], {"role": "user", "content": "Who rules Vell?"}], "gpt-4o"))
    prepared(made.gateway.default.planner, context)
    again = healed(made.gateway.default.planner, context, Refusal("x", limit=4_000))
    assert again is not None and "nine bells" in again["messages"][-2]["content"]
