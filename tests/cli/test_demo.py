"""The demo: the same promise as its picture shows, and no process left behind."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from proxy.cli import demo
from proxy.cli.demo import BODY, FACT, FACT_AT, QUESTION, conversation
from tests.cli.test_main import CLEAN


def test_the_conversation_is_the_same_every_time_and_ends_with_the_question() -> None:
    talk = conversation()
    assert talk == conversation()
    assert (len(talk), talk[0]["role"], talk[-1]["content"]) == (144, "system", QUESTION)
    assert [m["role"] for m in talk[1:3]] == ["user", "assistant"]
    assert [i for i, m in enumerate(talk) if FACT in m["content"]] == [FACT_AT]
    assert BODY == {"model": "gpt-4", "max_tokens": 3000, "messages": talk}


@pytest.fixture(scope="module")
def shown() -> str:
    """What it prints; the settings of whoever looks at it change nothing."""
    console = Console(file=io.StringIO(), record=True, width=80)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_MODE", "off")
        assert demo.run(console=console) == 0
    return console.export_text()


def test_it_shows_400_straight_200_through_the_proxy_and_what_was_done(shown: str) -> None:
    told = [line.strip() for line in shown.splitlines()]
    assert "HTTP 400" in told and "HTTP 200" in told
    assert "However, you requested 10793" in shown
    sent = next(int(line.partition(": ")[2]) for line in told if line.startswith("x-plimsoll-tokens-sent: "))
    assert 4_000 < sent < 5_192
    for line in (
        "x-plimsoll-count: exact",
        f"x-plimsoll-steps: prune_history;{sent - 7793}",
        "x-plimsoll-tokens: 7793",
        f"usage reported by the provider: {sent:,} prompt tokens",
    ):
        assert line in told
    assert re.search(rf"\bprompt +7,793 +{sent:,} \d+ of 144 messages sent, 2 added", shown)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_fact_that_the_question_needs_survives_and_is_shown(shown: str) -> None:
    part = shown.partition(" what survived ")[2].partition(" what Plimsoll did ")[0]
    text = " ".join(part.split())
    assert f"Question: {QUESTION}" in text and f"Message #{FACT_AT} of 144 holds the answer: {FACT}" in text
    assert "It was sent word for word (kept: order)." in text


def test_the_readme_shows_the_beginning_of_what_it_really_prints(shown: str) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.partition("$ make demo\n")[2].partition("\n```")[0].splitlines()
    assert [line.rstrip() for line in shown.splitlines()][: len(block)] == block
    assert any("It was sent word for word" in line for line in block)
    assert any(line.startswith("sent ") for line in block)


def test_it_fails_where_the_promise_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    short: Any = {"model": "gpt-4", "messages": [{"role": "user", "content": "short"}]}
    monkeypatch.setattr(demo, "BODY", short)
    console = Console(file=io.StringIO(), record=True, width=80)
    assert demo.run(console=console) == 1
    text = console.export_text()
    assert "The simulator read 1 messages" in text and "It was lost (absent)." in text


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so does all that this starts in turn."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_with_serve_both_stay_until_they_are_told_to_end() -> None:
    command = [sys.executable, "-m", "proxy.cli", "demo", "--serve"]
    with subprocess.Popen(command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            found = None
            for line in process.stdout:
                if found := re.search(rb"OPENAI_BASE_URL=http://127\.0\.0\.1:(\d+)/v1", line):
                    break
            assert found is not None
            port = int(found[1])
            assert demo.post(port, "/v1/chat/completions", BODY)[0] == 200
            process.send_signal(signal.SIGINT)
            assert (process.wait(60), process.stderr.read()) == (0, b"")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
        finally:
            process.kill()


def test_a_command_that_cannot_begin_is_heard(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with demo.started("serve", demo.free_ports()[0], PLIMSOLL_MODE="sideways"):
        begun[0].wait(60)
    assert "PLIMSOLL_MODE is 'sideways'" in capfd.readouterr().err


def test_a_process_that_does_not_end_is_made_to() -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(60)"

    class Impatient(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            return super().wait(timeout and 0.1)

    with Impatient([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert demo._stop(process) == -signal.SIGKILL


def test_what_does_not_come_up_is_waited_for_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "START_TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError, match="nothing responds on port"):
        demo.wait_for(demo.free_ports()[0], "/readyz")


def test_an_answer_is_status_headers_and_json() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 418 x\r\nX-Plimsoll-Tokens: 3\r\ncontent-length: 2\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        assert demo.post(server.getsockname()[1], "/", {}) == (
            418,
            {"x-plimsoll-tokens": "3", "content-length": "2"},
            json.loads("{}"),
        )
        thread.join()
