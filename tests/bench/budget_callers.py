"""The callers of the scripted day: agents that read again what was cut, and a client in a loop.

Theory of operation
-------------------

A caller has a key, and several agents that work at once, each on tasks of its own. An agent keeps one connection, as
clients do, and at times opens another one at another replica. It stops a task whose request is refused, and goes on
with the next one. After a 429 it waits, as the answer says.

Who is throttled limits itself, as an operator's tokens a minute would: it sends nothing while its allowance is used up.
No real time passes for that. An agent has a clock of the day: each request takes `ANSWER_S` of it, a task is not begun
before it comes, and waiting for the allowance moves the clock on. What it does not reach by the end of the day stays
undone. The allowance of a caller's day is its budget, evenly over the day, and what an hour allows is saved at most.
One agent has all of it, and does one task after the other: nothing is spent on tasks that are begun and not finished.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.budget_work import TOOLS, Message, Task, looping, reading

DAY_S = 86_400.0
ANSWER_S = 15.0  # of the day, that a request takes
SAVED_S = 3_600.0  # of the day, whose allowance is saved at most
REPLY = 200  # tokens, the limit that each request names
AGAIN = 2  # times that an agent reads again for a question
TRIES = 3  # after 429
MOVES = 0.1  # of the requests, that go to another replica than the one before
LOOPS_AT = 30  # turns after which a loop begins anew


@dataclass(frozen=True, slots=True)
class Got:
    """An answer: what a caller or the bench reads of it. `number`: of its row in the ledger; `codes`: of the facts that
    the upstream received."""

    status: int
    stage: int = 0
    sent: int = 0
    steps: bool = False
    count: str = ""
    number: int = -1
    codes: frozenset[str] = frozenset()
    used: int = 0  # tokens that are billed in full
    cached: int = 0  # and those that were read from the cache
    retry: float = 1.0


@dataclass(slots=True)
class Seen:
    """What became of a caller's day."""

    tasks: int = 0
    finished: int = 0
    refused: int = 0
    busy: int = 0  # answers that ask to try again
    failed: int = 0  # any other error
    again: int = 0  # files that were read again
    lost: int = 0  # questions whose evidence was not sent, however often it was read again
    stages: Counter[int] = field(default_factory=Counter)
    answers: list[Got] = field(default_factory=list)


@dataclass(slots=True)
class Allowance:
    """What a throttled agent may use, by its clock of the day: `rate` tokens a second."""

    rate: float
    clock: float = 0.0
    saved: float = 0.0

    def begin(self, at: float) -> None:
        """A task comes at a time of the day."""
        self._pass(max(0.0, at - self.clock))

    def wait(self) -> bool:
        """Waits until something may be used; whether that is within the day."""
        self._pass(max(0.0, -self.saved / self.rate))
        return self.clock < DAY_S

    def use(self, tokens: int) -> None:
        """A request used so much."""
        self._pass(ANSWER_S)
        self.saved -= tokens

    def _pass(self, seconds: float) -> None:
        self.clock += seconds
        self.saved = min(self.saved + seconds * self.rate, max(self.saved, SAVED_S * self.rate))


@dataclass(slots=True)
class Caller:
    """A caller: its key, the ports of all replicas, and how many requests all callers may have under way."""

    name: str
    key: str
    ports: Sequence[int]
    slots: asyncio.Semaphore
    seed: str
    seen: Seen = field(default_factory=Seen)
    rate: float | None = None  # tokens a second of the day; None: it is not throttled
    everything: bool = False  # what is read from the cache counts, too

    async def work(self, tasks: Sequence[Task], agents: int) -> None:
        """Its agents do their tasks, at once; one that is throttled has one agent."""
        agents = agents if self.rate is None else 1
        self.seen.tasks += len(tasks)
        await asyncio.gather(*[self._agent(tasks[number::agents], number) for number in range(agents)])

    async def loop(self, requests: int) -> None:
        """It tries the same again and again, in a conversation that grows and at times begins anew."""
        line, left = Line(self, f"{self.seed} loop"), requests
        allowance = None if self.rate is None else Allowance(self.rate)
        while left > 0:
            messages: list[Message] = []
            for turn in looping(f"{self.seed} {left}", min(left, LOOPS_AT)):
                messages += turn
                left -= 1
                await line.ask(messages, allowance)
        line.close()

    async def _agent(self, tasks: Sequence[Task], number: int) -> None:
        line = Line(self, f"{self.seed} {number}")
        allowance = None if self.rate is None else Allowance(self.rate)
        for task in tasks:
            if allowance is not None:
                allowance.begin(task.at * DAY_S)
            done = await self._done(task, line, allowance)
            self.seen.finished += done
        line.close()

    async def _done(self, task: Task, line: Line, allowance: Allowance | None) -> bool:
        """Does a task; whether it is finished."""
        messages = list(task.opening)
        for number, file in enumerate(task.files):
            if (await line.ask(messages, allowance)).status != 200:
                return False
            messages += reading(file, number)
        calls = len(task.files)
        if (await line.ask(messages, allowance)).status != 200:
            return False
        messages.append({"role": "assistant", "content": "I have read all files."})
        for question in task.questions:
            messages.append({"role": "user", "content": question.text})
            for tries in range(AGAIN + 1):
                got = await line.ask(messages, allowance)
                if got.status != 200:
                    return False
                missing = question.codes - got.codes
                if not missing:
                    break
                if tries == AGAIN:
                    self.seen.lost += 1
                    return False
                self.seen.again += 1
                messages += reading(task.holding(min(missing)), calls)
                calls += 1
            messages.append({"role": "assistant", "content": " ".join(sorted(question.codes))})
        return True


@dataclass(slots=True)
class Line:
    """A client's connection to one of the replicas."""

    caller: Caller
    seed: str
    port: int = 0
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    async def ask(self, messages: Sequence[Message], allowance: Allowance | None = None) -> Got:
        """One request, and again if the answer says so."""
        seen = self.caller.seen
        if allowance is not None and not allowance.wait():
            return Got(0)
        for _ in range(TRIES + 1):
            async with self.caller.slots:
                got = await self.send(body_of(messages))
            if got.status != 429:
                break
            seen.busy += 1
            await asyncio.sleep(got.retry)
        seen.refused += got.status in (403, 429)
        seen.failed += got.status not in (200, 403, 429)
        if got.status == 200:
            seen.answers.append(got)
            seen.stages[got.stage] += 1
            if allowance is not None:
                allowance.use(got.used + (got.cached if self.caller.everything else 0))
        return got

    async def send(self, body: bytes) -> Got:
        """Sends a body, on the open connection or at another replica."""
        if self.streams is None or self.dice.random() < MOVES:
            self.close()
            self.port = self.dice.choice(self.caller.ports)
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        reader, writer = self.streams
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.caller.key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in told.split("\r\n"))}
        return got_of(int(told.split(" ", 2)[1]), headers, await reader.readexactly(int(headers["content-length"])))

    def close(self) -> None:
        """Ends the connection."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def body_of(messages: Sequence[Message], limit: int = REPLY) -> bytes:
    """The body of a request."""
    return json.dumps({"model": "gpt-4o", "messages": messages, "tools": TOOLS, "max_tokens": limit}).encode()


def got_of(status: int, headers: dict[str, str], body: bytes) -> Got:
    """What is read of an answer."""
    if status != 200:
        return Got(status, retry=float(headers.get("retry-after", 1)))
    told = json.loads(body)
    usage, number = told["usage"], int(told["id"].rpartition("-")[2])
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    used = usage["prompt_tokens"] - cached + usage["completion_tokens"]
    stage = re.search(r"stage=(\d)", headers.get("x-plimsoll-budget", ""))
    return Got(
        status,
        int(stage[1]) if stage else 0,
        int(headers["x-plimsoll-tokens-sent"]) if "x-plimsoll-tokens-sent" in headers else -1,
        "x-plimsoll-steps" in headers,
        headers.get("x-plimsoll-count", ""),
        number,
        frozenset(told["codes"]),
        used,
        cached,
    )
