"""What each further turn of an agent's run costs once it is longer than its window: CPU from the body to the payload.

    python -m tests.bench.growing [--window 200000] [--turns 150] [--runs 2] [--api chat|messages] [--ladder NAME]
        [--data DIR]

A run grows by a call and its result, at times by a message of the user; each turn's whole body goes through scan,
count, plan and render in process, as the gateway does it. With --data the recorded runs of DIR/trajectories.jsonl.gz
that are long enough are measured instead of generated ones: they are no part of this project.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxy.apis.anthropic_messages import API as MESSAGES
from proxy.apis.openai_chat import API as CHAT
from proxy.bootstrap import settle
from proxy.errors import ClientError
from proxy.model.api import Api
from tests.bench import messages_form
from tests.bench.arguments import existing
from tests.request.planned import arrived, prepare, services

REPLY = 4_000
FIRST = 0.9  # share of the window from which turns are sent: those before it cost a scan and a count
NAMES = "harbour crane cargo tide pilot pump manifest ledger signal anchor keel berth customs freight rope".split()
VERBS = "load store move check open close read write plan count merge split".split()
USER_EVERY = 25  # turns between two messages of the user
CHARACTERS = 3.4  # of a token of such a run
Message = Mapping[str, Any]


class Run:
    """The messages of a generated run: an agent reads files, searches, edits and tests; at times the user speaks."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._paths = [f"src/{a}/{b}_{c}.py" for a in NAMES[:8] for b in NAMES for c in VERBS[:3]]
        self._turn = 0

    def opening(self) -> list[Message]:
        """Instructions and the first task."""
        rules = " ".join(self._dice.choices(NAMES + VERBS, k=1_500))
        task = "The nightly import loses rows. Find out why and mend it. Always run the tests before you answer."
        return [{"role": "system", "content": f"You are a coding agent. {rules}"}, {"role": "user", "content": task}]

    def turn(self) -> list[Message]:
        """A call and its result, and at times what the user says then."""
        self._turn += 1
        kind = self._dice.choices(("read", "edit", "test", "search"), (45, 25, 15, 15))[0]
        ident, path = f"call_{self._turn}", self._dice.choice(self._paths)
        arguments, result = {
            "read": lambda: ({"path": path}, self._code(path)),
            "edit": lambda: (
                {"path": path, "old_string": self._function(3), "new_string": self._function(5)},
                f"The file {path} has been updated.",
            ),
            "test": lambda: ({"command": f"python -m pytest -q tests/{path.split('/')[1]}"}, self._tests()),
            "search": lambda: ({"pattern": f"{self._dice.choice(VERBS)}_{self._dice.choice(NAMES)}"}, self._hits()),
        }[kind]()
        function = {"name": kind, "arguments": json.dumps(arguments)}
        said = f"I {kind} {path} because of {self._name()}." if self._dice.random() < 0.6 else None
        call = {"id": ident, "type": "function", "function": function}
        found: list[Message] = [
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": ident, "content": result},
        ]
        if self._turn % USER_EVERY == 0:
            found.append({"role": "assistant", "content": f"{self._name()} in {path} is mended, its tests pass."})
            found.append(
                {"role": "user", "content": f"Now look at {self._name()} in {self._dice.choice(self._paths)}."}
            )
        return found

    def _name(self) -> str:
        return f"{self._dice.choice(VERBS)}_{self._dice.choice(NAMES)}"

    def _function(self, lines: int) -> str:
        dice, name = self._dice, self._name()
        body = (
            f"    {dice.choice(NAMES)} = self.{self._name()}({dice.choice(NAMES)}, {dice.randrange(999)})"
            for _ in range(lines)
        )
        return "\n".join([f"def {name}(self, {dice.choice(NAMES)}):", *body, f"    return {dice.choice(NAMES)}", ""])

    def _code(self, path: str) -> str:
        text = "\n".join(self._function(self._dice.randrange(3, 12)) for _ in range(self._dice.randrange(2, 22)))
        numbered = (f"{n:>6}\t{line}" for n, line in enumerate(text.split("\n"), 1))
        return f"# {path}\n" + "\n".join(numbered)

    def _tests(self) -> str:
        lines = [
            f"tests/test_{self._name()}.py::test_{self._name()} PASSED [{n:>3}%]"
            for n in range(self._dice.randrange(5, 60))
        ]
        if self._dice.random() < 0.5:
            lines.append(
                f"E   AssertionError: assert {self._dice.randrange(99)} == {self._dice.randrange(99)} in {self._name()}"
            )
        return "\n".join([*lines, f"{len(lines)} tests in 1.{self._dice.randrange(99)} s"])

    def _hits(self) -> str:
        return "\n".join(
            f"{self._dice.choice(self._paths)}:{self._dice.randrange(400)}: {self._name()}(x)"
            for _ in range(self._dice.randrange(40))
        )


def generated(seed: int, window: int, turns: int) -> Iterator[list[Message]]:
    """The turns of a run: the first has all up to `FIRST` of the window, then one after another, so many past it."""
    run = Run(seed)
    first, size = run.opening(), 0.0
    while size < FIRST * window:
        first += (new := run.turn())
        size += len(json.dumps(new)) / CHARACTERS
    yield first
    while size < window:
        yield (new := run.turn())
        size += len(json.dumps(new)) / CHARACTERS
    for _ in range(turns):
        yield run.turn()


def recorded(folder: Path, window: int) -> Iterator[list[list[Message]]]:
    """The turns of each run that is long enough: it is sent whenever the agent is to answer."""
    with gzip.open(folder / "trajectories.jsonl.gz", "rt") as lines:
        for run in map(json.loads, lines):
            if run["tokens"] > 1.2 * window:
                yield list(_turns(run["messages"]))


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    new: list[Message] = []
    for message in messages:
        if message["role"] == "assistant" and new and new[-1]["role"] != "assistant":
            yield new
            new = []
        new.append(message)
    if new[-1]["role"] != "assistant":
        yield new


def bodies(turns: Iterator[list[Message]], api: Api) -> Iterator[bytes]:
    """The body of each turn."""
    talk: list[Message] = []
    if api is MESSAGES:
        tools = [{"function": {"name": name}} for name in ("read", "edit", "test", "search")]
        for new in turns:
            talk += new
            yield json.dumps(messages_form.request(talk, "claude-sonnet-4-5", REPLY, tools)).encode()
        return
    written: list[bytes] = []
    for new in turns:
        written += [json.dumps(message).encode() for message in new]
        yield b'{"model":"gpt-4o","max_tokens":%d,"messages":[%s]}' % (REPLY, b",".join(written))


async def measured(sent: Iterator[bytes], api: Api, window: int, ladder: str) -> list[float]:
    """CPU milliseconds of each further turn that is cut."""
    planner, found = services().gateway.default.planner, list[float]()
    for body in sent:
        request = arrived(body, api=api, window=window, ladder=ladder)
        began = time.process_time()
        try:
            await prepare(planner, request)
        except ClientError as error:
            raise SystemExit(f"a turn was refused: {error}") from None
        took = 1000 * (time.process_time() - began)
        if request.plan is not None and request.plan.changed:
            found.append(took)
    return found[1:]  # at the first cut everything is read for the first time


def report(name: str, found: Sequence[float]) -> None:
    """One row."""
    ordered = sorted(found)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    mean = statistics.mean(ordered)
    print(
        f"| {name} | {len(ordered)} | {statistics.median(ordered):.1f} | {mean:.1f} | {p99:.1f} | {ordered[-1]:.1f} |",
        flush=True,
    )


def main() -> int:
    """Prints a table. Exit code 2 where the data is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=200_000, help="tokens")
    parser.add_argument("--turns", type=int, default=150, help="of a generated run past its window")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--api", choices=("chat", "messages"), default="chat")
    parser.add_argument("--ladder", default="default")
    parser.add_argument("--data", type=existing, help="the folder of the recorded runs")
    chosen = parser.parse_args()
    api = CHAT if chosen.api == "chat" else MESSAGES
    ask = partial(measured, api=api, window=chosen.window, ladder=chosen.ladder)
    if chosen.data is not None:
        runs = [iter(run) for run in recorded(chosen.data, chosen.window)][: chosen.runs]
    else:
        runs = [generated(seed, chosen.window, chosen.turns) for seed in range(chosen.runs)]
    if not runs:
        print(f"No run in {chosen.data} is longer than {chosen.window:,} tokens.", file=sys.stderr)
        return 2
    settle()
    print("| run | turns cut | median ms | mean | p99 | most |\n|---|---|---|---|---|---|")
    found = []
    for number, turns in enumerate(runs):
        found.append(asyncio.run(ask(bodies(turns, api))))
        report(str(number), found[-1])
    report("all", [took for one in found for took in one])
    return 0


if __name__ == "__main__":
    sys.exit(main())
