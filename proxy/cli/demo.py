"""`plimsoll demo`: sends an overlong conversation to a strict upstream directly (400) and through Plimsoll (200)."""

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

from proxy.cli.picture import picture, terminal, view

START_TIMEOUT_S = 30.0  # a first start on a slow machine reads its modules from disk
TOPICS = (
    "the harbour crane",
    "the cargo list",
    "the tide tables",
    "the new pilot",
    "the ballast pumps",
    "the manifest",
)
FACT_AT = 21  # the message that holds the answer to the question, long before the newest that fit
FACT = (
    "Note: since its brake was repaired, the crane on the north quay lifts 38 tonnes at most. Inspector Okafor signed "
    "for that, and the limit stays until she has seen the new brake at work once more herself."
)
QUESTION = "How many tonnes may the crane on the north quay lift now, and who signed for that? Answer in one sentence."
LOCALHOST = "127.0.0.1"
Response = tuple[int, dict[str, str], Any]  # status, headers, JSON


def conversation(messages: int = 142) -> list[dict[str, str]]:
    """Seed 000's case: a conversation of 7,793 tokens for gpt-4, the same every time. One early message holds the fact
    that the question asks for."""
    rng = random.Random(8192)
    messages_ = [{"role": "system", "content": "You are the harbour master's assistant. Be brief and exact."}]
    for turn in range(messages):
        topic, number = rng.choice(TOPICS), rng.randrange(100, 999)
        if turn % 2 == 0:
            text = f"About {topic}: entry {number} says it was checked on day {turn // 2 + 1}. "
            messages_.append({"role": "user", "content": text + "What follows from that for the next shift? " * 2})
        else:
            text = f"Entry {number} on {topic} stands. The next shift checks it again and signs the book. "
            text += "Nothing else changes until then; the log is closed. " * 4
            messages_.append({"role": "assistant", "content": text})
    messages_[FACT_AT] = {"role": "user", "content": FACT}
    return [*messages_, {"role": "user", "content": QUESTION}]


BODY = {"model": "gpt-4", "max_tokens": 3000, "messages": conversation()}


def run(stay: bool = False, console: Console | None = None) -> int:
    """Runs the demo; `stay` leaves both servers running. Returns the exit code: 0 if the statuses are 400 and 200 and
    the fact was sent."""
    console = console or terminal()
    with servers() as (upstream, proxy):
        direct, fitted = send(upstream), send(proxy)
        plan = post(proxy, "/inspect/v1/chat/completions", BODY)[2]
        console.rule("directly to the provider")
        _show_response(console, direct)
        console.rule("through Plimsoll")
        _show_response(console, fitted)
        console.rule("what survived")
        survived = _show_fact(console, plan)
        console.rule("what Plimsoll did")
        console.print(picture(plan, view(console)))
        if stay:
            _wait(console, proxy)
    return 0 if (direct[0], fitted[0], survived) == (400, 200, True) else 1


def send(port: int) -> Response:
    """Sends the overlong conversation to a port."""
    return post(port, "/v1/chat/completions", BODY)


def _show_response(console: Console, response: Response) -> None:
    status, headers, body = response
    console.print(f"HTTP {status}", style="bold green" if status == 200 else "bold red")
    for name in sorted(name for name in headers if name.startswith("x-plimsoll")):
        console.print(f"{name}: {headers[name]}", style="dim", highlight=False)
    if status == 200:
        console.print(body["choices"][0]["message"]["content"], highlight=False)
        prompt_tokens = body["usage"]["prompt_tokens"]
        console.print(f"usage reported by the provider: {prompt_tokens:,} prompt tokens", highlight=False)
    else:
        console.print(body["error"]["message"], highlight=False)


def _show_fact(console: Console, plan: dict[str, Any]) -> bool:
    """Shows the question, the early message that answers it, and whether that was sent."""
    survived = any(FACT in message["content"] for message in plan["request"]["messages"])
    rows = [row for row in plan["messages"]["detail"] if row["index"] == FACT_AT]
    states = [f"{row['state']}: {row['why'].removeprefix(row['state'] + ': ')}" for row in rows]
    console.print(f"Question: {QUESTION}", highlight=False)
    console.print(f"Message #{FACT_AT} of {plan['messages']['in']} holds the answer: {FACT}", highlight=False)
    found = f"It was {'sent word for word' if survived else 'lost'} ({', '.join(states) or 'absent'})."
    console.print(found, style="bold green" if survived else "bold red", highlight=False)
    return survived


def _wait(console: Console, proxy: int) -> None:
    console.print(f"\nserving: OPENAI_BASE_URL=http://{LOCALHOST}:{proxy}/v1   (Ctrl-C to stop)", highlight=False)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def post(port: int, path: str, body: dict[str, Any]) -> Response:
    """Sends one POST request with a JSON body."""
    connection = http.client.HTTPConnection(LOCALHOST, port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, json.loads(response.read())
    finally:
        connection.close()


@contextmanager
def servers() -> Iterator[tuple[int, int]]:
    """Runs the simulator and a proxy in front of it; yields their ports."""
    upstream, proxy = free_ports()
    with ExitStack() as stack:
        stack.enter_context(started("simulate", upstream))
        stack.enter_context(started("serve", proxy, PLIMSOLL_UPSTREAM=f"http://{LOCALHOST}:{upstream}/v1"))
        wait_for(upstream, "/v1/models")
        wait_for(proxy, "/readyz")
        yield upstream, proxy


@contextmanager
def started(command: str, port: int, **environment: str) -> Iterator[None]:
    """Runs one of our commands in a process, without the user's own settings. Prints its standard error if it fails."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "LLM_", "CONTEXT_"))}
    with TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy.cli", command, "--port", str(port)],
            env={**inherited, **environment},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        try:
            yield
        finally:
            if _stop(process):
                stderr.seek(0)
                sys.stderr.write(stderr.read())


def _stop(process: subprocess.Popen[bytes]) -> int:
    """Stops a process and returns its exit code; kills it after 10 seconds."""
    process.send_signal(signal.SIGINT)  # after SIGTERM it would wait for a load balancer to notice
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def free_ports() -> tuple[int, int]:
    """Two ports that are free now."""
    with socket.create_server((LOCALHOST, 0)) as one, socket.create_server((LOCALHOST, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def wait_for(port: int, path: str) -> None:
    """Waits until a GET returns 200. Raises `TimeoutError` after `START_TIMEOUT_S`."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(LOCALHOST, port, timeout=START_TIMEOUT_S)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise TimeoutError(f"nothing responds on port {port}")
