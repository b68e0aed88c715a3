"""Each request is one line, without keys; a disk that fails costs lines and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import BODIES, META
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Mode, Note
from proxy.observe.recording import recorder as recording
from proxy.observe.recording.recorded_bodies import Headers
from proxy.observe.recording.recorded_lines import Request, figures
from proxy.observe.recording.recorder import Recorder, Sender
from proxy.observe.recording.recording_files import RecordingFiles, lines
from proxy.wire.controls import Controls
from proxy.wire.key_texts import HIDDEN
from tests.serving import eventually, run

PASSED = Outcome("chat", "passed", 200, model="gpt-4o", model_sent="gpt-4o", path="/v1/chat/completions")
KEY = b"sk-1234567890"


def sender(headers: Headers) -> Sender:
    hashes = ("key:12ab:0f",) if headers and headers[0][0] == b"x-hashed" else ()
    return Sender("ab12", (KEY,), hashes) if headers else Sender("")


def never(body: bytes, model: str, caller: str) -> bytes:
    raise AssertionError


@dataclass(slots=True)
class Desk:
    """A recorder in a folder, and its events."""

    folder: Path
    content: str = BODIES
    redact: Callable[[bytes, str, str], bytes] = never
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def recorder(self, folder: Path | None = None) -> Recorder:
        files = RecordingFiles(folder or self.folder, 1 << 30)
        return Recorder(files, self.content, sender=sender, redact=self.redact, event=self.event)

    def event(self, message: str, **figures: Any) -> None:
        self.events.append((message, figures))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for path in sorted(self.folder.iterdir()) for line in lines(path)]

    def recorded(self, *requests: Request) -> list[dict[str, Any]]:
        """The lines of these requests."""

        async def check() -> None:
            recorder = self.recorder()
            for request in requests:
                recorder.add([request])
            await recorder.close()

        run(check())
        return self.lines()


def of(body: bytes, *headers: tuple[bytes, bytes]) -> Request:
    return Request(PASSED, headers, True, body=body)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are shorter."""
    monkeypatch.setattr(recording, "WRITE_DELAY_S", 0.005)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield Desk(tmp_path / "kept")


def test_a_line_has_the_figures_of_the_request(desk: Desk) -> None:
    outcome = Outcome(
        *("chat", "fitted", 200, Mode.FIT, "agent", "gpt-4", "gpt-4o", 8192, "table", "exact", 9000, 5000, 3000),
        reply_asked=4000,
        reply_sent=3000,
        messages_in=40,
        messages_sent=20,
        notes=(Note("prune_history", 9000, 5000),),
        planned=(Note("clamp_output", 1, 2),),
        refusals=("openai",),
        healed=True,
        usage=Usage(5010, 7, 1024, "resp_1", 3),
        stream=True,
        truncated=True,
        own_seconds=0.001234,
        upstream_seconds=1.5,
        first_byte_seconds=0.25,
        path="/v1/chat/completions",
        attempts=2,
        request_id="req_1",
        caller="team",
        upstream="azure",
    )
    asked = Controls(Mode.FIT, "agent", 8192, frozenset({4, 2}), ("book",), "azure")
    (line,) = desk.recorded(Request(outcome, ((b"authorization", KEY),), True, asked, b"{}", "stop"))
    assert abs(line.pop("time") - time.time()) < 60
    assert line == {
        **{"v": 1, "api": "chat", "path": "/v1/chat/completions", "model": "gpt-4", "model_sent": "gpt-4o"},
        **{
            "upstream": "azure",
            "caller": "ab12",
            "caller_name": "team",
            "result": "fitted",
            "status": 200,
            "stream": True,
            "mode": "fit",
        },
        **{"ladder": "agent", "attempts": 2, "window": 8192, "window_source": "table", "count": "exact"},
        **{"prompt": 9000, "prompt_sent": 5000, "reserve": 3000, "max_tokens": 4000, "max_tokens_sent": 3000},
        **{"messages": 40, "messages_sent": 20, "refused": ["openai"], "healed": True, "truncated": True},
        "steps": [{"step": "prune_history", "tokens_before": 9000, "tokens_after": 5000}],
        "planned": [{"step": "clamp_output", "tokens_before": 1, "tokens_after": 2}],
        "controls": {"mode": "fit", "window": 8192, "pins": [2, 4], "ladder": "agent"},
        "usage": {"prompt": 5010, "completion": 7, "cached": 1024, "written": 3},
        "ms": {"own": 1.23, "upstream": 1500.0, "first_byte": 250.0},
        **{"finish": "stop", "bytes": 2, "content": "bodies", "request": {}},
    }


def test_words_of_a_client_in_its_headers_are_not_recorded(desk: Desk) -> None:
    asked = Controls(ladder="CANARY", lorebooks=("CANARY",), upstream="CANARY")
    (line,) = desk.recorded(Request(PASSED, ((b"x-canary", b"CANARY"),), True, asked))
    assert "CANARY" not in json.dumps(line) and "controls" in line


@pytest.mark.parametrize("text", ["CANARY is here", "CANARY" * 30, "CANARY\n"])
def test_a_text_in_place_of_a_model_is_not_recorded(desk: Desk, text: str) -> None:
    outcome = Outcome("chat", "passed", 200, model=text, model_sent="ft:gpt-4o:acme/é@1")
    (line,) = desk.recorded(Request(outcome, (), True))
    assert (line["model"], line["model_sent"]) == ("?", "ft:gpt-4o:acme/é@1")


def test_the_model_that_an_answer_names_is_not_recorded(desk: Desk) -> None:
    """It may be a name that no table knows, which redacted lines hide."""
    outcome = Outcome("chat", "passed", 200, usage=Usage(5, 2, model="CANARY", tier="flex"))
    (line,) = desk.recorded(Request(outcome, (), True))
    assert "CANARY" not in json.dumps(line) and line["usage"] == {"prompt": 5, "completion": 2, "tier": "flex"}


def test_the_model_that_an_answer_names_has_the_name_that_the_tables_have() -> None:
    """So the deployment of a request has a price in a replay."""
    outcome = Outcome("chat", "passed", 200, model_sent="mine", usage=Usage(5, 2, model="gpt-4o-2024-08-06"))
    line = figures(Request(outcome), "ann", 1.0, None, lambda model, caller: f"{caller}'s {model}")
    same = figures(Request(outcome), "ann", 1.0, None, None)
    assert line.usage == Usage(5, 2, model="ann's gpt-4o-2024-08-06") and same.usage == Usage(5, 2)


def test_hashes_of_the_senders_keys_are_in_its_lines(desk: Desk) -> None:
    (line,) = desk.recorded(Request(PASSED, ((b"x-hashed", b"1"),), True))
    assert line["caller_keys"] == ["key:12ab:0f"]


def test_figures_alone_have_no_body(desk: Desk) -> None:
    desk.content = META
    (line,) = desk.recorded(of(b'{"a":"CANARY"}'))
    assert "CANARY" not in json.dumps(line) and not line.keys() & {"request", "request_text", "content", "bytes"}


@pytest.mark.parametrize("body", [b'{"b": 1.0,  "a":"\\u00e9"}', '{"é": ["ü"]}'.encode(), b"[1,2]"])
def test_a_body_is_recorded_as_it_came(desk: Desk, body: bytes) -> None:
    desk.recorded(of(body))
    (path,) = desk.folder.iterdir()
    assert b'"request":' + body + b"}\n" in gzip.decompress(path.read_bytes())


def test_line_ends_between_values_become_spaces(desk: Desk) -> None:
    (line,) = desk.recorded(of(b'{\r\n "a": "x\\ny"\n}\n'))
    assert line["request"] == {"a": "x\ny"}


@pytest.mark.parametrize(
    "body",
    [b'{"a":1},"status":500,"b":{"c":1}', b'{"a":1', b"text", b'{"a":"\xff"}', b'{"a":"\ny"}', b"[" * 100_000],
)
def test_what_is_no_json_is_a_text_and_breaks_no_line(desk: Desk, body: bytes) -> None:
    one, two = desk.recorded(of(body), of(b"{}"))
    assert one["request_text"] == body.decode(errors="replace")
    assert (one["status"], two["request"]) == (200, {})


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"gzip", gzip.compress(b'{"a":1}', mtime=0)),
        (b" Deflate", zlib.compress(b'{"a":1}')),
        (b"identity", b'{"a":1}'),
    ],
)
def test_a_content_encoding_is_removed(desk: Desk, coding: bytes, packed: bytes) -> None:
    (line,) = desk.recorded(of(packed, (b"content-encoding", coding)))
    assert (line["request"], line["bytes"]) == ({"a": 1}, 7)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"br", b"?"),
        (b"gzip", b"{}"),
        (b"gzip", gzip.compress(b"{}", mtime=0)[:-4]),
        (b"gzip", gzip.compress(bytes(2000), mtime=0)),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_dropped(
    desk: Desk, coding: bytes, packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_BODY_BYTES", 1000)
    (line,) = desk.recorded(of(packed, (b"content-encoding", coding)))
    assert line["content"] == "dropped" and "request" not in line


KEYS = (
    {"messages": [{"role": "user", "content": KEY.decode()}]},
    {"tools": [{"type": "mcp", "server_url": "https://x", "authorization": "CANARY"}]},
    {"tools": [{"type": "mcp", "headers": {"Authorization": "Bearer CANARY", "X-Api-Key": 'CANARY\\"'}}]},
    {"mcp_servers": [{"type": "url", "authorization_token": "CANARY"}]},
    {"api_key": "CANARY", "aws_session_token": "CANARY"},
)


@pytest.mark.parametrize("body", KEYS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_no_key_is_in_a_body(desk: Desk, body: dict[str, Any], separators: tuple[str, str]) -> None:
    (line,) = desk.recorded(of(json.dumps(body, separators=separators).encode(), (b"authorization", KEY)))
    text = json.dumps(line)
    assert KEY.decode() not in text and "CANARY" not in text and HIDDEN in text
    assert line["request"].keys() == body.keys()


def test_a_request_that_is_not_fitted_has_figures_only(desk: Desk) -> None:
    (line,) = desk.recorded(Request(Outcome("passthrough", "passed", 200, path="/v1/files")))
    assert (line["api"], line["path"]) == ("passthrough", "/v1/files") and "content" not in line


def is_written(recorder: Recorder, count: int) -> bool:
    return recorder.results()[("written",)] == count


def is_free(recorder: Recorder, count: int) -> bool:
    """Whether they are written and nothing is held any more, which is a moment later."""
    return is_written(recorder, count) and recorder._held == recorder._returned


def test_bodies_above_what_is_held_are_recorded_without(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in progress counts, too; and what is written is free again."""
    monkeypatch.setattr(recording, "MAX_HELD_BYTES", 10_000)
    bodies = [json.dumps({"a": f"{number}" * 6_000}).encode() for number in range(8)]

    async def check() -> None:
        recorder = desk.recorder()
        held = recorder.hold(bodies[0])
        assert held == bodies[0] and recorder.hold(bodies[1]) is None
        recorder.add([of(bodies[1])])
        recorder.drop(held)
        for number, body in enumerate(bodies, 1):
            await eventually(partial(is_free, recorder, number), 30)
            recorder.add([of(body)])
        await recorder.close()

    run(check())
    found = [line.get("request", line["content"]) for line in desk.lines()]
    assert found == ["dropped", *map(json.loads, bodies)]


def test_a_body_that_is_very_long_is_recorded_without(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BODY_BYTES", 10_000)
    bodies = [json.dumps("a" * size).encode() for size in (9_999, 9_998, 9)]
    assert [line["content"] for line in desk.recorded(*map(of, bodies))] == ["dropped", "bodies", "bodies"]


@pytest.mark.parametrize("content", [META, BODIES])
def test_what_a_slow_disk_does_not_take_is_dropped_and_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """The disk is a pipe that nobody reads until the end. Adding never waits for it."""
    monkeypatch.setattr(recording, "MAX_HELD_BYTES", 50_000)
    monkeypatch.setattr(recording, "WRITE_BYTES", 10_000)
    reading, writing = os.pipe()
    taken, write = threading.Event(), os.write

    def to_pipe(file: int, data: bytes) -> int:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while not taken.is_set():
                write(writing, b"-" * 4096)  # until it is full
        taken.set()
        os.set_blocking(writing, True)
        return write(writing, data)

    monkeypatch.setattr(os, "write", to_pipe)
    desk.content = content

    async def check() -> None:
        recorder = desk.recorder()
        recorder.add([of(b"{}")])
        await eventually(taken.is_set, 30)
        for number in range(1000):
            recorder.add([of(b'{"a":%d}' % number)])
        dropped = recorder.results()[("dropped",)]
        assert 500 < dropped < 1000
        drain = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(reading, 1 << 20), b"")])
        drain.start()
        await recorder.close()
        os.close(writing)
        drain.join(20)
        assert recorder.results() == {("dropped",): dropped, ("written",): 1001 - dropped, ("failed",): 0}

    run(check())
    os.close(reading)


def test_closing_waits_only_so_long_for_a_stuck_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FLUSH_S", 0.05)
    stuck = threading.Event()
    monkeypatch.setattr(RecordingFiles, "append", lambda files, lines: stuck.wait(20))

    async def check() -> None:
        recorder = desk.recorder()
        recorder.add([of(b"{}")])
        await asyncio.wait_for(recorder.close(), 10)
        stuck.set()

    run(check())


def failed(recorder: Recorder, count: int) -> bool:
    return recorder.results()[("failed",)] == count


def test_a_folder_that_cannot_be_is_told_once_and_again_when_it_can(desk: Desk) -> None:
    desk.folder.mkdir()
    (desk.folder / "taken").write_bytes(b"")

    async def check() -> None:
        recorder = desk.recorder(desk.folder / "taken" / "records")
        for number in range(1, 4):
            recorder.add([of(b"{}")])
            await eventually(partial(failed, recorder, number), 30)
        assert [event for event, _ in desk.events] == ["requests are not recorded"]
        assert desk.events[0][1]["reason"] == "Not a directory"
        (desk.folder / "taken").unlink()
        recorder.add([of(b"{}")])
        await recorder.close()
        assert recorder.results() == {("written",): 1, ("failed",): 3, ("dropped",): 0}
        assert [event for event, _ in desk.events][1:] == ["requests are recorded again"]

    run(check())


def test_a_bug_of_ours_loses_its_line_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        recorder = desk.recorder()
        with monkeypatch.context() as patch:
            patch.setattr(recording, "figures", lambda *request: 1 / 0)
            recorder.add([of(b"{}")])
            await eventually(lambda: recorder.results()[("failed",)] == 1, 30)
        recorder.add([of(b"{}")])
        await recorder.close()
        assert recorder.results()[("written",)] == 1

    run(check())
    assert desk.events[0][1]["reason"] == "ZeroDivisionError"


def test_B3_an_error_that_nobody_expects_loses_a_batch_and_the_thread_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        recorder = desk.recorder()
        with monkeypatch.context() as patch:
            patch.setattr(recorder, "_count", lambda problem, count: 1 / 0)
            recorder.add([of(b"{}")])
            await eventually(lambda: recorder.results()[("failed",)] == 1, 60)
        recorder.add([of(b'{"a":1}')])
        await recorder.close()
        assert recorder.results() == {("written",): 1, ("failed",): 1, ("dropped",): 0}

    run(check())
    assert desk.lines()[-1]["request"] == {"a": 1}


def test_a_line_that_cannot_be_made_breaks_no_other(desk: Desk) -> None:
    broken = Outcome("chat", "passed", 200, model="gpt-4o", path="\ud800")
    good = desk.recorded(of(b"{}"), Request(broken, fitted=True, body=b"{}"), of(b'{"a":1}'), of(b"{}"), of(b"{}"))
    assert [line["request"] for line in good] == [{}, {"a": 1}, {}, {}]
    assert [event["reason"] for _, event in desk.events] == ["UnicodeEncodeError"]


def test_requests_that_end_together_are_a_line_each(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether their bodies are short or long, new or known, and also if one of them cannot be a line."""
    broken = Request(Outcome("chat", "passed", 200, model="gpt-4o", path="\ud800"), fitted=True, body=b"{}")
    bodies = [json.dumps({"a": f"{size}" * size}).encode() for size in (1, 100, 3_000, 9_000, 30_000, 200_000)]
    bodies += [b"no JSON", b'{"api_key":"sk-1"}', *bodies]
    ended = [*map(of, bodies), broken, Request(PASSED, fitted=True, body=None), *map(of, bodies)]

    async def check() -> None:
        recorder = desk.recorder()
        for count in (1, 2):
            recorder.add(ended)
            await eventually(partial(is_written, recorder, count * (len(ended) - 1)), 30)
        await recorder.close()
        assert recorder.results() == {("written",): 2 * len(ended) - 2, ("failed",): 2, ("dropped",): 0}

    run(check())
    found = [line.get("request", line.get("request_text", line["content"])) for line in desk.lines()]
    wanted: list[object] = ["dropped", "no JSON", "no JSON", {"api_key": "***"}, {"api_key": "***"}]
    wanted += [json.loads(body) for body in bodies * 2 if body not in (b"no JSON", b'{"api_key":"sk-1"}')]
    assert sorted(map(str, found)) == sorted(map(str, wanted * 2))


def test_batches_are_no_longer_than_they_may_be(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append = RecordingFiles.append

    def noted(files: RecordingFiles, text: bytes) -> None:
        sizes.append(len(text))
        append(files, text)

    monkeypatch.setattr(RecordingFiles, "append", noted)
    monkeypatch.setattr(recording, "WRITE_BYTES", 100_000)
    body = json.dumps({"a": os.urandom(30_000).hex()}).encode()

    async def check() -> None:
        recorder = desk.recorder()
        recorder.add([of(body)])
        await eventually(partial(is_written, recorder, 1), 30)
        for _ in range(100):
            recorder.add([of(body)])
        await recorder.close()

    run(check())
    assert len(sizes) > 10 and max(sizes) < 200_000
    assert [line["request"] for line in desk.lines()] == [json.loads(body)] * 101


def test_nothing_is_started_for_nothing(desk: Desk) -> None:
    threads = {*threading.enumerate()}
    run(desk.recorder().close())
    assert {*threading.enumerate()} <= threads and not desk.folder.exists()
