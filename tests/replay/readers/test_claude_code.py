"""Claude Code's sessions."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.outcome import Usage
from proxy.replay.recorded import TOO_LONG
from tests.replay.readers.reading import body, requests, skipped, survives

USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 900, "output_tokens": 7}


def line(kind: str, content: Any, number: str = "", second: int = 0, **more: Any) -> dict[str, Any]:
    """One line of a session."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": number, "model": "claude-sonnet-4-5", "usage": USAGE}
    return {
        "type": kind,
        "sessionId": "s1",
        "uuid": f"u{second}",
        "timestamp": f"2025-11-13T02:13:{second:02}Z",
        "cwd": "/home/ann/shop",
        "isSidechain": False,
        "message": message,
        **more,
    }


TEXT = [{"type": "text", "text": "Looking."}]
CALL = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}]
SESSION = (
    {"type": "file-history-snapshot", "messageId": "m"},
    line("user", "Fix it", second=20),
    line("assistant", TEXT, "msg_1", 21),
    line("assistant", CALL, "msg_1", 21),
    line("user", RESULT, second=22),
    line("assistant", TEXT, "msg_2", 23),
)


def test_a_request_is_rebuilt_before_each_answer() -> None:
    first, second = requests("Claude Code", *SESSION)
    assert body(first)["messages"] == [{"role": "user", "content": "Fix it"}]
    assert body(second)["messages"] == [
        {"role": "user", "content": "Fix it"},
        {"role": "assistant", "content": [*TEXT, *CALL]},
        {"role": "user", "content": RESULT},
    ]
    assert (first.app, first.path, first.missing) == ("shop", "/v1/messages", ("system prompt", "tools"))
    assert first.usage == Usage(953, 7, 900, written=50) and first.at == 1_763_000_001.0


def test_side_chains_are_conversations_of_their_own() -> None:
    side = (line("user", "Find", second=24, isSidechain=True), line("assistant", TEXT, "msg_3", 25, isSidechain=True))
    found = requests("Claude Code", *SESSION, *side)
    assert body(found[-1])["messages"] == [{"role": "user", "content": "Find"}]


def test_a_compaction_begins_anew() -> None:
    later = (line("user", "Summary", second=24, isCompactSummary=True), line("assistant", TEXT, "msg_3", 25))
    assert body(requests("Claude Code", *SESSION, *later)[-1])["messages"] == [{"role": "user", "content": "Summary"}]


def test_what_claude_code_wrote_itself_is_no_answer() -> None:
    error = line("assistant", TEXT, "x", 24, isApiErrorMessage=True)
    assert len(requests("Claude Code", *SESSION, error)) == 2
    assert skipped("Claude Code", line("assistant", TEXT, "msg_1")) == ["an answer whose request is not in the file"]


def test_a_conversation_without_an_end_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.replay.readers.claude_code.MAX_SESSION", 3_000)
    lines = [*SESSION, *(line("user", f"More {i}", second=24) for i in range(30)), line("assistant", TEXT, "msg_3", 25)]
    found = requests("Claude Code", *lines)
    assert TOO_LONG.why in skipped("Claude Code", *lines) and len(found[-1].body) < 3_000 and len(found) == 3


def test_wrong_types_are_survived() -> None:
    survives("Claude Code", line("assistant", TEXT, "msg_1"))
    survives("Claude Code", line("user", "Fix it"))
