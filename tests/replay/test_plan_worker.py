"""Plans of recorded requests are those of /inspect, under each column."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.apis import api_of
from proxy.replay.plan_worker import TOO_LARGE, Column, Cut, Planned, Planning
from proxy.replay.recorded import Recorded
from proxy.services import build
from tests.replay.recordings import chat, settings

LONG = chat(200)


def planned(recorded: Recorded | bytes, *columns: Column, **options: Any) -> list[Planned]:
    """The plans of one request."""
    one = recorded if isinstance(recorded, Recorded) else Recorded(recorded)
    with Planning(settings(), columns or (Column(),), **options) as planning:
        return [made for made, _ in planning.plan(one)]


@pytest.mark.parametrize(
    "body",
    [
        LONG,
        chat(3),
        chat(40, max_tokens=5_000),
        b'{"model": "text-embedding-3-small", "input": "x"}',
        b'{"model": "gpt-4o", "input": [{"role": "user", "content": "Hi"}]}',
        b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "s", "messages": [{"role":"user","content":"Hi"}]}',
    ],
)
def test_every_figure_is_that_of_inspect(body: bytes) -> None:
    services = build(settings(), lambda outcome: None)
    services.go_offline()
    api = api_of(body)
    assert api is not None
    told: Any = json.loads(
        json.dumps(asyncio.run(services.inspecting.plan_of(api, body, ())), default=lambda raw: None)
    )
    (found,) = planned(body, reports=True)
    detail = {**told["messages"], **found.report["messages"]}
    assert {**told, **found.report, "messages": detail} == told
    assert (found.prompt, found.prompt_sent) == (told["tokens"]["prompt"], told["tokens"]["prompt_sent"])
    assert found.asked is not None and found.asked.tokens[-1] == found.prompt


def test_a_cut_has_its_steps_and_both_prompts() -> None:
    (found,) = planned(LONG)
    assert found.over and found.too_long and found.possible and found.changed and 0 < found.share_cut < 1
    assert found.steps[-1].after == found.prompt_sent and found.sent is not None and found.asked is not None
    assert found.sent.tokens[-1] == found.prompt_sent


def test_a_request_that_fits_is_sent_as_it_is() -> None:
    (found,) = planned(chat(3))
    assert not (found.over or found.too_long or found.changed) and found.sent is None and found.share_cut == 0


def test_columns_are_planned_side_by_side() -> None:
    usual, small, other, agent, absent = planned(
        LONG, Column(), Column(window=4_000), Column(model="gpt-4o"), Column(ladder="agent"), Column(ladder="none")
    )
    assert usual.window == 8_192 and small.window == 4_000 > small.prompt_sent
    assert (other.model, other.over, other.changed) == ("gpt-4o", False, False)
    assert agent.over and agent.steps != usual.steps and absent.unplanned


def test_a_column_stands_in_place_of_the_recorded_controls() -> None:
    recorded = Recorded(LONG, headers=((b"x-plimsoll-window", b"5000"), (b"x-plimsoll-pin", b"0")))
    assert [one.window for one in planned(recorded, Column(), Column(window=3_000))] == [5_000, 3_000]


def test_columns_have_names() -> None:
    assert Column().name == "as configured"
    assert Column("chat", 32_000, "gpt-4o").name == "ladder chat, window 32,000, gpt-4o"


def test_the_path_of_a_deployment_names_the_model() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    (found,) = planned(Recorded(body, path="/openai/deployments/gpt-4o/chat/completions"))
    assert found.model == "gpt-4o" and not found.unplanned
    (found,) = planned(Recorded(body, path="/v1/chat/completions", model="gpt-4"))
    assert found.model == "gpt-4"


def test_the_path_decides_before_the_body() -> None:
    body = b'{"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}'
    prompts = {planned(Recorded(body, path=path))[0].prompt for path in ("/v1/chat/completions", "/v1/messages")}
    assert len(prompts) == 2


@pytest.mark.parametrize("body", [b"{", b"[]", b"\0", b'{"model": 7}', b'{"model":"m","messages":[{"role":7}]}'])
def test_what_is_no_request_is_told_without_its_text(body: bytes) -> None:
    (found,) = planned(body)
    assert found.unplanned.startswith("Nothing to inspect: ") and not any(c.isdigit() for c in found.unplanned)


def test_a_body_that_the_proxy_refuses_is_told() -> None:
    with Planning(settings(PLIMSOLL_MAX_BODY="1KiB"), (Column(),)) as planning:
        assert [made.unplanned for made, _ in planning.plan(Recorded(LONG))] == [TOO_LARGE]


def test_our_own_error_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise LookupError("canary")

    monkeypatch.setattr("proxy.replay.plan_worker.pieces_of", broken)
    assert planned(LONG)[0].unplanned == "our own error: please report it"


def cut_of(body: bytes, content: bool) -> Cut:
    """The cut of a body."""
    with Planning(settings(), (Column(),), content=content) as planning:
        ((made, plan),) = planning.plan(Recorded(body))
        assert plan is not None
        return planning.cut(made, plan)


def test_a_cut_has_rows_and_texts_only_where_they_are_asked_for() -> None:
    for content in (False, True):
        cut = cut_of(LONG, content)
        assert cut.planned.asked is None and cut.planned.sent is None
        assert len(cut.rows) == 200 and cut.rows_left_out == 401 - 200 + sum(r["index"] is None for r in cut.rows)
        assert {"kept", "dropped"} <= {row["state"] for row in cut.rows}
        assert ("text" in cut.rows[0]) is content and ("t0x0" in json.dumps(cut.rows)) is content


def test_a_long_text_is_shown_in_part() -> None:
    body = json.dumps({"model": "gpt-4", "messages": [{"role": "user", "content": "x " * 9_000}]}).encode()
    assert len(cut_of(body, content=True).rows[0]["text"]) < 4_100
