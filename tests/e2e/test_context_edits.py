"""Edits of context at servers of the Messages API that do not know them: made by the proxy, and then it is fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.apis.anthropic_messages import API, context_edits
from tests.apis.anthropic_messages.test_context_edits import clear
from tests.apis.anthropic_messages.test_context_edits import run as reads
from tests.e2e.services import Running, ours, plimsoll
from tests.recorder import Peer, Request, answer, recording
from tests.serving import Reply, ask, post, run

MESSAGE = (
    b'{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn",'
    b'"usage":{"input_tokens":50,"output_tokens":1}}'
)
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":50},"stop_reason":null}}\n'
    b'\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":'
    b'{"output_tokens":1}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)


async def server(request: Request, peer: Peer) -> None:
    if request.method == b"GET":
        await peer.send(answer(b'{"data":[]}'))
    elif json.loads(request.body).get("stream"):
        await peer.send(answer(STREAM, headers=(b"content-type: text/event-stream",)))
    else:
        await peer.send(answer(MESSAGE))


def rules(folder: Path, host: str = "127.*") -> dict[str, str]:
    (folder / "polyfills.toml").write_text(f'[[polyfill]]\nname = "ours"\nhosts = ["{host}"]\n')
    return {"PLIMSOLL_RULES": str(folder)}


def asking(turns: int = 9, *edits: Any, **more: Any) -> bytes:
    fields = {"model": "claude-3-5-haiku-latest", "max_tokens": 100, "context_management": {"edits": list(edits)}}
    return json.dumps({**fields, **more, "messages": reads(turns)}).encode()


async def asked(proxy: Running, sent: bytes, *headers: bytes) -> Reply:
    fixed = (b"content-type: application/json", b"x-api-key: sk-1", b"anthropic-version: 2023-06-01")
    return await ask(proxy.port, post(sent, *fixed, *headers, target=b"/v1/messages"))


@pytest.mark.parametrize("stream", [False, True])
def test_tool_uses_are_cleared_as_asked_and_the_answer_reports_it(tmp_path: Path, stream: bool) -> None:
    async def check() -> None:
        async with recording(server) as up, plimsoll(up.url, **rules(tmp_path)) as proxy:
            got = await asked(proxy, asking(9, clear(), **({"stream": True} if stream else {})))
            sent = json.loads(up.requests[-1].body)
            assert "context_management" not in sent
            assert sum(context_edits.CLEARED in json.dumps(message) for message in sent["messages"]) == 6
            whole = STREAM if stream else MESSAGE
            edit = json.loads(got.body.split(b'"applied_edits":')[1].split(b"]")[0] + b"]")
            assert edit[0]["cleared_tool_uses"] == 6 and edit[0]["cleared_input_tokens"] > 100
            report = b',"context_management":{"applied_edits":%b}' % json.dumps(edit, separators=(",", ":")).encode()
            assert got.body.replace(report, b"") == whole and got.body.count(report) == 1
            assert "cleared_tool_uses" in ours(got)["notice"]

    run(check())


def test_a_request_that_no_edit_touches_is_rid_of_the_field_alone_and_reports_none(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(server) as up, plimsoll(up.url, **rules(tmp_path)) as proxy:
            for edit in ({"type": "compact_20260112"}, {"type": "clear_thinking_20251015"}, clear()):
                got = await asked(proxy, asking(2, edit))
                fields = json.loads(asking(2, edit))
                del fields["context_management"]
                assert json.loads(up.requests[-1].body) == fields
                assert json.loads(got.body)["context_management"] == {"applied_edits": []}

    run(check())


def test_what_is_still_too_long_is_fitted_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(server) as up, plimsoll(up.url, **rules(tmp_path)) as proxy:
            got = await asked(proxy, asking(300, clear(exclude_tools=["search"])), b"x-plimsoll-window: 8000")
            assert got.status == 200 and int(ours(got)["tokens-sent"]) < 8_000 and len(up.requests) == 1
            assert json.loads(got.body)["context_management"]["applied_edits"][0]["cleared_tool_uses"] > 100

    run(check())


@pytest.mark.parametrize("case", ["no row", "another host", "off", "observe", "no edits"])
def test_all_else_goes_as_it_came(tmp_path: Path, case: str) -> None:
    given = {} if case == "no row" else rules(tmp_path, "llm.example" if case == "another host" else "127.*")
    if case in ("off", "observe"):
        given["PLIMSOLL_MODE"] = case
    sent = asking(9, clear())
    if case == "no edits":
        sent = sent.replace(b"context_management", b"metadata")

    async def check() -> None:
        async with recording(server) as up, plimsoll(up.url, **given) as proxy:
            got = await asked(proxy, sent)
            assert up.requests[-1].body == sent and got.body == MESSAGE

    run(check())


def test_a_bug_in_it_leaves_the_edits_out_and_the_request_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(context_edits, "_cleared", broken)
    assert API.edits is not None

    async def check() -> None:
        async with recording(server) as up, plimsoll(up.url, **rules(tmp_path)) as proxy:
            got = await asked(proxy, asking(300, clear()), b"x-plimsoll-window: 8000")
            assert got.status == 200 and int(ours(got)["tokens-sent"]) < 8_000
            assert b"context_management" not in up.requests[-1].body
            assert json.loads(got.body)["context_management"] == {"applied_edits": []}

    run(check())
