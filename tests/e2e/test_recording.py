"""A recording of every API, written by a running proxy: usage and figures are there, no key and no content is."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.observe.recording.recording_files import lines
from tests.e2e.world import World, eventually, world

KEY, CANARY = "sk-canary-key-0123456789", "zanzibar"
HEADERS = {
    **{"authorization": f"Bearer {KEY}", "x-api-key": KEY, "content-type": "application/json"},
    **{
        "anthropic-version": "2023-06-01",
        "x-canary": CANARY,
        "user-agent": CANARY,
        "x-request-id": CANARY,
        "cookie": f"session={CANARY}",
    },
    **{"traceparent": "00-" + "ca" * 16 + "-" + "fe" * 8 + "-01", "baggage": f"user={CANARY}"},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL = {"name": f"get_{CANARY}", "description": f"Of {CANARY}"}
SCHEMA = {"type": "object", "properties": {CANARY: {"type": "string", "description": CANARY, "enum": [CANARY]}}}
CALL = {"name": TOOL["name"], "arguments": json.dumps({CANARY: CANARY})}
CHAT: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": f"You are {CANARY}."},
        {
            "role": "user",
            "name": CANARY,
            "content": [
                {"type": "text", "text": f"I am {CANARY}"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        {"role": "assistant", "tool_calls": [{"id": f"call_{CANARY}", "type": "function", "function": CALL}]},
        {"role": "tool", "tool_call_id": f"call_{CANARY}", "content": json.dumps([{CANARY: CANARY}])},
        {"role": "user", "content": CANARY},
    ],
    "tools": [{"type": "function", "function": {**TOOL, "parameters": SCHEMA}}],
    "metadata": {CANARY: CANARY},
    "user": CANARY,
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-4o",
    "instructions": CANARY,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": CANARY}]},
        {"type": "function_call", "call_id": f"call_{CANARY}", **CALL},
        {"type": "function_call_output", "call_id": f"call_{CANARY}", "output": CANARY},
    ],
    "tools": [{"type": "function", **TOOL, "parameters": SCHEMA}],
}
MESSAGES: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": CANARY, "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": CANARY},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": CANARY},
                {"type": "tool_use", "id": f"toolu_{CANARY}", "name": TOOL["name"], "input": {CANARY: [CANARY, 7319]}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{CANARY}", "content": CANARY}]},
    ],
    "tools": [{**TOOL, "input_schema": SCHEMA}],
    "metadata": {"user_id": CANARY},
}
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/responses", RESPONSES),
    ("/v1/messages", MESSAGES),
    ("/v1/messages", {**MESSAGES, "stream": True}),
    ("/v1/completions", {"model": "gpt-3.5-turbo-instruct", "prompt": CANARY, "max_tokens": 10}),
    ("/v1/embeddings", {"model": "text-embedding-3-small", "input": [CANARY, "another"]}),
    ("/api/chat", {"model": "llama3.1", "messages": [{"role": "user", "content": CANARY}], "stream": False}),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A running proxy and the folder that it records in."""

    here: World
    folder: Path

    def ask(self, path: str, body: Any, **headers: str) -> int:
        """The status of an answer, which is read whole."""
        address = urlsplit(self.here.through)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
        try:
            data = body if isinstance(body, str) else json.dumps(body)
            connection.request("POST", f"{path}?api-version={CANARY}&key={KEY}", data, {**HEADERS, **headers})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def ask_all(self) -> list[dict[str, Any]]:
        """The lines of all requests of `ASKED`, each of which was recorded before the next one was sent."""
        found: list[dict[str, Any]] = []
        for path, body in ASKED:
            assert self.ask(path, body) == 200, path
            found = self.lines(len(found) + 1)
        return found

    def lines(self, count: int) -> list[dict[str, Any]]:
        """So many lines; waits for them."""
        eventually(lambda: len(self.read()) >= count, 30)
        return sorted((json.loads(line) for line in self.read()), key=lambda line: float(line["time"]))

    def read(self) -> list[bytes]:
        return [line for path in self.folder.iterdir() for line in lines(path)]


@contextmanager
def recorded(folder: Path, **environment: str) -> Iterator[Recorded]:
    with world(None, PLIMSOLL_RECORD=str(folder), **environment) as here:
        yield Recorded(here, folder)


def shape(value: Any) -> Any:
    """A body without its words."""
    if isinstance(value, dict):
        return [shape(one) for one in value.values()]
    return [shape(one) for one in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("content", ["meta", "redacted", "bodies"])
def test_no_key_is_recorded_and_content_only_where_it_is_asked_for(tmp_path: Path, content: str) -> None:
    with recorded(tmp_path, PLIMSOLL_RECORD_CONTENT=content) as made:
        made.ask_all()
        assert made.ask(f"/v1/files/{CANARY}", {"a": CANARY}) == 404
        assert made.ask("/v1/chat/completions", f'{{"model": "gpt-4o", {CANARY}') == 400
        assert made.ask("/v1/chat/completions", CHAT, **{"x-plimsoll-ladder": CANARY}) == 400
        found = made.lines(len(ASKED) + 3)
    assert len(found) == len(ASKED) + 3
    for line in found:
        text = json.dumps(line)
        assert KEY not in text and not line["path"].count(CANARY)
        assert content == "bodies" or CANARY not in text, text
    bodies = [line.get("request") for line in found[: len(ASKED)]]
    if content == "redacted":
        assert [shape(body) for body in bodies] == [shape(body) for _, body in ASKED]
        assert [line["content"] for line in found[-2:]] == ["dropped", "redacted"]
    else:
        assert bodies == ([body for _, body in ASKED] if content == "bodies" else [None] * len(ASKED))
    assert len({line["caller"] for line in found if line["api"] != "passthrough"}) == 1


def test_usage_of_streams_and_of_plain_answers_is_recorded(tmp_path: Path) -> None:
    with recorded(tmp_path) as made:
        found = made.ask_all()
    for line, (path, body) in zip(found, ASKED, strict=True):
        assert line["usage"]["prompt"] > 0 and (line["path"], line["model"]) == (path, body["model"])
        assert line.get("stream", False) == body.get("stream", False)
        assert abs(line["prompt"] - line["usage"]["prompt"]) < 200
    assert [line.get("finish") for line in found if line.get("stream")] == ["stop", "end_turn"]


def test_a_cut_is_recorded_with_its_steps_and_what_the_client_sent(tmp_path: Path) -> None:
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"{i} word" * 60} for i in range(101)]
    with recorded(tmp_path, PLIMSOLL_RECORD_CONTENT="bodies") as made:
        body = {"model": "gpt-4-0613", "messages": messages}
        assert made.ask("/v1/chat/completions", body, **{"x-plimsoll-window": "4000"}) == 200
        (line,) = made.lines(1)
    assert line["request"] == body and line["controls"] == {"window": 4000} and line["result"] == "fitted"
    assert line["prompt"] > line["prompt_sent"] and line["messages"] == 101 > line["messages_sent"]
    assert line["steps"][-1]["tokens_after"] == line["prompt_sent"]


def test_a_recording_that_fails_costs_no_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with recorded(tmp_path / "file" / "records", PLIMSOLL_RECORD_CONTENT="bodies") as made:
        assert [made.ask("/v1/chat/completions", CHAT) for _ in range(5)] == [200] * 5
        address = urlsplit(made.here.through)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)

        def failed() -> bool:
            connection.request("GET", "/metrics")
            return b'plimsoll_recorded_requests_total{result="failed"} 5.0' in connection.getresponse().read()

        eventually(failed, 30)
        connection.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
