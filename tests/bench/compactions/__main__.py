"""Whether agents can compact a conversation that is 30 % past a window which nobody knows, straight and through.

    python -m tests.bench.compactions FOLDER [--tries 20] [--only NAME] [--fresh] [--json FILE]

FOLDER holds `node_modules` with @anthropic-ai/claude-code, @openai/codex, opencode-ai and @qwen-code/qwen-code; an
agent that is missing is named and left out. Each agent has a conversation of ten rounds with a scripted upstream that
has it read files. Fifteen facts are in it: in what the user typed, in the files, in what the model said. Then the
upstream gets a window of which that conversation is 130 %, and refuses what is longer in the wording of the provider.
The last request of the conversation that fits is answered, as ever until a window is full (with `--fresh` it is not),
and the agent is asked to compact. The upstream summarises perfectly: its summary has every fact of the request that it
answers.

Counted of each way: how often the agent said that it compacted, the facts in the request that was answered, and those
in the first request after it that was answered. Returns 1 if a compaction through the proxy failed, and 2 if there is
no agent.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from proxy.app import create_app
from proxy.config.settings import read_settings
from proxy.services import build
from tests.bench.compactions.agents import AGENTS, Agent, Run
from tests.bench.compactions.upstream import CODE, Script, Seen, upstream
from tests.e2e.world import listening

KEYS = {"authorization": "Bearer none", "x-api-key": "none"}  # those of the agents
RULE = "|---|---|---|---|---|---|"
ROUNDS, FACTS, PAST = 10, 15, 1.3
LINES = 220  # of a file that is read: 5,000 tokens or so
CODES = tuple(f"KX-{10_000 + 37 * i}" for i in range(FACTS))
TYPED, READ, SAID = CODES[:5], CODES[5:10], CODES[10:]
WORDS = "valve harbour ledger mirror copper signal orchard turbine parcel lantern bridge kernel beacon gravel".split()


@dataclass(frozen=True, slots=True)
class Trial:
    """One try. `shown`: the facts in the request that was answered; `after`: those in the first answered one after it.
    `tokens`: of the conversation when it was compacted; `window`: the upstream's then."""

    agent: str
    way: str
    compacted: bool
    shown: int
    after: int
    tokens: int
    window: int


def files(work: Path, dice: random.Random) -> None:
    """The files that are read; those with a fact have it at a place of their own."""
    for i in range(ROUNDS):
        lines = [" ".join(dice.choices(WORDS, k=14)) for _ in range(LINES)]
        if i % 2:
            lines[dice.randrange(3, 40)] = f"The switch of part {i} is {READ[i // 2]}."
        (work / f"part_{i}.md").write_text(f"# Part {i}\n" + "\n".join(lines))


def prompts(work: Path) -> Iterator[str]:
    """What the user types in each round."""
    for i in range(ROUNDS):
        fact = f"Remember that the owner of part {i} has the badge {TYPED[i // 2]}. " if i % 2 == 0 else ""
        yield f"{fact}Please read the file {work}/part_{i}.md and tell me what it says of the harbour."


def said() -> dict[str, str]:
    """What the model says about each file."""
    facts = {i: f"I decided to file it under {SAID[i // 2]}." for i in range(0, ROUNDS, 2)}
    return {
        f"part_{i}.md": f"Part {i} names the harbour. {facts.get(i, 'Nothing else follows.')}" for i in range(ROUNDS)
    }


def built(agent: Agent, folder: Path, home: Path) -> list[Seen]:
    """Has the conversation in this home; returns its requests with tools, the longest last."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "work").mkdir(parents=True)
    files(home / "work", random.Random(33))
    script = Script(said())
    with upstream(script) as url:
        run = Run(agent, folder, home, url)
        for i, prompt in enumerate(prompts(home / "work")):
            run.turn(prompt, i == 0)
    found = sorted((seen for seen in script.seen if seen.body.get("tools")), key=lambda seen: seen.tokens)
    if len(found) < 2 * ROUNDS:
        raise RuntimeError(f"{agent.name}: {len(found)} requests in {ROUNDS} rounds")
    return found


def resend(url: str, seen: Seen) -> None:
    """Sends a request of the conversation again, and reads its answer."""
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", **KEYS}
    request = urllib.request.Request(url + seen.path, json.dumps(seen.body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def tried(agent: Agent, folder: Path, home: Path, before: list[Seen], through: bool, fresh: bool) -> Trial:
    """One compaction and one turn after it, in a home that holds the conversation."""
    script, tokens = Script({}), before[-1].tokens
    with ExitStack() as stack:
        straight = url = stack.enter_context(upstream(script))
        if through:
            services = build(read_settings({"PLIMSOLL_UPSTREAM": f"{straight}/v1"}), lambda outcome: None)
            url = f"http://127.0.0.1:{stack.enter_context(listening(create_app(services)))}"
        run = Run(agent, folder, home, url)
        script.window = int(tokens / PAST)
        if not fresh:
            resend(url, [seen for seen in before if seen.tokens <= script.window][-1])
            script.seen.clear()
        compacted = run.compact()
        answered = [seen for seen in script.seen if seen.answered]
        asked = len(script.seen)
        run.turn("Which badges, switches and files do you know of?")
        later = [seen for seen in script.seen[asked:] if seen.answered and seen.body.get("tools")]
    shown, after = facts(answered), facts(later[:1])
    return Trial(agent.name, "through" if through else "straight", compacted, shown, after, tokens, script.window)


def facts(seen: list[Seen]) -> int:
    """The most facts in one of these requests."""
    return max((len(one.codes & set(CODES)) for one in seen), default=0)


def measured(agent: Agent, folder: Path, tries: int, fresh: bool) -> Iterator[Trial]:
    """All tries of an agent, straight and through in turn, each with the same conversation."""
    with TemporaryDirectory(prefix="compactions") as there:
        home, kept = Path(there, "home"), Path(there, "kept")
        before = built(agent, folder, home)
        shutil.copytree(home, kept, symlinks=True)
        for _ in range(tries):
            for through in (False, True):
                shutil.rmtree(home)
                shutil.copytree(kept, home, symlinks=True)
                yield tried(agent, folder, home, before, through, fresh)


def row(trials: list[Trial]) -> str:
    """A row of the table for the tries of one agent in one way."""
    first, done = trials[0], sum(t.compacted for t in trials)
    shown = statistics.mean(t.shown for t in trials)
    after = statistics.mean(t.after for t in trials)
    size = f"{first.tokens:,} of {first.window:,}"
    return f"| {first.agent} | {first.way} | {size} | {done} of {len(trials)} | {shown:.1f} | {after:.1f} |"


def main() -> int:
    """Runs every agent that is installed and prints two rows for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where node has installed the agents")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--only", default="", help="the executable of one agent")
    parser.add_argument("--fresh", action="store_true", help="nothing of the conversation went this way before")
    parser.add_argument("--json", type=Path, help="a file for every try")
    arguments = parser.parse_args()
    assert all(CODE.fullmatch(code) for code in CODES)
    wanted = [agent for agent in AGENTS if arguments.only in ("", agent.executable)]
    found = [agent for agent in wanted if (arguments.folder / "node_modules/.bin" / agent.executable).exists()]
    for agent in wanted:
        if agent not in found:
            print(f"no {agent.executable} in {arguments.folder}/node_modules/.bin", file=sys.stderr)
    if not found:
        return 2
    print(f"| agent | way | tokens of the window | compacted | of {FACTS} facts, shown | in what follows |\n{RULE}")
    all_of: list[Trial] = []
    for agent in found:
        trials = list(measured(agent, arguments.folder, arguments.tries, arguments.fresh))
        for way in ("straight", "through"):
            print(row([t for t in trials if t.way == way]), flush=True)
        all_of += trials
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(t) for t in all_of]))
    return 0 if all(t.compacted for t in all_of if t.way == "through") else 1


if __name__ == "__main__":
    raise SystemExit(main())
