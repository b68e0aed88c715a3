"""One load: what is sent, by how many clients at once, and what it cost the system that took it."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.systems import HOME, OTHER, PATH, System

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
LUA = """wrk.method = "POST"
{headers}
local text = [=[{body}]=]
local n = {first}
{request}
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""
WARM = "wrk.body = text"
COLD = """request = function()
  n = n + 1
  return wrk.format(nil, nil, nil, (string.gsub(text, "########", tostring(n))))
end"""
# A conversation that goes on: each request is the one before it, an answer and a question.
GROWN = """local open = string.sub(text, 1, -3)
request = function()
  n = n + 1
  open = open .. ',{"role":"assistant","content":"It is ' .. n .. '."},{"role":"user","content":"And after that?"}'
  return wrk.format(nil, nil, nil, open .. "]}")
end"""
SENTENCE = "The quick brown fox jumps over the lazy dog while 42 ships pass the harbour and ask for a pilot. "


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent: about `size` bytes in `messages` messages, by so many clients at once.

    Every request is the same (what is known), or where it is `cold` new in all its messages, or where it has `grown`
    the one before it and two messages more. A `stream` has so many `chunks`. `path`: whose requests they are.
    """

    name: str
    size: int
    messages: int
    clients: int
    stream: bool = False
    cold: bool = False
    grown: bool = False
    chunks: int = 100
    path: str = PATH


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement: CPU microseconds a request, requests a second, latency in microseconds, errors, memory in MB."""

    system: str
    case: str
    cpu_us: float
    rate: float
    p50: float
    p99: float
    errors: int
    memory: float


def body(case: Case) -> str:
    """A chat body; ######## stands in every message, to be made new where the case is cold."""
    each = max(20, case.size // case.messages - 45)
    texts = [f"######## {i} {SENTENCE * (each // len(SENTENCE) + 1)}"[:each] for i in range(case.messages)]
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
    head = {"stream": True} if case.stream else {}
    models = ("claude-sonnet-4-5", "claude-sonnet-4-6") if case.path == MESSAGES else ("gpt-4o", "gpt-4.1")
    model = models[case.size >= 500_000]  # the window that holds it
    limit, key = ("max_output_tokens", "input") if case.path == RESPONSES else ("max_tokens", "messages")
    return json.dumps({**head, "model": model, limit: case.chunks, key: messages}, separators=(",", ":"))


def script(case: Case, system: System) -> Path:
    """The case as a script for wrk."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test", **system.headers}
    lines = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())
    path = HOME / f"{system.name}-{abs(hash(case))}.lua"
    request = COLD if case.cold else GROWN if case.grown else WARM
    first = random.randrange(10_000_000, 89_999_999)  # wrk's own dice fall the same in every run: all would be known
    path.write_text(LUA.format(headers=lines, body=body(case), request=request, first=first))
    return path


def measured(case: Case, system: System, seconds: float) -> Result:
    """One run of wrk on the load's core."""
    command = ["taskset", "-c", OTHER, "wrk", "-t1", f"-c{case.clients}", f"-d{seconds:g}s", "--timeout", "30s"]
    before = system.cpu_seconds()
    url = f"http://127.0.0.1:{system.port}{case.path}"
    out = subprocess.run([*command, "-s", script(case, system), url], capture_output=True, text=True, check=True).stdout
    used = system.cpu_seconds() - before
    line = next(line for line in out.splitlines() if line.startswith("RESULT"))
    count, took, errors, p50, p99 = map(int, line.split()[1:])
    count = max(count, 1)
    return Result(system.name, case.name, 1e6 * used / count, 1e6 * count / took, p50, p99, errors, system.memory_mb())
