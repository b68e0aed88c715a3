"""Records one proxy: sends its requests one after the other and describes each exchange.

A record holds no time, no port and no path of the machine. Each request is sent when the proxy is idle, so that the
load of the machine changes no result.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import random
import re
import select
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.identity.conversations import Case, Maker, without_caps
from tests.bench.identity.replies import SUMMARISER, Upstream, idle
from tests.bench.identity.settings import ALWAYS, Setting
from tests.hostile.harness import Running, running, upstream
from tests.recorder import Recorder, Request

INSPECT = "/inspect/v1/chat/completions"
TIMEOUT = 90.0  # seconds for one answer
ROUNDS = 20  # iterations in which the upstream's event loop reads all bytes that were sent
SHORT = 200  # bytes; longer bodies that repeat another one are not written again
TIMES = re.compile(r'"(taught_at|until|probe_due)":"[^"]*"')
# Log fields that vary: times, and the cost of background calls so far (the metrics have their total).
UNSTEADY_FIELDS = frozenset({"time", "own_ms", "upstream_ms", "extra_ms", "extra_calls", "extra_tokens"})
UNSTEADY_METRICS = re.compile(r"(# HELP |# TYPE )?(process_|python_|\w*seconds|plimsoll_memory_budget_bytes)")


@dataclass(frozen=True, slots=True)
class Named:
    """A request with its name and the credential of its conversation."""

    name: str
    kind: str
    key: str
    case: Case


def requests_of(
    setting: Setting, kinds: Mapping[str, Maker], count: int, seed: int, numbers: Counter[str]
) -> Iterator[Named]:
    """The first `count` requests of a setting. `numbers` holds the next number of each kind, and is advanced."""
    made = 0
    for number in range(count):
        kind = setting.kinds[number % len(setting.kinds)]
        dice = random.Random(f"{seed} {setting.name} {kind} {number}")
        cases = kinds[kind](dice, numbers[kind])
        numbers[kind] += 1
        key = f"sk-{setting.name}-{number}"
        for turn, case in enumerate(cases if setting.capped else without_caps(cases)):
            if made == count:
                return
            made += 1
            yield Named(f"{setting.name}/{kind}/{number:04}.{turn}", kind, key, case)


def record(setting: Setting, requests: Iterator[Named]) -> Iterator[dict[str, Any]]:
    """Starts a proxy; yields a record of each request, of each log line, and of the metrics."""
    scripted = Upstream()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in setting.rules.items():
            (path := Path(folder, name)).parent.mkdir(exist_ok=True)
            path.write_text(text)
        rules = {"PLIMSOLL_RULES": folder} if setting.rules else {}
        environment: dict[str, Any] = {**ALWAYS, **setting.environment, **rules}
        with upstream(scripted) as up, running(up.url, **environment) as proxy:
            scripted.pid = proxy.process.pid
            recording = Recording(proxy, scripted, up, {f":{proxy.port}": ":PROXY", f":{up.port}": ":UPSTREAM"})
            for named in requests:
                yield recording.exchange(named)
            metrics = proxy.ask(path="/metrics").body.decode()
            proxy.process.terminate()  # a killed one would lose the log lines that are not written yet
            proxy.process.wait(30)
        yield from logged(setting.name, [recording.steady(line) for line in proxy.lines])
        lines = [line for line in metrics.splitlines() if not UNSTEADY_METRICS.match(line)]
        yield {"name": f"{setting.name}/metrics", "kind": "metrics", "metrics": lines}


def logged(setting: str, lines: list[str]) -> Iterator[dict[str, Any]]:
    """Records of the log lines without times. Events come last: standard error is not in step with standard output."""
    found = [json.loads(line) if line.startswith("{") else {"event": line} for line in lines]
    for kind, some in (("log", [t for t in found if "event" not in t]), ("event", [t for t in found if "event" in t])):
        for number, line in enumerate(some):
            kept = {name: value for name, value in line.items() if name not in UNSTEADY_FIELDS}
            yield {"name": f"{setting}/{kind}/{number:04}", "kind": kind, "line": kept}


@dataclass(slots=True)
class Recording:
    """A running proxy and its upstream; `ports` maps their ports to constant names."""

    proxy: Running
    upstream: Upstream
    recorder: Recorder
    ports: Mapping[str, str]
    key: str = ""
    connection: http.client.HTTPConnection | None = field(default=None)

    def exchange(self, named: Named) -> dict[str, Any]:
        """The record of one request."""
        case = named.case
        self.upstream.scripted.extend(case.replies)
        if named.key != self.key:
            self._hang_up()
            self.key = named.key
        headers = {} if case.keyless else {"authorization": f"Bearer {named.key}"}
        headers |= {} if case.body is None else {"content-type": "application/json"}
        headers |= dict(case.headers)
        before = self._inspected(case, headers) if case.inspected and int(named.key[-1]) % 2 else None
        self._until_idle()
        got = self._wired(case.wire) if case.wire else self._answer(case.method, case.path, case.body, headers)
        self._until_idle()
        sent = self._received(case.body)
        after = self._inspected(case, headers) if case.inspected and before is None else None
        unused, self.upstream.scripted = len(self.upstream.scripted), type(self.upstream.scripted)()
        asked = {"method": case.method, "path": case.path, "headers": dict(case.headers)}
        asked |= self._digest(case.wire or case.body)
        made = {"name": named.name, "kind": named.kind, "request": asked, "upstream": sent, "answer": got}
        inspected = before or after
        if inspected is not None:
            made["inspect"] = _shortened(inspected, case.body, sent)
        return made | {"unused": unused}  # replies that no attempt took

    def _inspected(self, case: Case, headers: Mapping[str, str]) -> dict[str, Any]:
        self._until_idle()
        got = self._answer("POST", INSPECT, case.body, headers)
        self._until_idle()
        got["upstream"] = self._received(case.body)  # at most a request for the list of models
        return got

    def _answer(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, Any]:
        """The answer that a client gets. The requests of a conversation share a connection as long as it is open."""
        if self.connection is not None and self.connection.sock is not None:
            if select.select([self.connection.sock], [], [], 0)[0]:
                self._hang_up()
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=TIMEOUT)
        try:
            self.connection.request(method, path, body, dict(headers))
            got = self.connection.getresponse()
        except (http.client.HTTPException, ConnectionError) as error:
            self._hang_up()
            return {"broken": type(error).__name__}
        found: dict[str, Any] = {"status": got.status, "reason": got.reason}
        found["headers"] = [[name, self.steady(value)] for name, value in got.getheaders()]
        try:
            raw = got.read()
        except http.client.IncompleteRead as error:
            raw, found["broken"] = error.partial, "IncompleteRead"
            self._hang_up()
        except ConnectionError as error:
            raw, found["broken"] = b"", type(error).__name__
            self._hang_up()
        return found | {"body": self._text(raw)}

    def _wired(self, wire: bytes) -> dict[str, Any]:
        """All bytes that come on a new connection until the proxy closes it."""
        found = b""
        with socket.create_connection(("127.0.0.1", self.proxy.port), timeout=TIMEOUT) as made:
            with suppress(ConnectionError):  # the proxy may answer before it has all
                made.sendall(wire)
            with suppress(ConnectionError):
                while data := made.recv(1 << 16):
                    found += data
        return {"body": self._text(found)}

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _until_idle(self) -> None:
        """Waits until proxy and upstream are idle; background work is done then, too."""
        while True:
            before = asyncio.run(idle(self.upstream.pid))
            if self.upstream.loop is not None:
                asyncio.run_coroutine_threadsafe(_rounds(), self.upstream.loop).result(TIMEOUT)
            if not self.upstream.pending and asyncio.run(idle(self.upstream.pid)) == before:
                return

    def _received(self, body: bytes | None) -> list[dict[str, Any]]:
        """What the upstream received since the last call: attempts in order, then the proxy's own calls, sorted because
        their order varies."""
        taken, self.upstream.received = self.upstream.received, []
        self.recorder.requests.clear()
        extra = [r for r in taken if b"/embeddings" in r.target or SUMMARISER.encode() in r.body[:60]]
        own = [r for r in taken if r not in extra]
        return [self._request(r, body) for r in (*own, *sorted(extra, key=lambda r: (r.target, r.body, r.head)))]

    def _request(self, request: Request, body: bytes | None) -> dict[str, Any]:
        head = [(n.decode("latin-1"), self.steady(v.decode("latin-1"))) for n, v in request.headers]
        found: dict[str, Any] = {"method": request.method.decode(), "target": request.target.decode("latin-1")}
        found |= {"headers": head, **self._digest(request.body)}
        if request.body == body and len(request.body) > SHORT:
            return found | {"same": True}
        return found | {"body": self._text(request.body)}

    def _digest(self, body: bytes | None) -> dict[str, Any]:
        if body is None:
            return {}
        return {"bytes": len(body), "digest": hashlib.blake2b(body, digest_size=12).hexdigest()}

    def _text(self, raw: bytes) -> Any:
        """A body as text; in base64 if it is not UTF-8."""
        try:
            return self.steady(raw.decode())
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}

    def steady(self, text: str) -> str:
        """A text with constants instead of ports and times."""
        for port, name in self.ports.items():
            text = text.replace(f"127.0.0.1{port}", f"127.0.0.1{name}")
        return TIMES.sub(r'"\1":"TIME"', text)


def _shortened(inspected: dict[str, Any], asked: bytes | None, sent: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer of /inspect without the body that it quotes, if that is recorded elsewhere."""
    body = inspected.get("body")
    if isinstance(body, str):
        known = [("as asked", (asked or b"").decode(errors="replace")), *(("as sent", s.get("body")) for s in sent)]
        for place, text in known:
            if isinstance(text, str) and len(text) > SHORT:
                body = body.replace(f'"request":{text}', f'"request":"{place}"')
    return inspected | {"body": body}


async def _rounds() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
