"""What cuts cost under both contracts of prompt caches, at list price in units of an input token.

    python -m tests.bench.prices FOLDER [--before CHECKOUT] [--limit N] [--skip-depth]

Replays agents' runs, request by request, through /inspect of a proxy of its own, and bills what would be sent by the
model of prompt caches (`proxy/fit/prompt_cache.py`). FOLDER is that of `tests.bench.fidelity`; `bench/work_bench.py` of
it makes the runs of `depth`. Requests that fit fill the cache and are not billed. CHECKOUT is another version.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64

from proxy.config.rules import load_rules
from proxy.config.windows import load_windows
from proxy.fit.money import Prices
from proxy.fit.prompt_cache import Pieces, PrefixStore
from tests.bench.__main__ import row
from tests.bench.arguments import checkout, measures
from tests.bench.fidelity import started, tokenizers

PORT, PORT_BEFORE = 19580, 19581
CONTRACTS = {"prefix": "gpt-5.5", "breakpoint": "gpt-5.6"}  # by `match`: a model with this contract
TURN_S = 30.0  # seconds between two requests of a run: shorter than what any cache forgets after
GRAIN = 512  # bytes of a piece: about 128 tokens, the step of OpenAI's cache
ROOM, LONG = 16_000, 1.5  # tokens of a prompt; a recorded run is replayed if it has so many times that
DEPTHS = ((8_000, 500, 1_200), (50_000, 3_000, 5_000), (200_000, 15_000, 20_000))  # window; least, most of a result
READS = 40  # results of a run of `depth`
BREAKING = ("user", "tool")  # roles behind whose newest message an implicit breakpoint stands

Message = Mapping[str, Any]


class Run(NamedTuple):
    """The requests of one run, each a list of messages, in order; a prompt may take `room` tokens."""

    group: str
    room: int
    ladder: str
    requests: Sequence[Sequence[Message]]


@dataclass(slots=True)
class Spent:
    """Sums over requests: `tokens` of prompts, of which `read` and `written`; `price` in units of an input token."""

    requests: int = 0
    tokens: int = 0
    read: int = 0
    written: int = 0
    price: float = 0.0


@dataclass(slots=True)
class Bills:
    """What the requests of one run are billed under one contract, in the order in which they are sent."""

    prices: Prices
    spent: Spent
    _store: PrefixStore = field(default_factory=PrefixStore)
    _at: float = 0.0

    def add(self, sent: Sequence[Message], count: Any, *, billed: bool = True) -> None:
        """Adds a request; `count` gives the tokens of a message."""
        self._at += TURN_S
        found = pieces(sent, count)
        total = found.tokens[-1]
        hit = self._store.add("run", found, self._at, self.prices.cache)
        if billed:
            rates = self.prices.of(0)  # of prompts under the threshold where a whole request costs more
            written = hit.written if self.prices.bills_writes else 0
            self.spent.requests += 1
            self.spent.tokens += total
            self.spent.read += hit.read
            self.spent.written += written
            self.spent.price += rates.prompt(total, hit.read, written) / rates.input


def pieces(messages: Sequence[Message], count: Any) -> Pieces:
    """A prompt in pieces of `GRAIN` bytes; a message's tokens are spread evenly over its bytes."""
    hashed, digests, tokens, newest, before = xxh3_64(), list[int](), list[int](), -1, 0
    for message in messages:
        raw, whole = json.dumps(message, sort_keys=True).encode(), count(message)
        for start in range(0, len(raw), GRAIN):
            hashed.update(raw[start : start + GRAIN])
            digests.append(hashed.intdigest())
            tokens.append(before + whole * min(start + GRAIN, len(raw)) // len(raw))
        before += whole
        newest = len(digests) - 1 if message["role"] in BREAKING else newest
    return Pieces(digests, tokens, (), newest)


def recorded(folder: Path, limit: int | None) -> Iterator[Run]:
    """The recorded runs that are long enough, at `ROOM`, with the default ladder."""
    with gzip.open(folder / "data" / "trajectories.jsonl.gz", "rt", encoding="utf-8") as lines:
        runs = [run["messages"] for run in map(json.loads, lines) if run["tokens"] > LONG * ROOM]
    for messages in runs[:: max(1, len(runs) // limit)][:limit] if limit else runs:
        turns = [turn for turn, m in enumerate(messages) if m["role"] == "assistant" and turn >= 2]
        yield Run("recorded, 16,000, default", ROOM, "default", [messages[:turn] for turn in turns])


def deep(work: Any) -> Iterator[Run]:
    """The runs of the measure `depth` of work_bench.py: an agent that reads 40 files of a tenth of the window."""
    for window, least, most in DEPTHS:
        source = random.Random(f"1 0 {window}")
        messages = [
            work.system(work.AGENT),
            work.user("Read the whole code base, then write a guide to it."),
        ]
        requests = []
        for number in range(READS):
            messages = messages + work.reading(0, number, *work.big_file(source, number, least, most))
            requests.append(messages)
        for ladder in ("default", "agent"):
            yield Run(f"depth, {window:,}, {ladder}", window - work.REPLY - work.MARGIN, ladder, requests)


def contracts() -> dict[str, Prices]:
    """The prices of a model of each contract. Raises LookupError where the rules do not say what the name promises."""
    windows = load_windows(load_rules(None).windows)
    found = {match: windows.prices(model) for match, model in CONTRACTS.items()}
    priced = {match: prices for match, prices in found.items() if prices is not None and prices.cache.match == match}
    if priced.keys() != CONTRACTS.keys():
        raise LookupError(f"no prices by these contracts: {', '.join(CONTRACTS.keys() - priced.keys())}")
    return priced


def bill(bench: Any, run: Run, spent: Mapping[str, Spent], count: Any) -> None:
    """Bills the requests of one run that were cut, as they are sent, under each contract. A request that fits and comes
    before the first cut is in the caches already."""
    bills = [Bills(prices, spent[match]) for match, prices in contracts().items()]
    cut = False
    for messages in run.requests:
        sent: Sequence[Message] = messages
        cut = cut or sum(map(count, messages)) + 3 > run.room
        if cut:
            plan = bench.chat(messages, run.room, run.ladder, model="gpt-4.1")
            if not plan["fits"]:
                raise SystemExit(f"{run.group}: a request was refused")
            sent = plan["sent"]
        for one in bills:
            one.add(sent, count, billed=cut)


def measured(work: Any, port: int, runs: Sequence[Run]) -> dict[tuple[str, str], Spent]:
    """The sums by group of runs and contract."""
    bench, found = work.Bench(f"http://127.0.0.1:{port}", ""), dict[tuple[str, str], Spent]()
    for run in runs:
        spent = {match: found.setdefault((run.group, match), Spent()) for match in CONTRACTS}
        bill(bench, run, spent, work.cost)
        print(".", end="", flush=True, file=sys.stderr)
    return found


def script(folder: Path) -> Any:
    """The module `bench/work_bench.py` of the folder. Raises SystemExit with code 2 where it is missing."""
    if not (folder / "bench" / "work_bench.py").is_file():
        print(f"there is no bench/work_bench.py in {folder}", file=sys.stderr)
        raise SystemExit(2)
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(tokenizers()))
    sys.path.insert(0, str(folder / "bench"))
    return importlib.import_module("work_bench")


def main() -> int:
    """Prints a table: a row for each group of runs, contract and version."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=measures)
    arguments.add_argument("--before", type=checkout, help="another checkout, to be priced beside this one")
    arguments.add_argument("--limit", type=int, help="recorded runs; all of them without")
    arguments.add_argument("--skip-depth", action="store_true", help="recorded runs alone")
    chosen = arguments.parse_args()
    work = script(chosen.folder)
    runs = [*recorded(chosen.folder, chosen.limit), *(() if chosen.skip_depth else deep(work))]
    versions = {"now": (PORT, None)} | ({"before": (PORT_BEFORE, chosen.before)} if chosen.before else {})
    print(row("runs", "match", "version", "requests", "tokens", "read", "written", "price", "price / tokens"))
    print("|---" * 9 + "|")
    found = {}
    for version, (port, source) in versions.items():
        proxy = started(port, source)
        try:
            found[version] = measured(work, port, runs)
        finally:
            proxy.terminate()
            proxy.wait(10)
    for group, match in found["now"]:
        for version, spent in found.items():
            print(row(group, match, version, *figures(spent[group, match])))
    return 0


def figures(spent: Spent) -> Iterator[str]:
    """The number of requests, and what one takes on average."""
    yield f"{spent.requests:,}"
    for total in (spent.tokens, spent.read, spent.written, spent.price):
        yield f"{total / max(1, spent.requests):,.0f}"
    yield f"{spent.price / max(1, spent.tokens):.3f}"


if __name__ == "__main__":
    sys.exit(main())
