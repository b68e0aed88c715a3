"""Requests from recorded conversations, in a folder that is not part of this project."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.identity.conversations import CHAT, Case, Maker, written

REPLY = 500  # tokens
LONGEST_RUN = 60_000  # tokens; longer runs are not used
MODELS = ("gpt-4o", "gpt-4", "claude-3-5-sonnet-20241022", "mistral-large-latest", "acme/harbour-9b")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. Raises FileNotFoundError."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(slots=True)
class Data:
    """The recorded conversations of a folder; each file is read once."""

    folder: Path
    chats: list[tuple[list[dict[str, Any]], list[str]]] = field(init=False)
    tool_cases: list[dict[str, Any]] = field(init=False)
    trajectories: list[dict[str, Any]] = field(init=False)
    truth: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        questions = defaultdict(list)
        for row in rows(self.folder / "history_questions.jsonl.gz"):
            questions[row["conv_id"]].append(row["question"])
        histories = rows(self.folder / "history_convs.jsonl.gz")
        self.chats = [(row["messages"], questions[row["conv_id"]]) for row in histories if questions[row["conv_id"]]]
        self.tool_cases = rows(self.folder / "tool_cases.jsonl.gz")
        self.trajectories = [r for r in rows(self.folder / "trajectories.jsonl.gz") if r["tokens"] <= LONGEST_RUN]
        self.truth = [r for r in rows(self.folder / "token_truth_dev.jsonl.gz") if r["endpoint"].startswith("chat")]

    @property
    def kinds(self) -> Mapping[str, Maker]:
        """The maker of each kind."""
        return {"histories": self.histories, "runs": self.runs, "cases": self.cases, "bodies": self.bodies}

    def histories(self, dice: random.Random, number: int) -> Iterator[Case]:
        """Four questions in one long chat, each followed by a short answer."""
        chat, questions = self.chats[number % len(self.chats)]
        said, start = list(chat), dice.randrange(len(questions))
        headers = window(dice, 2_000, 4_000, 8_000), ("x-plimsoll-ladder", dice.choice(("default", "chat", "rag")))
        for text in questions[start : start + 4]:
            said.append({"role": "user", "content": text})
            body = {"model": MODELS[number % len(MODELS)], "max_tokens": REPLY, "messages": said}
            yield Case(written(dice, body), headers=headers, inspected=dice.random() < 0.3)
            said.append({"role": "assistant", "content": "Thank you, that answers my question."})

    def runs(self, dice: random.Random, number: int) -> Iterator[Case]:
        """Four consecutive requests of an agent's run."""
        run = self.trajectories[number % len(self.trajectories)]["messages"]
        ends = [at for at, message in enumerate(run) if message["role"] == "assistant" and at > 2] or [len(run)]
        cap = window(dice, 4_000, 8_000, 16_000)
        start = dice.randrange(max(1, len(ends) - 3))
        for end in ends[start : start + 4]:
            body = {"model": MODELS[number % len(MODELS)], "max_tokens": REPLY, "messages": run[:end]}
            yield Case(written(dice, body), headers=(cap,), inspected=dice.random() < 0.2)

    def cases(self, dice: random.Random, number: int) -> Iterator[Case]:
        """A question about one large result."""
        case = self.tool_cases[number % len(self.tool_cases)]
        body = {"model": MODELS[number % len(MODELS)], "max_tokens": REPLY, "messages": case["messages"]}
        yield Case(written(dice, body), headers=(window(dice, 1_000, 2_000, 4_000),), inspected=dice.random() < 0.5)

    def bodies(self, dice: random.Random, number: int) -> Iterator[Case]:
        """Unchanged bodies of real clients."""
        for place in range(4):
            row = self.truth[(4 * number + place) * 37 % len(self.truth)]
            yield Case(json.dumps(row["request"]).encode(), path=CHAT, inspected=dice.random() < 0.3)


def window(dice: random.Random, *rooms: int) -> tuple[str, str]:
    """The header of a window that leaves one of these numbers of tokens for the prompt."""
    return "x-plimsoll-window", str(dice.choice(rooms) + REPLY + 100)
