"""What a pasted text of a megabyte costs: CPU time and peak memory of a first plan at 32k tokens, in process.

python -m tests.bench.pasted

Each text stands in an older message and in the one that asks. Each case runs in a process of its own that has planned
other conversations before. The peak is what Python allocated over what stood (tracemalloc); the limit is four times the
text's bytes and 16 MiB. Exit code 1 where a peak is over it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping

from proxy.bootstrap import settle
from proxy.cache.counts import LocalCounts
from tests.bench.planning import WORDS, agent, chatter, planner

SIZE = 1 << 20  # characters; of Chinese a half, which are 1.5 MiB
WINDOW = 32_000
MIB = 1 << 20
QUESTION = "What does the harbour_crane do with a socket when the pilot has left the berth?"
SPOKEN = "Where did you say that they have been with the kids when it was time to go, and what would you do there?"
PLACES = ("older", "last")


def _word(dice: random.Random) -> str:
    return f"{dice.choice(WORDS)}_{dice.randrange(9_999)}" if dice.random() < 0.3 else dice.choice(WORDS)


def _code(dice: random.Random, number: int) -> str:
    name, other = _word(dice), _word(dice)
    return f"def {name}({other}):\n    {other} = {_word(dice)}.{_word(dice)}({number})\n    return {other}\n\n"


def _row(dice: random.Random, number: int) -> str:
    return json.dumps({"id": number, "name": _word(dice), "value": dice.random(), "note": _word(dice)}) + ", "


KINDS: Mapping[str, Callable[[random.Random, int], str]] = {
    "code": _code,
    "lines": lambda dice, number: f"entry {number}: {_word(dice)} {_word(dice)}\n",
    "one line of words": lambda dice, number: _word(dice) + " ",
    "one line of Chinese": lambda dice, number: chr(0x4E00 + dice.randrange(350)),
    "rows of JSON": _row,
}


def body(kind: str, place: str) -> bytes:
    """A request with such a text in such a place."""
    dice, size, found, number = random.Random(1), SIZE // 2 if "Chinese" in kind else SIZE, list[str](), 0
    while size > 0:
        found.append(KINDS[kind](dice, number))
        size, number = size - len(found[-1]), number + 1
    text = "".join(found)
    said = [("user", f"{text}\n\n{QUESTION}")]
    if place == "older":
        said = [
            ("user", "Hello"),
            ("assistant", "Hello!"),
            ("user", text),
            ("assistant", "Thanks."),
            ("user", QUESTION),
        ]
    talk = [{"role": role, "content": content} for role, content in said]
    return json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": talk}, ensure_ascii=False).encode()


def measured(kind: str, place: str, *, memory: bool) -> float:
    """Milliseconds of CPU of the first plan, or its peak in bytes."""
    made = planner(WINDOW)
    for seed in range(3):
        made(agent(seed), LocalCounts())
        made(chatter(300, seed), LocalCounts())
    talk = [{"role": ("user", "assistant")[i % 2], "content": f"{SPOKEN} {i} " * 3} for i in range(601)]
    made(json.dumps({"model": "gpt-4o", "messages": talk}).encode(), LocalCounts())
    asked = body(kind, place)
    settle()
    if memory:
        tracemalloc.start()
    began = time.process_time()
    made(asked, LocalCounts())
    return tracemalloc.get_traced_memory()[1] if memory else 1000 * (time.process_time() - began)


def main() -> int:
    """Prints a row for each text and place."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # text, place, and what is measured
    if one := arguments.parse_args().one:
        print(measured(one[0], one[1], memory=one[2] == "memory"))
        return 0
    over = 0
    print("| text | in message | MiB | CPU ms | peak MiB | limit MiB |\n|---|---|---|---|---|---|")
    for kind in KINDS:
        for place in PLACES:
            command = [sys.executable, "-m", "tests.bench.pasted", "--one", kind, place]
            cpu, peak = (float(subprocess.check_output([*command, what])) for what in ("cpu", "memory"))
            size = len(body(kind, place))
            limit = 4 * size + 16 * MIB
            over += peak > limit
            row = f"{size / MIB:.1f} | {cpu:.0f} | {peak / MIB:.1f} | {limit / MIB:.1f}"
            print(f"| {kind} | {place} | {row} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
