"""How long what clients send holds up others: an idle client's latency, processor time and memory, for each attack.

`python -m tests.bench.stalls [--root DIR] [--mb 64] [NAME ...]` runs the proxy of a checkout. Prober and upstream are
processes of their own: 50 requests a second in an open loop, timed from when each was due.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.arguments import checkout
from tests.hostile import harness
from tests.hostile.harness import ANSWER, HELLO, Running, running_anew
from tests.recorder import answer

RATE = 50  # requests a second
BOUND_MS = 100.0
MB = 1 << 20
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many requests, so many of them `at_once`, before a proxy with such settings. Bodies that `drip` come a byte a
    second, and are given up after five."""

    bodies: Callable[[], Iterator[bytes]]
    at_once: int = 16
    headers: Mapping[str, str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    drip: bool = False

    def sent_to(self, proxy: Running) -> int:
        """Sends all; the status of the last."""

        def ask(body: bytes) -> int:
            if self.drip:
                return dripped(proxy.port, body)
            return proxy.ask(body, headers=self.headers, timeout=300).status

        with ThreadPoolExecutor(self.at_once) as clients:
            return list(clients.map(ask, self.bodies()))[-1]


def dripped(port: int, body: bytes) -> int:
    """Sends a head and five bytes of a body, one a second; 0, as nothing is answered."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", port), timeout=300) as made:
        made.sendall(head)
        for at in range(5):
            made.sendall(body[at : at + 1])
            time.sleep(1)
    return 0


@dataclass(frozen=True, slots=True)
class Attack:
    """A request: its body of about so many bytes, and what it unpacks to. `wire` are its bytes where no client would
    send them so: several requests, or strange chunks."""

    body: Callable[[int], bytes]
    headers: Mapping[str, str] | None = None
    unpacked: Callable[[bytes], int] = len
    wire: Callable[[bytes], bytes] | None = None


def chat(content: bytes, role: bytes = b"user", model: bytes = b"gpt-4o", more: bytes = b"") -> bytes:
    """A chat request with one message behind a question."""
    ask = b'{"role":"user","content":"What is wrong?"},'
    if role == b"tool":
        ask += (
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":'
            b'{"name":"read","arguments":"{}"}}]},'
        )
        content += b',"tool_call_id":"c"'
    return b'{"model":"%b","messages":[%b{"role":"%b","content":%b}]%b}' % (model, ask, role, content, more)


def text(sign: str | bytes, role: bytes = b"user") -> Attack:
    """One message that says the same again and again, in JSON."""
    raw = sign if isinstance(sign, bytes) else sign.encode()
    return Attack(lambda size: chat(b'"' + raw * (size // len(raw)) + b'"', role))


def rows(row: bytes, role: bytes = b"tool") -> Attack:
    """One message of a JSON list, as text."""
    return Attack(lambda size: chat(b'"[' + row * (size // len(row)) + b'0]"', role))


def raw(row: bytes, end: bytes = b"0") -> Attack:
    """Messages that are such values."""
    return Attack(lambda size: b'{"model":"gpt-4o","messages":[' + row * (size // len(row)) + end + b"]}")


def within(before: bytes, row: bytes, after: bytes) -> Attack:
    """Values within a request."""
    return Attack(lambda size: before + row * (size // len(row)) + after)


def words(size: int) -> bytes:
    """Lines of a log, no two alike."""
    pick = random.Random(7)
    some = [f"{pick.randrange(10**6)} {name} took {pick.randrange(999)} ms" for name in WORDS for _ in range(2_000)]
    line = "\\n".join(some).encode()
    return (line * (size // len(line) + 1))[:size].rstrip(b"\\")


def tiny(body: bytes) -> bytes:
    """A request whose body comes in chunks of two bytes."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    return head + b"".join(b"2\r\n%b\r\n" % body[at : at + 2] for at in range(0, len(body) & ~1, 2)) + b"0\r\n\r\n"


def pipelined(body: bytes) -> bytes:
    """Minimal requests one behind the other, as many as fit into so many bytes."""
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    return one * (len(body) // len(one)) + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def sent(port: int, wire: bytes) -> int:
    """Sends bytes as they are while it reads, until the other end closes; the status of the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as made, ThreadPoolExecutor(1) as sender:
        sending = sender.submit(made.sendall, wire)
        head = made.recv(MB)
        while made.recv(MB):
            pass
        sending.cancel()
        return int(head[9:12])


WORDS = ("request", "worker failed:", "INFO connection", "cache miss", "Traceback", "retry")
USER = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"'
ATTACKS: Mapping[str, Attack] = {
    "name of slashes": Attack(lambda size: b'{"model":"' + b"/" * size + b'","messages":[{"role":"user"}]}'),
    "name of code": Attack(lambda size: b'{"model":"' + b"code" * (size // 4) + b'","messages":[{"role":"user"}]}'),
    "text": text("Hello world, and so on. "),
    "log in a result": Attack(lambda size: chat(b'"' + words(size) + b'"', b"tool")),
    "log in a question": Attack(lambda size: chat(b'"' + words(size) + b'"')),
    "line ends in a result": text(b"\\n", b"tool"),
    "line ends in a question": text(b"\\n"),
    "one line in a result": text("x", b"tool"),
    "words of one letter": text("a "),
    "blanks": text(" "),
    "tabs": text(b"\\t", b"tool"),
    "CJK": text("\u597d\u5403"),
    "emoji": text("\U0001f600 text, "),
    "emoji in a result": text("\U0001f600 text, ", b"tool"),
    "zero-width": text("\u200b"),
    "escapes": text(b"\\u0041"),
    "pairs": text(b"\\ud83d\\ude00"),
    "quotes": text(b'\\"'),
    "backslashes": text(b"\\\\", b"tool"),
    "no UTF-8": text(b"\xff\xfe"),
    "JSON in a result": rows(b'{\\"a\\":1,\\"name\\":\\"value\\"},'),
    "lists in a result": rows(b"[],"),
    "brackets in a result": text("[", b"tool"),
    "figures in a result": rows(b"123.456,"),
    "open lists": raw(b"["),
    "open objects": raw(b'{"a":'),
    "empty messages": raw(b"{},", b"{}"),
    "messages of a byte": raw(b'{"role":"user","content":"x"},', b'{"role":"user","content":"x"}'),
    "messages of 64 KB": raw(b'{"role":"user","content":"%b"},' % (b"some words, " * 5_461), USER[30:] + b"}"),
    "calls": within(USER + b'},{"role":"assistant","tool_calls":[', b"{},", b"{}]}]}"),
    "calls with ids": within(
        USER + b'},{"role":"assistant","tool_calls":[',
        b'{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},',
        b"{}]}]}",
    ),
    "parts": within(USER[:-4] + b"[", b'{"type":"text","text":"x"},', b'{"type":"text","text":"x"}]}]}'),
    "tools": within(USER + b'}],"tools":[', b'{"type":"function","function":{"name":"f"}},', b'{"type":"function"}]}'),
    "a tool's description": within(
        USER + b'}],"tools":[{"type":"function","function":{"name":"f","description":"', b"many words, ", b'"}}]}'
    ),
    "a schema": within(
        USER + b'}],"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{',
        b'"a":{"type":"string"},',
        b'"b":{}}}}}}',
    ),
    "numbers": within(USER + b'}],"logit_bias":[', b"0,", b"0]}"),
    "a long number": within(USER + b'}],"seed":1', b"1", b"}"),
    "keys": within(USER + b"}],", b'"a":1,', b'"b":1}'),
    "an image": within(
        USER[:-4] + b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,', b"iVBORw0KGgoAAAAN", b'"}}]}]}'
    ),
    "arguments": within(
        USER + b'},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\\"a\\":\\"',
        b"many words ",
        b'\\"}"}}]},{"role":"tool","tool_call_id":"c","content":"ok"}]}',
    ),
    "instructions": Attack(
        lambda size: (
            b'{"model":"gpt-4o","messages":[{"role":"system","content":"'
            + b"rule, " * (size // 6)
            + b'"},'
            + USER[30:]
            + b"}]}"
        )
    ),
    "tiny chunks": Attack(lambda size: chat(b'"' + words(size // 8) + b'"'), wire=tiny),
    "pipelining": Attack(lambda size: bytes(size // 64), wire=pipelined),
    "packed blanks": Attack(
        lambda size: gzip.compress(chat(b'"' + b" " * size + b'"')),
        {"content-encoding": "gzip"},
        lambda body: len(gzip.decompress(body)),
    ),
    "packed words": Attack(
        lambda size: gzip.compress(chat(b'"' + words(size) + b'"', b"tool"), 1),
        {"content-encoding": "gzip"},
        lambda body: len(gzip.decompress(body)),
    ),
}


def numbered(count: int, body: Callable[[int], bytes]) -> Callable[[], Iterator[bytes]]:
    """So many bodies, no two alike."""
    return lambda: map(body, range(count))


def story(number: int) -> bytes:
    """A conversation that does not fit into 8,192 tokens."""
    turns = [
        {"role": ("user", "assistant")[turn % 2], "content": f"{number} {turn} " + "some words of a story " * 40}
        for turn in range(61)
    ]
    return json.dumps({"model": "gpt-4", "messages": turns}).encode()


CROWDS: Mapping[str, Crowd] = {
    "H2 names of a megabyte": Crowd(
        numbered(200, lambda n: b'{"model":"%d%b","messages":[{"role":"user"}]}' % (n, b"n" * MB))
    ),
    "H3 proven requests": Crowd(numbered(300, lambda n: chat(b'"%d %b"' % (n, words(200_000)), model=b"gpt-4.1"))),
    "H4 instructions": Crowd(
        numbered(400, lambda n: chat(b'"%d %b"' % (n, b"a rule, " * 37_500), b"system", b"gpt-4.1"))
    ),
    "H7 bodies whose answers last": Crowd(
        numbered(30, lambda n: chat(b'"%d %b"' % (n, words(2 * MB)), model=b"gpt-4.1")), 30, {"x-slow": "5"}
    ),
    "H8 summaries": Crowd(
        numbered(100, story), 32, settings={"PLIMSOLL_SUMMARY_MODEL": "gpt-4o-mini", "PLIMSOLL_API_KEY": "sk-own"}
    ),
    "H9 embeddings": Crowd(numbered(100, story), 32, settings={"PLIMSOLL_EMBEDDINGS_MODEL": "text-embedding-3-small"}),
    "H12 requests at once": Crowd(numbered(2_000, lambda n: chat(b'"%d"' % n)), 200, {"x-slow": "1"}),
    "F13 bodies that drip": Crowd(numbered(200, lambda n: bytes(1_000)), 200, drip=True),
}


async def upstream() -> None:
    """Answers everything at once, or after the seconds of x-slow; prints its port."""
    whole = answer(json.dumps(ANSWER).encode())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next((int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")), 0)
                while size:
                    size -= len(await reader.read(min(size, MB)))
                if slow := re.search(rb"(?i)\r\nx-slow: (\d+)", head):
                    await asyncio.sleep(int(slow[1]))
                writer.write(whole)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def probe(port: int) -> None:
    """Asks `RATE` times a second until its input ends; prints what each waited from when it was due, in ms."""
    body = json.dumps({**HELLO, "messages": [{"role": "user", "content": "words " * 150}]}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request += b"content-length: %d\r\n\r\n" % len(body) + body
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    waited: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def ask(due: float) -> None:
        reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:"))
        await reader.readexactly(size)
        waited.append(1000 * (time.perf_counter() - due))
        free.append((reader, writer))

    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    due = time.perf_counter()
    print("ready", flush=True)
    while not over.done():
        due += 1 / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.add(task := asyncio.create_task(ask(due)))
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    print(json.dumps(waited))


def measure(proxy: Running, body: bytes | None, attack: Attack | Crowd | None) -> dict[str, Any]:
    """Sends a request, or those of a crowd, while the prober asks; without anything just waits."""
    prober = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.stalls", "--prober", str(proxy.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert prober.stdout is not None
    prober.stdout.readline()
    time.sleep(0.5)
    proxy.forget_peak()
    memory, cpu, began = proxy.memory_mb(), proxy.cpu_seconds(), time.perf_counter()
    status = 0
    if isinstance(attack, Crowd):
        status = attack.sent_to(proxy)
    elif body is None or attack is None:
        time.sleep(3)
    else:
        try:
            if attack.wire is not None:
                status = sent(proxy.port, attack.wire(body))
            else:
                status = proxy.ask(body, headers=attack.headers, timeout=300).status
        except OSError as error:
            status = -(error.errno or 1)
    took = time.perf_counter() - began
    time.sleep(0.5)
    printed, _ = prober.communicate("")
    waited = sorted(json.loads(printed))
    return {
        "status": status,
        "stall_ms": waited[-1],
        "p99_ms": waited[int(len(waited) * 0.99)],
        "seconds": took,
        "cpu_s": proxy.cpu_seconds() - cpu,
        "peak_mb": proxy.memory_mb(peak=True) - memory,
    }


def main() -> None:
    """Runs the attacks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="attacks (all that begin so); none: all of them")
    parser.add_argument("--root", type=checkout, default=ROOT, help="the checkout whose proxy runs")
    parser.add_argument("--mb", type=float, default=64, help="megabytes of each body, unpacked")
    parser.add_argument("--prober", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.upstream or given.prober:
        asyncio.run(upstream() if given.upstream else probe(given.prober))
        return
    harness.ROOT = given.root.resolve()
    behind = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.stalls", "--upstream"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert behind.stdout is not None
    port = int(behind.stdout.readline())
    try:
        print(f"{'':28}{'status':>7}{'stall ms':>10}{'p99 ms':>9}{'s':>8}{'CPU s':>8}{'peak MB':>9}{'bound':>7}")
        all_of_them: dict[str, Attack | Crowd] = {**ATTACKS, **CROWDS}
        chosen = [name for name in all_of_them if not given.names or name.startswith(tuple(given.names))]
        for name in ["(idle)", *chosen]:
            attack = all_of_them.get(name)
            body = attack.body(int(given.mb * MB) - 400) if isinstance(attack, Attack) else None
            # What a crowd may hold is bounded by settings, not by its bodies.
            bound = 16 + 4 * attack.unpacked(body) / MB if isinstance(attack, Attack) and body is not None else 0.0
            settings: Mapping[str, Any] = attack.settings if isinstance(attack, Crowd) else {}
            with running_anew(f"http://127.0.0.1:{port}", **{**settings, "PLIMSOLL_MAX_BODY": str(64 * MB)}) as proxy:
                for number in range(8):
                    proxy.ask(
                        {"model": "gpt-4o", "messages": [{"role": "user", "content": f"{number} words " * 3_000}]}
                    )
                found = measure(proxy, body, attack)
            late = "!" if attack is not None and found["stall_ms"] > BOUND_MS else " "
            much = "!" if bound and found["peak_mb"] > bound else " "
            print(
                f"{name:28}{found['status']:7}{found['stall_ms']:9.1f}{late}{found['p99_ms']:9.1f}"
                f"{found['seconds']:8.2f}{found['cpu_s']:8.2f}{found['peak_mb']:8.0f}{much}{bound:7.0f}",
                flush=True,
            )
    finally:
        behind.kill()
        behind.wait()


if __name__ == "__main__":
    main()
