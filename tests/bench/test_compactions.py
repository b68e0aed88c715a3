"""The scripted upstream of the bench of compactions."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.bench.compactions.__main__ import CODES, main, said
from tests.bench.compactions.agents import AGENTS
from tests.bench.compactions.upstream import CHAT, MESSAGES, RESPONSES, Script, upstream

ASKED = "Please read the file /w/part_1.md and tell me."
TOOLS = {
    CHAT: [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}],
    MESSAGES: [{"name": "Read", "input_schema": {"type": "object"}}],
    RESPONSES: [{"type": "function", "name": "exec_command", "parameters": {"type": "object"}}],
}


def body(path: str, *messages: dict[str, Any]) -> dict[str, Any]:
    more = {"max_tokens": 9} if path == MESSAGES else {}
    key = "input" if path == RESPONSES else "messages"
    return {"model": "house-1", key: list(messages), "tools": TOOLS[path], **more}


def post(url: str, path: str, sent: dict[str, Any]) -> str:
    request = urllib.request.Request(url + path, json.dumps(sent).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
def test_it_has_the_file_read_and_sums_up_the_codes(path: str, stream: bool) -> None:
    script = Script(said())
    with upstream(script) as url:
        called = post(url, path, {**body(path, {"role": "user", "content": ASKED}), "stream": stream})
        assert "part_1.md" in called and any(tool in called for tool in ("read_file", "Read", "exec_command"))
        found = post(url, path, {**body(path, {"role": "user", "content": f"{CODES[0]} {CODES[9]}"}), "stream": stream})
        assert f"The codes so far: {CODES[0]}, {CODES[9]}." in found
    assert [sorted(seen.codes) for seen in script.seen] == [[], [CODES[0], CODES[9]]]


def test_past_its_window_it_refuses() -> None:
    script = Script({}, window=50)
    with upstream(script) as url, pytest.raises(urllib.error.HTTPError) as caught:
        post(url, CHAT, body(CHAT, {"role": "user", "content": "word " * 100}))
    assert caught.value.code == 400 and "maximum context length is 50" in caught.value.read().decode()
    assert not script.seen[0].answered


def test_an_agent_that_is_missing_is_named(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["compactions", str(tmp_path)])
    assert main() == 2
    assert all(f"no {agent.executable} in" in capsys.readouterr().err for agent in AGENTS[:1])
