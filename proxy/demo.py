"""`plimsoll demo`: seed 000's overlong conversation straight at a strict upstream (400) and through Plimsoll (200)."""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console

from proxy.picture import picture

START_SECONDS = 30.0  # a first start on a slow machine reads its modules from a cold disk
TOPICS = (
    "the harbour crane",
    "the cargo list",
    "the tide tables",
    "the new pilot",
    "the ballast pumps",
    "the manifest",
)
QUESTION = (
    "Which of these matters most today? Answer in one sentence, and name the entry, its own day and who has to sign the "
    "book before the next shift begins its first round."
)
Answer = tuple[int, dict[str, str], Any]


def conversation(messages: int = 142) -> list[dict[str, str]]:
    """Seed 000's case, a talk of 7,793 tokens for gpt-4, made up the same way every time."""
    dice = random.Random(8192)
    talk = [{"role": "system", "content": "You are the harbour master's assistant. Be brief and exact."}]
    for turn in range(messages):
        topic, number = dice.choice(TOPICS), dice.randrange(100, 999)
        if turn % 2 == 0:
            text = f"About {topic}: entry {number} says it was checked on day {turn // 2 + 1}. "
            talk.append({"role": "user", "content": text + "What follows from that for the next shift? " * 2})
        else:
            text = f"Entry {number} on {topic} stands. The next shift checks it again and signs the book. "
            text += "Nothing else changes until then; the log is closed. " * 4
            talk.append({"role": "assistant", "content": text})
    return [*talk, {"role": "user", "content": QUESTION}]


def run(stay: bool = False, console: Console | None = None) -> int:
    """Shows it; exit code 0 where the promise held."""
    console = console or Console()
    body = {"model": "gpt-4", "max_tokens": 3000, "messages": conversation()}
    with ExitStack() as stack:
        upstream = stack.enter_context(started("simulate", {}))
        proxy = stack.enter_context(started("serve", {"PLIMSOLL_UPSTREAM": f"http://127.0.0.1:{upstream}/v1"}))
        console.rule("straight to the provider")
        status, _, answer = post(upstream, "/v1/chat/completions", body)
        console.print(f"HTTP {status}", style="bold red" if status != 200 else "bold green")
        console.print(answer["error"]["message"] if status != 200 else answer["choices"][0]["message"]["content"])
        console.rule("through Plimsoll")
        fitted, headers, answer = post(proxy, "/v1/chat/completions", body)
        console.print(f"HTTP {fitted}", style="bold green" if fitted == 200 else "bold red")
        for name in sorted(name for name in headers if name.startswith("x-plimsoll")):
            console.print(f"{name}: {headers[name]}", style="dim", highlight=False)
        if fitted == 200:
            console.print(f"usage as the provider counted it: {answer['usage']}", highlight=False)
        console.rule("what was done")
        console.print(picture(post(proxy, "/inspect/v1/chat/completions", body)[2], console.width))
        if stay:
            console.print(f"\nserving: OPENAI_BASE_URL=http://127.0.0.1:{proxy}/v1   (Ctrl-C ends it)")
            _wait()
    return 0 if (status, fitted) == (400, 200) else 1


def _wait() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def post(port: int, path: str, body: dict[str, Any]) -> Answer:
    """Status, headers and JSON of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def started(command: str, environment: dict[str, str]) -> Iterator[int]:
    """One of our commands in a process of its own, on a free port."""
    port = free_port()
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", command, "--port", str(port)],
        env={**ours, **environment},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    """A port that nobody listens on now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until it answers. Raises RuntimeError where it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status in (200, 404):
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"nothing came up on port {port}")
