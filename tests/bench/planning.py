"""How long a plan takes: chats of 100 to 10,000 messages, and an agent run of 75k tokens cut to 16k, in process.

python -m tests.bench.planning
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.serve.shared.memory import LocalMemory
from proxy.tokens.meter import meter_for
from proxy.types import Facts, Plan, Window
from proxy.wire.endpoints import chat

WORDS = "harbour crane cargo tide pilot pump manifest ledger signal anchor keel berth customs freight rope".split()
ROUNDS = 9


def chatter(messages: int) -> bytes:
    """A chat of so many messages of some 40 tokens."""
    dice = random.Random(messages)
    talk = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": " ".join(dice.choices(WORDS, k=38)) + f" {i}"}
        for i in range(messages)
    ]
    return json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": talk}).encode()


def agent(tokens: int = 75_000) -> bytes:
    """An agent's run: one question, then calls and results of 50 to 2,000 tokens until it is so long."""
    dice, total = random.Random(75), 0
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful agent. " + " ".join(dice.choices(WORDS, k=300))},
        {"role": "user", "content": "Find why the crane_controller fails and mend src/harbour/crane.py."},
    ]
    while total < tokens:
        size, ident = dice.randrange(50, 2_000), f"call_{len(talk)}"
        path = f"src/{dice.choice(WORDS)}/{dice.choice(WORDS)}_{dice.randrange(99)}.py"
        call = {"id": ident, "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}
        lines = (f"{n}: {dice.choice(WORDS)}_{dice.randrange(999)} = {dice.choice(WORDS)}" for n in range(size // 10))
        talk.append({"role": "assistant", "content": f"I look at {path}.", "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": ident, "content": "\n".join(lines)})
        total += size
    return json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": talk}).encode()


def planner(window: int) -> Callable[[bytes, LocalMemory], Plan]:
    """Parses and plans as the proxy does, with the default ladder."""
    ladder = load_rules(None).ladders["default"]

    def made(body: bytes, memory: LocalMemory) -> Plan:
        prompt = chat.parse(body)
        return plan(prompt, ladder, Facts(Window(window), meter_for(prompt, prompt.model, memory)))

    return made


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    """Prints cold and warm times."""
    made = planner(16_600)
    made(chatter(10), LocalMemory())  # the encoding is loaded
    print("| conversation | tokens | sent | cold ms | warm ms (median) |\n|---|---|---|---|---|")
    cases = {f"chat of {n:,}": chatter(n) for n in (100, 1_000, 5_000, 10_000)} | {"agent's run": agent()}
    for name, body in cases.items():
        memory = LocalMemory()
        cold = timed(lambda body=body, memory=memory: made(body, memory))  # type: ignore[misc]
        warm = [timed(lambda body=body, memory=memory: made(body, memory)) for _ in range(ROUNDS)]  # type: ignore[misc]
        done = made(body, memory)
        figures = f"{done.before.prompt:,} | {done.draft.prompt:,} | {cold:.1f} | {statistics.median(warm):.1f}"
        print(f"| {name} | {figures} |")


if __name__ == "__main__":
    main()
