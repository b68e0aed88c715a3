"""Replays recorded agent runs with the tool definitions of real clients through /inspect; no model is asked.

    python -m tests.bench.tool_lists FOLDER TOOLS [--before CHECKOUT] [--limit N] [--turns N]

FOLDER is that of `tests.bench.fidelity`. TOOLS holds `<client>_tools.json`, each the `tools` of a request of a client
in the form of any API, or the answer of an MCP server to `tools/list`: what a scripted upstream recorded. In windows of
16,000, 32,000 and 64,000 tokens: the share of requests that go out; what they have of definitions and history, as
shares of the room; and of those that every version sends, the share of each prompt, definitions included, that repeats
the one before, support (`fit_bench.py`), and the price under both contracts of prompt caches, in units of an input
token for each token. Requests are in the form of Chat Completions. CHECKOUT is another version.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from tests.bench.__main__ import row
from tests.bench.arguments import checkout, existing, measures
from tests.bench.fidelity import started
from tests.bench.prices import Bills, Spent, contracts, script

PORT, PORT_BEFORE = 19590, 19591
WINDOWS = (16_000, 32_000, 64_000)
SUFFIX = "_tools.json"
MODEL = "gpt-4.1"  # whose window is larger than all that is set
COLUMNS = ("client", "tools", "window", "version", "requests", "sent", "definitions", "history", "prefix", "support")

Message = Mapping[str, Any]
Tool = dict[str, Any]


@dataclass(slots=True)
class Found:
    """Sums over the requests of one client's definitions in one window, of one version."""

    requests: int = 0
    sent: int = 0
    definitions: list[float] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    same: int = 0
    size: int = 0
    support: list[float] = field(default_factory=list)
    spent: dict[str, Spent] = field(default_factory=lambda: {match: Spent() for match in contracts()})


@dataclass(slots=True)
class Sender:
    """What one version sends of one run: `bills` of its prompts, and the pieces of the one `before`."""

    found: Found
    bills: Sequence[Bills]
    before: list[Message] = field(default_factory=list)

    def add(self, plan: Mapping[str, Any], room: int) -> None:
        """Adds a request that is sent."""
        self.found.sent += 1
        self.found.definitions.append(plan["parts"]["sent"]["tools"] / room)
        self.found.history.append((plan["tokens"]["prompt_sent"] - plan["parts"]["sent"]["tools"]) / room)

    def compare(self, plan: Mapping[str, Any], wanted: frozenset[str], names: Any, cost: Any) -> None:
        """Adds the figures of a request that every version sends. `wanted`: names that the agent used next."""
        tools = plan["parts"]["sent"]["tools"]
        pieces: list[Message] = [{"role": "tools", "tools": plan["request"].get("tools")}, *plan["sent"]]

        def tokens(message: Message) -> int:
            return int(tools if message["role"] == "tools" else cost(message))

        if self.before:
            common = takewhile(lambda pair: pair[0] == pair[1], zip(self.before, pieces, strict=False))
            self.found.same += sum(tokens(new) for _, new in common)
            self.found.size += sum(map(tokens, pieces))
        if wanted:
            self.found.support.append(len(wanted & frozenset().union(*map(names, plan["sent"]))) / len(wanted))
        for bill in self.bills:
            bill.add(pieces, tokens)
        self.before = pieces


def definitions(value: Any) -> list[Tool]:
    """The definitions of a client as tools of Chat Completions; those without a schema are left out."""
    listed = value.get("tools", value.get("result", {}).get("tools", [])) if isinstance(value, dict) else value
    return [tool for item in listed for tool in _chat_tools(item)]


def _chat_tools(item: Mapping[str, Any]) -> Iterator[Tool]:
    if isinstance(item.get("tools"), list):  # a namespace of Responses
        for inner in item["tools"]:
            yield from _chat_tools(inner)
        return
    told = item.get("function", item)
    schema = told.get("parameters") or told.get("input_schema") or told.get("inputSchema")
    if isinstance(schema, dict) and told.get("name"):
        function = {"name": told["name"], "description": told.get("description", ""), "parameters": schema}
        yield {"type": "function", "function": function}


def runs_of(folder: Path, limit: int | None, budget: int) -> list[list[Message]]:
    """The recorded runs that outgrow the budget with any definitions, the longest spread evenly."""
    with gzip.open(folder / "data" / "trajectories.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [run["messages"] for run in map(json.loads, lines) if run["tokens"] > budget]
    return found[:: max(1, len(found) // limit)][:limit] if limit else found


def replayed(
    work: Any, ports: Mapping[str, int], runs: Sequence[Sequence[Message]], tools: list[Tool], room: int, turns: int
) -> dict[str, Found]:
    """The figures of each version, of all requests of the runs that are over the room with the definitions."""
    benches = {version: work.Bench(f"http://127.0.0.1:{port}", "") for version, port in ports.items()}
    found = {version: Found() for version in ports}
    names = sys.modules["fit_bench"].names_in
    hello = next(iter(benches.values())).chat([work.user("Hi")], 400_000, tools=tools, model=MODEL)
    least = hello["parts"]["before"]["tools"]
    for messages in runs:
        senders = {
            version: Sender(one, [Bills(prices, one.spent[match]) for match, prices in contracts().items()])
            for version, one in found.items()
        }
        asked = [turn for turn, message in enumerate(messages) if message["role"] == "assistant" and turn >= 2]
        long = [turn for turn in asked if least + 3 + sum(map(work.cost, messages[:turn])) > room]
        for turn in long[:turns]:
            context = messages[:turn]
            plans = {v: bench.chat(context, room, tools=tools, model=MODEL) for v, bench in benches.items()}
            wanted = names(messages[turn]) & frozenset().union(*map(names, context))
            for version, plan in plans.items():
                found[version].requests += 1
                if plan["fits"]:
                    senders[version].add(plan, room)
                if all(each["fits"] for each in plans.values()):
                    senders[version].compare(plan, wanted, names, work.cost)
    return found


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "–"


def figures(found: Found) -> Iterator[str]:
    """The columns of one row."""
    yield f"{found.requests:,}"
    yield f"{found.sent / max(1, found.requests):.3f}"
    yield _mean(found.definitions)
    yield _mean(found.history)
    yield f"{found.same / max(1, found.size):.3f}"
    yield _mean(found.support)
    for spent in found.spent.values():
        yield f"{spent.price / max(1, spent.tokens):.3f}"


def main() -> int:
    """Prints a table: a row for each client, window and version."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=measures)
    arguments.add_argument("tools", type=existing)
    arguments.add_argument("--before", type=checkout, help="another checkout, to be measured beside this one")
    arguments.add_argument("--limit", type=int, help="recorded runs of each window; all of them without")
    arguments.add_argument("--turns", type=int, default=10_000, help="requests of each run that are measured at most")
    chosen = arguments.parse_args()
    files = sorted(chosen.tools.glob(f"*{SUFFIX}"))
    if not files:
        print(f"there is no *{SUFFIX} in {chosen.tools}", file=sys.stderr)
        return 2
    work = script(chosen.folder)
    versions = {"now": (PORT, None)} | ({"before": (PORT_BEFORE, chosen.before)} if chosen.before else {})
    proxies = [started(port, source) for port, source in versions.values()]
    try:
        print(row(*COLUMNS, *contracts()))
        print("|---" * (len(COLUMNS) + len(contracts())) + "|")
        for file in files:
            tools = definitions(json.loads(file.read_bytes()))
            for window in WINDOWS:
                room = window - work.REPLY - work.MARGIN
                runs = runs_of(chosen.folder, chosen.limit, room)
                ports = {version: port for version, (port, _) in versions.items()}
                name = file.name.removesuffix(SUFFIX)
                for version, found in replayed(work, ports, runs, tools, room, chosen.turns).items():
                    print(row(name, len(tools), f"{window:,}", version, *figures(found)), flush=True)
    finally:
        for proxy in proxies:
            proxy.terminate()
            proxy.wait(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
