"""How long a plan takes: chats of 100 to 5,000 messages, and agents' runs of some 75k tokens cut to 16k, in process;
such runs cut to 60k, too, as they are and with 60 screenshots and 200 tools.

python -m tests.bench.planning [FOLDER]

FOLDER holds data/trajectories.jsonl.gz; without it recorded runs are not measured. Cold is a conversation of which
nothing was seen before, in a process that has worked for a while: the median of several. Warm is the same once more.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proxy.apis.openai_chat import request
from proxy.bootstrap import settle
from proxy.cache.counts import LocalCounts
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import Facts, Plan
from proxy.tokens.meter import meter_for

WORDS = "harbour crane cargo tide pilot pump manifest ledger signal anchor keel berth customs freight rope".split()
CASES = 9  # different conversations of a kind
LINE = 8.5  # tokens of a line of an agent's run (measured)
RECORDED = range(64_000, 84_000)  # tokens of the recorded runs that are measured, as the data counts them


def chatter(messages: int, seed: int) -> bytes:
    """A chat of so many messages of some 40 tokens."""
    dice = random.Random(seed)
    talk = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": " ".join(dice.choices(WORDS, k=38)) + f" {i}"}
        for i in range(messages)
    ]
    return json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": talk}).encode()


def agent(seed: int, tokens: int = 75_000, images: int = 0, tools: int = 0) -> bytes:
    """An agent's run: one question, then calls and results of 50 to 2,000 tokens until it is so long. The first calls
    are followed by screenshots of 765 tokens; the tools have some 100 tokens each."""
    dice, total = random.Random(seed), 0
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful agent. " + " ".join(dice.choices(WORDS, k=300))},
        {"role": "user", "content": "Find why the crane_controller fails and mend src/harbour/crane.py."},
    ]
    while total < tokens:
        size, ident = dice.randrange(50, 2_000), f"call_{len(talk)}"
        path = f"src/{dice.choice(WORDS)}/{dice.choice(WORDS)}_{dice.randrange(99)}.py"
        call = {"id": ident, "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}
        count = int(size / LINE)
        lines = (f"{n}: {dice.choice(WORDS)}_{dice.randrange(999)} = {dice.choice(WORDS)}" for n in range(count))
        talk.append({"role": "assistant", "content": f"I look at {path}.", "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": ident, "content": "\n".join(lines)})
        total += size
        if images:
            images -= 1
            talk.append(
                {"role": "user", "content": [{"type": "text", "text": f"The screen now, {images}."}, screen(images)]}
            )
    body = {"model": "gpt-4o", "max_tokens": 500, "messages": talk}
    return json.dumps(body | ({"tools": [tool(dice, n) for n in range(tools)]} if tools else {})).encode()


def screen(number: int) -> dict[str, Any]:
    """A screenshot of 1,024 x 768 pixels."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 1024, 768, 8, 2, 0, 0, 0)
    data = base64.b64encode(head + bytes([number % 251]) * 30_000).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "high"}}


def tool(dice: random.Random, number: int) -> dict[str, Any]:
    """The definition of a tool with three parameters."""

    def say(count: int) -> str:
        return ". ".join(" ".join(dice.choices(WORDS, k=count)).capitalize() for _ in range(2)) + "."

    named = {name: {"type": "string", "description": say(5)} for name in ("path", "pattern", "mode")}
    schema = {"type": "object", "properties": named, "required": ["path"]}
    name = f"mcp__{WORDS[number % 13]}__do_{number}"
    return {"type": "function", "function": {"name": name, "description": say(12), "parameters": schema}}


def planner(window: int) -> Callable[[bytes, LocalCounts], Plan]:
    """Parses and plans as the proxy does, with the default ladder."""
    ladder = load_rules(None).ladders["default"]

    def made(body: bytes, memory: LocalCounts) -> Plan:
        prompt = request.parse(body)
        return plan(prompt, ladder, Facts(Window(window), meter_for(prompt, prompt.model, memory)))

    return made


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of CPU."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def recorded(folder: Path) -> Iterator[bytes]:
    """The runs of that length in a folder's data. Raises FileNotFoundError."""
    with gzip.open(folder / "data" / "trajectories.jsonl.gz", "rt") as lines:
        for run in map(json.loads, lines):
            if run["tokens"] in RECORDED:
                yield json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": run["messages"]}).encode()


def kinds() -> Mapping[tuple[str, int], list[bytes]]:
    """The conversations of each kind, with the window. Exit code 2 where the folder that was named holds none."""
    made = {(f"chat of {n:,}", 16_600): [chatter(n, seed) for seed in range(CASES)] for n in (100, 1_000, 1_700, 5_000)}
    made["agent's run", 16_600] = [agent(seed) for seed in range(CASES)]
    made["agent's run", 60_600] = [agent(seed) for seed in range(CASES)]
    made["the same with 60 screenshots and 200 tools", 60_600] = [agent(seed, 75_000, 60, 200) for seed in range(CASES)]
    if len(sys.argv) > 1:
        try:
            made["recorded run", 16_600] = list(recorded(Path(sys.argv[1])))
        except FileNotFoundError as error:
            print(f"There is no {error.filename}: nothing was measured.", file=sys.stderr)
            sys.exit(2)
    return made


def main() -> None:
    """Prints cold and warm times."""
    cases, warm_up = kinds(), planner(16_600)
    for seed in range(CASES, CASES + 3):
        warm_up(agent(seed), LocalCounts())
        warm_up(chatter(1_000, seed), LocalCounts())
    settle()
    print("| conversation | window | tokens | sent | cold ms | warm ms |\n|---|---|---|---|---|---|")
    for (name, window), bodies in cases.items():
        made = planner(window)
        work = [partial(made, body, LocalCounts()) for body in bodies]
        times = [(timed(once), timed(once)) for once in work]
        plans = [once() for once in work]
        before = statistics.median(plan.before.prompt for plan in plans)
        sent = statistics.median(plan.draft.prompt for plan in plans)
        cold, warm = map(statistics.median, zip(*times, strict=True))
        print(f"| {name} | {window:,} | {before:,.0f} | {sent:,.0f} | {cold:.1f} | {warm:.1f} |")


if __name__ == "__main__":
    main()
