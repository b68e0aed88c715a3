"""Requests that ask for a summary: which ladder they get, and what is left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from proxy.model.conversation import Kind
from proxy.request.compaction_requests import NOT_WHEN_COMPACTING, SEND
from proxy.request.prepare import Planner
from tests.e2e.services import body, talk
from tests.request.planned import Arrived, arrived, services

PROMPT = "You are performing a CONTEXT CHECKPOINT COMPACTION. Be brief."
LONG = [*talk(400), {"role": "user", "content": PROMPT}]


def planner(**environment: str) -> Planner:
    return services(**environment).gateway.default.planner


def planned(messages: list[dict[str, Any]], window: int | None = 4_000, **more: Any) -> Arrived:
    environment = more.pop("environment", {})
    context = arrived(body(messages, "gpt-4o"), window=window, **more)
    context.planned = asyncio.run(planner(**environment).prepare(context.received, context.record))
    return context


def test_it_takes_a_ladder_of_its_own_and_says_what_the_summary_does_not_cover() -> None:
    found = planned(LONG)
    assert found.scanned is not None and found.scanned.compaction == "codex"
    assert found.scanned.ladder is not None and found.scanned.ladder.name == "compaction"
    assert found.scanned.ladder.on_unfit == SEND and found.plan is not None and found.plan.fits
    last = list(found.plan.draft.messages)[-1]
    assert last.text() == PROMPT and last.kind is Kind.OTHER
    assert [notice[:24] for notice in found.notices()] == ["the summary does not cov"]
    assert b"x-plimsoll-notice" in found.headers()


def test_a_request_that_asks_nothing_of_the_kind_is_planned_as_ever() -> None:
    found = planned([*LONG, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks. And now?"}])
    assert found.scanned is not None and found.scanned.compaction == "" and not found.notices()
    assert found.scanned.ladder is not None and found.scanned.ladder.name == "default"


def test_a_ladder_that_the_client_names_stays_but_for_steps_that_write_or_move() -> None:
    found = planned(LONG, ladder="rag")
    assert found.scanned is not None and found.scanned.ladder is not None
    assert found.scanned.ladder.name == "rag" and found.scanned.compaction == "codex"
    assert not {step.step for step in found.scanned.ladder.steps} & NOT_WHEN_COMPACTING


def test_a_ladder_without_steps_cuts_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "ladders").mkdir()
    (tmp_path / "ladders/never.toml").write_text("on_unfit = 'reject'\n")
    environment = {"PLIMSOLL_RULES": str(tmp_path), "PLIMSOLL_LADDER": "never"}
    found = planned(LONG, environment=environment)
    assert found.scanned is not None and found.scanned.compaction == "" and found.stage.error is not None


def test_rules_of_ones_own_may_have_another_ladder_for_it(tmp_path: Path) -> None:
    (tmp_path / "ladders").mkdir()
    (tmp_path / "ladders/compaction.toml").write_text('[[step]]\nname = "prune_history"\n')
    found = planned(LONG, environment={"PLIMSOLL_RULES": str(tmp_path)})
    assert found.plan is not None and [note.step for note in found.plan.notes] == ["prune_history"]


def test_nothing_is_parsed_for_a_body_without_the_words_of_a_row() -> None:
    found = planner().requests
    received = arrived(body([{"role": "user", "content": "Hi"}])).received
    scanned = planned([{"role": "user", "content": "Hi"}], None).scanned
    assert scanned is not None and asyncio.run(found.found(received, scanned)) is scanned
