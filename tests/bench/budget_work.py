"""The work of the scripted day: tasks of agents, made from a seed, and the texts of a client that is in a loop."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

THINGS = "toll depth width rate height weight length tide bearing draught".split()
WORDS = (
    "pilot crane cargo quay shed anchor ledger signal rope harbour customs barge chart buoy engine hatch winch "
    "moved counted closed opened painted weighed lifted signed checked moored repaired stored loaded sold found"
).split()
SYLLABLES = "bar cal dor fen gor hal kel lam mor nar pel ras sal tor vel wen".split()
FACTS = 3  # of a file
ORDER = "first second third fourth fifth sixth seventh eighth ninth".split()
LINE = 13.5  # tokens of a line of a file, on average
INSTRUCTIONS = (
    "You are the clerk of a harbour office. Answer questions from the files, with the code that stands there, and with "
    "nothing else. Read a file with read_file. Never invent a code. "
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": told,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    for name, told in (("read_file", "Reads a file of the office."), ("list_files", "Lists the files of a folder."))
]
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A file: its name, its text, and the codes of its facts."""

    path: str
    text: str
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the codes without whose facts nobody can answer it."""

    text: str
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent does: it reads all files, then it is asked. `opening`: its instructions, and what its user wants.
    `at`: when it comes, as a share of the day."""

    opening: tuple[Message, ...]
    files: tuple[File, ...]
    questions: tuple[Question, ...]
    at: float = 0.0

    def holding(self, code: str) -> File:
        """The file with the fact of a code."""
        return next(file for file in self.files if code in file.codes)


def task(seed: str, files: tuple[int, int] = (3, 8), tokens: int = 1_200, questions: int = 3, at: float = 0.0) -> Task:
    """A task of so many files (least, most) of so many tokens each, on average."""
    dice = random.Random(seed)
    written = tuple(_file(dice, f"notes/{number:02}.txt", tokens) for number in range(dice.randint(*files)))
    wanted = f"Read the files of {_place(dice)}, then answer my questions about them. Case {seed}."
    opening = ({"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": wanted})
    told = [file for file, _ in written]
    return Task(opening, tuple(told), tuple(_question(dice, written) for _ in range(questions)), at)


def _place(dice: random.Random) -> str:
    return "".join(dice.choices(SYLLABLES, k=3)).capitalize()


def _file(dice: random.Random, path: str, tokens: int) -> tuple[File, list[str]]:
    """A file, and the names of its facts."""
    count = max(FACTS, round(tokens * dice.uniform(0.6, 1.4) / LINE))
    lines = [
        f"{dice.randrange(24):02}:{dice.randrange(60):02} {' '.join(dice.choices(WORDS, k=5))} {dice.randrange(9999)}."
        for _ in range(count)
    ]
    names = [f"{dice.choice(THINGS)} of {_place(dice)}" for _ in range(FACTS)]
    codes = [f"{''.join(dice.choices('BDFGKLMNPRT', k=2))}{dice.randrange(1000, 9999)}" for _ in range(FACTS)]
    for name, code in zip(names, codes, strict=True):
        lines.insert(dice.randrange(len(lines) + 1), f"The {name} is {code}.")
    return File(path, "\n".join(lines), tuple(codes)), names


def _question(dice: random.Random, written: Sequence[tuple[File, list[str]]]) -> Question:
    """A question that names its fact, or only the file, or only when that was read."""
    place = dice.randrange(len(written))
    file, names = written[place]
    kind = dice.choices(("fact", "file", "order"), (6, 2, 2))[0]
    if kind == "fact":
        number = dice.randrange(FACTS)
        return Question(f"What is the {names[number]}?", frozenset([file.codes[number]]))
    if kind == "file":
        return Question(f"Which codes stand in {file.path}?", frozenset(file.codes))
    return Question(f"And which codes were in the {ORDER[place]} file that you read?", frozenset(file.codes))


def reading(file: File, number: int) -> list[Message]:
    """An agent's call that reads a file, and its result."""
    function = {"name": "read_file", "arguments": json.dumps({"path": file.path})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": file.text},
    ]


def looping(seed: str, turns: int, tokens: int = 350) -> list[list[Message]]:
    """The messages of each turn of a client that tries the same again and again: the first one's are an opening."""
    dice = random.Random(seed)
    wanted = f"Load the cargo list of {_place(dice)}. Run {seed}."
    found: list[list[Message]] = [
        [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": wanted}],
    ]
    failed, _ = _file(dice, "lists/cargo.txt", tokens)
    for number in range(turns - 1):
        error = File("lists/cargo.txt", f"Error {dice.randrange(99_999)}: not readable\n{failed.text}", ())
        found.append(reading(error, number))
    return found
