"""`plimsoll demo`: seed 000's overlong conversation straight at a strict upstream (400) and through Plimsoll (200)."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import Any

from rich.console import Console

from proxy.cli.picture import picture

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
    "Which of these matters most today? Answer in one sentence, and name the entry, its own day and who has to sign "
    "the book before the next shift begins its first round."
)
HERE = "127.0.0.1"
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


BODY = {"model": "gpt-4", "max_tokens": 3000, "messages": conversation()}


def run(stay: bool = False, console: Console | None = None) -> int:
    """Shows it; exit code 0 where the promise held."""
    console = console or Console()
    with both() as (upstream, proxy):
        straight, fitted = ask(upstream), ask(proxy)
        console.rule("straight to the provider")
        _show_answer(console, straight)
        console.rule("through Plimsoll")
        _show_answer(console, fitted)
        console.rule("what was done")
        console.print(picture(post(proxy, "/inspect/v1/chat/completions", BODY)[2], console.width))
        if stay:
            _wait(console, proxy)
    return 0 if (straight[0], fitted[0]) == (400, 200) else 1


def ask(port: int) -> Answer:
    """The overlong conversation, sent there."""
    return post(port, "/v1/chat/completions", BODY)


def _show_answer(console: Console, answer: Answer) -> None:
    status, headers, told = answer
    console.print(f"HTTP {status}", style="bold green" if status == 200 else "bold red")
    for name in sorted(name for name in headers if name.startswith("x-plimsoll")):
        console.print(f"{name}: {headers[name]}", style="dim", highlight=False)
    if status == 200:
        console.print(told["choices"][0]["message"]["content"], highlight=False)
        counted = told["usage"]["prompt_tokens"]
        console.print(f"usage, as the provider counted it: {counted:,} prompt tokens", highlight=False)
    else:
        console.print(told["error"]["message"], highlight=False)


def _wait(console: Console, proxy: int) -> None:
    console.print(f"\nserving: OPENAI_BASE_URL=http://{HERE}:{proxy}/v1   (Ctrl-C ends it)", highlight=False)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def post(port: int, path: str, body: dict[str, Any]) -> Answer:
    """Status, headers and JSON of one request."""
    connection = http.client.HTTPConnection(HERE, port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def both() -> Iterator[tuple[int, int]]:
    """The simulator and the proxy before it, started side by side; their ports."""
    upstream, proxy = free_ports()
    with ExitStack() as stack:
        stack.enter_context(started("simulate", upstream))
        stack.enter_context(started("serve", proxy, PLIMSOLL_UPSTREAM=f"http://{HERE}:{upstream}/v1"))
        wait_for(upstream, "/v1/models")
        wait_for(proxy, "/readyz")
        yield upstream, proxy


@contextmanager
def started(command: str, port: int, **environment: str) -> Iterator[None]:
    """One of our commands in a process of its own, without the settings of whoever runs the demo. What it says is
    shown where it does not end well."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_"))}
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy.cli", command, "--port", str(port)],
            env={**others, **environment},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        try:
            yield
        finally:
            if _ended(process):
                said.seek(0)
                sys.stderr.write(said.read())


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that is told to end, and made to where it does not."""
    process.send_signal(signal.SIGINT)  # SIGTERM would leave a load balancer time to hear of it
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens on now."""
    with socket.create_server((HERE, 0)) as one, socket.create_server((HERE, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def wait_for(port: int, path: str) -> None:
    """Until it answers. Raises TimeoutError where it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(HERE, port, timeout=START_SECONDS)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise TimeoutError(f"nothing came up on port {port}")
