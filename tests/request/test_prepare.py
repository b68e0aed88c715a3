"""What is decided for a body: proofs by bytes alone, plans, refusals of ours, and what those of upstreams teach."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from proxy.apis.anthropic_messages import API as MESSAGES
from proxy.apis.ollama import API as OLLAMA
from proxy.errors import ClientError
from proxy.model.limits import LearnedLimits, Proof
from proxy.model.plan import Ladder, Mode
from proxy.request.fits import PROOF_MARGIN
from proxy.request.prepare import Planner
from proxy.request.stages import Received
from proxy.request.work import MAX_TASKS
from proxy.wire.controls import NOTHING_ASKED
from tests.e2e.services import TOO_MUCH, body, sentence, talk
from tests.request.planned import TENANT, Arrived, arrived, count, packed, prepare, prepared, services

NOBODY = "acme/harbour-9b"


def ladder_of(context: Arrived) -> Ladder | None:
    """The ladder that it may be planned with."""
    return None if context.scanned is None else context.scanned.ladder


def skipped(context: Arrived) -> bool:
    """Whether it is not counted."""
    return context.counted is not None and context.counted.skipped


def of_length(size: int, model: str = "gpt-4o", **fields: Any) -> bytes:
    """A request of so many bytes."""
    frame = len(body([{"role": "user", "content": ""}], model, **fields))
    return body([{"role": "user", "content": "x" * (size - frame)}], model, **fields)


# Proofs.


@pytest.mark.parametrize(
    ("most", "fields"),
    [
        (int(0.9 * 128_000) - 3_000 - PROOF_MARGIN, {}),
        (int(0.9 * 128_000) - 5_000 - PROOF_MARGIN, {"max_tokens": 5_000}),
        (int(0.9 * 128_000) - 5_000 - PROOF_MARGIN, {"max_completion_tokens": 5_000, "n": 2}),
    ],
)
def test_bytes_prove_that_a_request_fits_up_to_the_line_and_no_further(most: int, fields: dict[str, Any]) -> None:
    """The line is the least load at which a step acts: 0.9 for the default ladder's switch."""
    planner = services().gateway.default.planner
    for size, sure in ((most, True), (most + 1, False)):
        context = arrived(of_length(size, **fields))
        assert prepared(planner, context) is context.received.body
        assert context.proven is sure
        assert (context.plan is None, context.result) == (True, "")


def test_what_is_sure_is_not_counted_before_it_leaves() -> None:
    planner = services().gateway.default.planner
    context = arrived(body(talk(2), "gpt-4o"))
    prepared(planner, context)
    assert context.proven and context.total is None
    count(planner, context)
    assert context.total is not None and context.plan is None
    again = arrived(body(talk(2), "gpt-4o"))
    prepared(planner, again)
    assert again.proven and again.total == context.total


def test_what_waits_waits_for_no_count_that_nobody_waits_for_and_of_those_only_so_many_are_kept() -> None:
    async def test() -> None:
        planner, blocked = services().gateway.default.planner, threading.Event()
        stuck = planner.background.pool.executor.submit(blocked.wait, 60)
        visits = []
        for number in range(MAX_TASKS + 3):
            sent = body([{"role": "user", "content": f"{number} " + sentence(number, 2_000)}], "gpt-4.1")
            visits.append(context := arrived(sent))
            await prepare(planner, context)
            context.counting = planner.later.start_count(context.stage, context.record)
            if context.counting is None:
                context.planned = context.stage.uncounted()
        near = arrived(body([{"role": "user", "content": sentence(1, 6_000)}], "gpt-4"))
        await prepare(planner, near)
        assert near.total is not None or near.plan is not None
        assert [skipped(context) for context in visits] == [False] * MAX_TASKS + [True] * 3
        blocked.set()
        await asyncio.gather(*(context.counting for context in visits if context.counting is not None))
        found = [context.latest for context in visits]
        uncounted = [one is not None and one.total is None for one in found]
        assert stuck.result() and uncounted == [skipped(context) for context in visits]
        assert visits[-1].outcome().uncounted and not planner.background.tasks

    asyncio.run(test())


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}],
        [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}],
        [{"type": "file", "file": {"file_id": "f"}}],
    ],
)
def test_what_bytes_do_not_bound_is_not_proven_by_them(content: Any) -> None:
    context = arrived(body([{"role": "user", "content": content}], "gpt-4o"))
    prepared(services().gateway.default.planner, context)
    assert not context.proven


def test_a_window_that_nobody_knows_proves_nothing() -> None:
    context = arrived(body(talk(2), NOBODY))
    assert prepared(services().gateway.default.planner, context) is context.received.body
    assert not context.proven


def test_a_bound_on_the_prompt_alone_is_heeded() -> None:
    made = services()
    made.cache.record_proof("gpt-4o", TENANT, LearnedLimits(max_input=20_000), Proof(0, 0))
    for size, sure in ((20_000 - PROOF_MARGIN, True), (20_000 - PROOF_MARGIN + 1, False)):
        context = arrived(of_length(size))
        prepared(made.gateway.default.planner, context)
        assert context.proven is sure


def test_caps_count_for_the_proof_too() -> None:
    context = arrived(body(talk(2), "gpt-4o"), window=1_000)
    prepared(services().gateway.default.planner, context)
    assert not context.proven


# Plans.


def test_a_body_that_does_not_fit_is_written_anew() -> None:
    context = arrived(body(talk(400)))
    sent = prepared(services().gateway.default.planner, context)
    assert len(json.loads(sent)["messages"]) < 402
    assert context.result == "fitted" and context.plan is not None and context.plan.fits


def test_what_cannot_fit_is_refused_with_its_figures() -> None:
    context = arrived(
        body([{"role": "system", "content": sentence(0, 20)}, {"role": "user", "content": "Hi"}], **TOO_MUCH)
    )
    with pytest.raises(ClientError) as raised:
        prepared(services().gateway.default.planner, context)
    assert (raised.value.status, raised.value.code, context.result) == (400, "context_length_exceeded", "unfit")
    assert "8192 tokens" in raised.value.message and "9001 for the completion" in raised.value.message


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_where_nothing_may_be_done_the_body_stays(mode: Mode) -> None:
    context = arrived(body(talk(400)), mode)
    assert prepared(services().gateway.default.planner, context) is context.received.body
    assert (context.plan is None) == (mode is Mode.OFF)


@pytest.mark.parametrize("sent", [b"{", b'{"model":"gpt-4","messages":"Hi"}', b"\xef\xbb\xbf{}"])
def test_what_is_not_understood_stays_and_strict_refuses_it(sent: bytes) -> None:
    planner, context = services().gateway.default.planner, arrived(sent)
    assert prepared(planner, context) is context.received.body
    assert (context.result, ladder_of(context), context.proven) == ("not_understood", None, False)
    assert context.headers()[b"x-plimsoll-notice"].startswith(b"the request was sent as it came, unmeasured: ")
    assert context.stage.unplanned and context.outcome().unplanned == context.stage.unplanned
    with pytest.raises(ClientError) as raised:
        prepared(planner, arrived(sent, Mode.STRICT))
    assert raised.value.code == "not_understood"


def broken(*args: Any) -> Any:
    """A bug whose text is the client's."""
    raise LookupError("canary")


def test_a_bug_keeps_the_body_and_strict_refuses_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proxy.request.planning.plan", broken)
    planner, context = services().gateway.default.planner, arrived(body(talk(400)))
    assert prepared(planner, context) is context.received.body
    assert (context.result, ladder_of(context), context.plan) == ("bug", None, None)
    with pytest.raises(ClientError) as raised:
        prepared(planner, arrived(body(talk(400)), Mode.STRICT))
    assert raised.value.code == "not_understood" and "canary" not in raised.value.message
    told = capfd.readouterr().err
    assert told.count("a bug of ours was caught kind=LookupError at=test_prepare.py:") == 2 and "canary" not in told


def test_what_turns_out_not_to_be_understood_while_it_is_counted_is_forgotten() -> None:
    sent = b'{"model":"gpt-4o","messages":[{"role":"assistant","tool_calls":[7]}]}'
    planner, context = services().gateway.default.planner, arrived(sent)
    assert prepared(planner, context) is context.received.body and context.proven
    count(planner, context)
    assert (context.result, context.total, ladder_of(context)) == ("not_understood", None, None)


def test_a_bug_while_counting_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, context = services().gateway.default.planner, arrived(body(talk(2), "gpt-4o"))
    prepared(planner, context)
    monkeypatch.setattr("proxy.request.totals.Totals.count", broken)
    count(planner, context)
    assert (context.result, context.total, ladder_of(context)) == ("bug", None, None)


def test_a_ladder_that_there_is_not_is_the_clients_mistake() -> None:
    with pytest.raises(ClientError) as raised:
        prepared(services().gateway.default.planner, arrived(body(talk(2)), ladder="nobodys"))
    assert raised.value.param == "x-plimsoll-ladder"


def test_the_same_body_becomes_the_same_bytes() -> None:
    planner = services().gateway.default.planner
    assert prepared(planner, arrived(body(talk(400)))) == prepared(planner, arrived(body(talk(400))))


# The key of our own in messages.

PIN = {"plimsoll": {"pin": True}}


def test_a_message_that_pins_itself_stays_and_its_key_is_not_sent() -> None:
    planner = services().gateway.default.planner
    said = [{**m, **PIN} if i == 5 else m for i, m in enumerate(talk(400))]
    context = arrived(body(said), pins=frozenset({7}))
    payload = prepared(planner, context)
    assert b"plimsoll" not in payload and context.result == "fitted"
    kept = [m["content"] for m in json.loads(payload)["messages"]]
    assert said[5]["content"] in kept and said[7]["content"] in kept and said[6]["content"] not in kept


@pytest.mark.parametrize("mode", [Mode.FIT, Mode.OBSERVE, Mode.STRICT])
@pytest.mark.parametrize("turns", [2, 100])
def test_the_key_is_taken_out_though_nothing_else_changes(turns: int, mode: Mode) -> None:
    """Once where bytes prove that it fits, once where it is counted."""
    planner = services().gateway.default.planner
    said = talk(turns)
    context = arrived(body([{**said[0], **PIN}, *said[1:]]), mode)
    payload = prepared(planner, context)
    assert json.loads(payload) == {"model": "gpt-4", "messages": said}
    assert context.proven is (turns == 2) and context.result == ""


def test_the_key_is_taken_out_though_we_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = services().gateway.default.planner
    monkeypatch.setattr(Planner, "ladder_for", lambda self, model, controls: 1 / 0)
    context = arrived(body([{**talk(2)[0], **PIN}]))
    assert json.loads(prepared(planner, context)) == {"model": "gpt-4", "messages": talk(2)[:1]}
    assert context.result == "bug"


def test_a_packed_or_a_heavy_body_loses_the_key_too() -> None:
    planner = services().gateway.default.planner
    heavy = [{"role": "user", "content": "x" * (2 << 20), **PIN}]
    assert b"plimsoll" not in prepared(planner, arrived(body(heavy), Mode.OBSERVE))
    payload = prepared(planner, packed(body([{**talk(2)[0], **PIN}])))
    assert json.loads(payload) == {"model": "gpt-4", "messages": talk(2)[:1]}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("field", [{"max_tokens": "many"}, {"n": 0}, {"stream": "yes"}])
@pytest.mark.parametrize("mode", [Mode.FIT, Mode.OBSERVE])
def test_the_key_is_taken_out_of_what_is_not_understood(mode: Mode, field: dict[str, Any], is_packed: bool) -> None:
    planner, said = services().gateway.default.planner, talk(2)
    sent = body([{**said[0], **PIN}, *said[1:]], **field)
    context = packed(sent, mode) if is_packed else arrived(sent, mode)
    payload = prepared(planner, context)
    assert json.loads(payload) == {"model": "gpt-4", **field, "messages": said}
    assert context.result == "not_understood"


def test_the_key_is_taken_out_where_there_is_no_model() -> None:
    sent = b'{"messages":[{"role":"user","plimsoll":{"pin":true}}],"x": 1}'
    assert prepared(services().gateway.default.planner, arrived(sent)) == b'{"messages":[{"role":"user"}],"x":1}'


@pytest.mark.parametrize(
    "sent",
    [
        b'{"plimsoll": 1, "n": 0}',
        b'{"messages":["plimsoll"]}',
        b'{"messages":[{"content": "plimsoll"}], "n": 0}',
        b'{"messages":[{"plimsoll": {"pin": tru}}]}',
    ],
)
def test_what_is_not_understood_and_has_no_such_key_stays_as_it_is(sent: bytes) -> None:
    context = arrived(sent)
    assert prepared(services().gateway.default.planner, context) is context.received.body


def test_a_bug_while_the_key_is_taken_out_sends_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.request.scanning.unpacked", broken)
    context = arrived(b'{"n":0}')
    assert prepared(services().gateway.default.planner, context) is context.received.body and context.result == "bug"


def test_who_asks_for_nothing_sends_the_key_as_it_is() -> None:
    context = arrived(body([{**talk(2)[0], **PIN}]), Mode.OFF)
    assert prepared(services().gateway.default.planner, context) is context.received.body


# Lorebooks.


@pytest.fixture
def shelf(tmp_path: Path) -> str:
    """A rules folder with a lorebook."""
    (tmp_path / "lorebooks").mkdir()
    (tmp_path / "lorebooks" / "tides.md").write_text("# Vell\nA town with nine bells.\n# Oar\nA river.")
    (tmp_path / "ladder.toml").write_text('[[lorebook]]\nmodel = "gpt-4o*"\nname = "tides"\n')
    return str(tmp_path)


ASKING = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who rules Vell?"}]


def recalled(payload: bytes) -> str:
    """The message before the last."""
    text: str = json.loads(payload)["messages"][-2]["content"]
    return text


def test_entries_of_a_lorebook_are_recalled_though_the_request_fits(shelf: str) -> None:
    planner = services(PLIMSOLL_RULES=shelf, PLIMSOLL_LADDER="rag").gateway.default.planner
    context = arrived(body(ASKING), lorebooks=("tides",))
    payload = prepared(planner, context)
    assert "nine bells" in recalled(payload) and "river" not in recalled(payload)
    assert context.result == "fitted" and context.plan is not None
    assert [note.step for note in context.plan.notes] == ["recall"]


def test_a_model_brings_its_lorebooks_along(shelf: str) -> None:
    planner = services(PLIMSOLL_RULES=shelf, PLIMSOLL_LADDER="rag").gateway.default.planner
    assert "nine bells" in recalled(prepared(planner, arrived(body(ASKING, "gpt-4o-mini"))))
    other = arrived(body(ASKING, "gpt-4"))
    assert prepared(planner, other) is other.received.body


def test_a_lorebook_that_no_step_would_use_is_the_clients_error(shelf: str) -> None:
    planner = services(PLIMSOLL_RULES=shelf).gateway.default.planner
    with pytest.raises(ClientError, match="needs a ladder with the step recall"):
        prepared(planner, arrived(body(ASKING), lorebooks=("tides",)))
    with pytest.raises(ClientError, match="names an unknown lorebook; known are tides"):
        prepared(planner, arrived(body(ASKING), lorebooks=("nope",), ladder="rag"))


def test_budgets_of_the_environment_reach_the_steps(shelf: str) -> None:
    made = services(PLIMSOLL_RULES=shelf, PLIMSOLL_LADDER="rag", CONTEXT_RAG_TOKEN_BUDGET="20")
    context = arrived(body(ASKING, "gpt-4o"))
    assert prepared(made.gateway.default.planner, context) is context.received.body  # the heading alone takes more
    made = services(PLIMSOLL_LADDER="rag", CONTEXT_RECENT_HISTORY_TOKEN_BUDGET="1000", CONTEXT_RAG_TOKEN_BUDGET="500")
    context = arrived(body(talk(100), "gpt-4o"))
    prepared(made.gateway.default.planner, context)
    assert context.plan is not None
    steps = {note.step: note for note in context.plan.notes}
    assert 900 < steps["prune_history"].tokens_after <= 1_030
    assert 400 < steps["recall"].tokens_after - steps["recall"].tokens_before <= 500


# Servers that drop what is too long, and say nothing.


def native(tokens: int, **fields: Any) -> bytes:
    """A request of Ollama's API of about so many tokens."""
    said = " ".join(f"{number:03}" for number in range(tokens // 2))
    return json.dumps({"model": "llama3.1:8b", **fields, "messages": [{"role": "user", "content": said}]}).encode()


@pytest.mark.parametrize(
    ("sent", "tells"),
    [
        (native(600), False),  # fits whatever is loaded
        (native(2_400), True),  # the model holds 128,000 tokens, but nobody knows what is loaded
        (native(2_400, options={"num_ctx": 8_192}), False),
        (native(2_400, options={"num_ctx": 4_096, "num_predict": 100}), True),
        (native(2_400, truncate=True), False),
    ],
)
def test_near_what_may_be_loaded_a_server_is_told_to_refuse_and_else_gets_the_same_bytes(
    sent: bytes, tells: bool
) -> None:
    context = arrived(sent, api=OLLAMA)
    payload = prepared(services().gateway.default.planner, context)
    assert (payload is not context.received.body) is tells
    assert json.loads(payload) == json.loads(sent) | ({"truncate": False} if tells else {})
    assert any("told to refuse" in notice for notice in context.notices()) is tells
    assert (b"x-plimsoll-notice" in context.headers()) is tells


def test_a_server_is_told_nothing_where_nothing_may_change() -> None:
    context = arrived(native(2_400), Mode.OBSERVE, OLLAMA)
    assert prepared(services().gateway.default.planner, context) is context.received.body


def test_the_window_that_a_request_loads_is_what_it_is_cut_to_and_the_smaller_cap_counts() -> None:
    planner = services().gateway.default.planner
    context = arrived(native(2_400, options={"num_ctx": 2_048}), api=OLLAMA)
    assert json.loads(prepared(planner, context))["truncate"] is False
    assert context.plan is not None and context.plan.changed
    assert (context.plan.draft.window.tokens, context.plan.draft.window.source) == (2_048, "request")
    capped = arrived(native(2_400, options={"num_ctx": 32_768}), api=OLLAMA, window=2_000)
    prepared(planner, capped)
    assert capped.plan is not None and capped.plan.draft.window.tokens == 2_000


BETA = [(b"anthropic-beta", b"context-1m-2025-08-07")]


def long_for_claude(headers: list[tuple[bytes, bytes]], model: str = "claude-sonnet-4-5") -> Arrived:
    """A request of 240,000 tokens of the Messages API."""
    sent = body([*talk(2), {"role": "user", "content": "word " * 200_000}], model, max_tokens=1_000)
    return Arrived(Received(MESSAGES, Mode.FIT, "", headers, NOTHING_ASKED, sent))


@pytest.mark.parametrize(
    ("headers", "model", "changed"),
    [(BETA, "claude-sonnet-4-5", False), ([], "claude-sonnet-4-5", True), (BETA, "claude-opus-4-5", True)],
)
def test_a_window_that_a_header_asks_for_is_what_the_request_is_cut_to(
    headers: list[tuple[bytes, bytes]], model: str, changed: bool
) -> None:
    context = long_for_claude(headers, model)
    assert (prepared(services().gateway.default.planner, context) is not context.received.body) is changed
