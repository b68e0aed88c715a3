"""Codex's sessions."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.outcome import Usage
from proxy.replay.recorded import TOO_LONG
from tests.replay.readers.reading import body, requests, skipped, survives


def line(kind: str, second: int = 0, **payload: Any) -> dict[str, Any]:
    """One line of a session."""
    return {"timestamp": f"2025-11-13T02:13:{second:02}.000Z", "type": kind, "payload": payload}


def message(role: str, text: str, second: int = 0) -> dict[str, Any]:
    """A line with a message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return line("response_item", second, type="message", role=role, content=[{"type": kind, "text": text}])


def counted(**tokens: int) -> dict[str, Any]:
    """A line with the usage of the request before it."""
    return line("event_msg", type="token_count", info={"last_token_usage": tokens})


CALL = line("response_item", 21, type="function_call", name="shell", arguments="{}", call_id="c1", id="fc_1")
RESULT = line("response_item", 22, type="function_call_output", call_id="c1", output="a.py")
SESSION = (
    line("session_meta", cwd="/home/ann/shop", base_instructions={"text": "You are Codex."}),
    line("turn_context", model="gpt-5-codex"),
    message("user", "Fix it", 20),
    CALL,
    counted(input_tokens=900, cached_input_tokens=512, output_tokens=20),
    RESULT,
    message("assistant", "Done.", 23),
)


def test_a_request_is_rebuilt_before_each_answer() -> None:
    first, second = requests("Codex", *SESSION)
    assert body(first)["instructions"] == "You are Codex." and body(first)["model"] == "gpt-5-codex"
    assert [item["type"] for item in body(first)["input"]] == ["message"]
    assert [item["type"] for item in body(second)["input"]] == ["message", "function_call", "function_call_output"]
    assert "id" not in body(second)["input"][1]
    assert (first.usage, second.usage) == (Usage(900, 20, 512), None)
    assert (first.app, first.at, first.missing, first.path) == ("shop", 1_763_000_001.0, ("tools",), "/v1/responses")


def test_older_sessions_lack_the_instructions() -> None:
    assert requests("Codex", *SESSION[1:])[0].missing == ("instructions", "tools")


def test_a_compaction_begins_anew() -> None:
    later = (line("compacted", message="So far: done."), message("user", "Go on"), message("assistant", "Yes"))
    assert len(body(requests("Codex", *SESSION, *later)[-1])["input"]) == 2
    history = line("compacted", replacement_history=[{"type": "message", "role": "user", "content": []}])
    assert len(body(requests("Codex", *SESSION, history, *later[1:])[-1])["input"]) == 2


def test_an_answer_without_a_model_is_told() -> None:
    assert "an answer whose request or model is not in the file" in skipped("Codex", *SESSION[2:])


def test_a_conversation_without_an_end_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.replay.readers.codex.MAX_SESSION", 3_000)
    lines = [*SESSION, *(message("user", f"More {i}", 24) for i in range(30)), message("assistant", "Yes", 25)]
    found = requests("Codex", *lines)
    assert TOO_LONG.why in skipped("Codex", *lines) and len(found[-1].body) < 3_000 and len(found) == 3


def test_wrong_types_are_survived() -> None:
    for one in SESSION:
        survives("Codex", one)
