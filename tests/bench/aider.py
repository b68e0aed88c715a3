"""What reaches the provider when aider sends three files that are together past the window of its model.

    python -m tests.bench.aider [--aider PATH] [--model gpt-4] [--ladder NAME] [--keep FOLDER]

aider is no dependency of the project: `pip install aider-chat` into an environment of its own, and name its executable.
It runs without a terminal and without a network, against the proxy before a simulator with the window of the model. It
is asked for one definition of each file, once with the file's name and once without. Returns 1 if the definition or the
name of its file is missing upstream, and 2 without aider.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proxy.simulator.app import RecordedRequest, SimulatorConfig
from tests.e2e.world import world

WINDOW = 8192
ANSWER = "The definition decides that by itself; nothing has to change."
TIMEOUT_S = 180  # aider imports for ten seconds on a slow machine
OPTIONS = (
    *("--yes-always", "--no-git", "--no-pretty", "--no-stream", "--no-auto-lint", "--no-check-update"),
    *("--no-show-model-warnings", "--no-show-release-notes", "--no-suggest-shell-commands", "--no-detect-urls"),
    *("--analytics-disable", "--no-gitignore", "--map-tokens", "0"),
)
# The nouns of each file's definitions, and the one that is asked for.
FILES: Mapping[str, tuple[str, ...]] = {
    "billing.py": ("invoice", "discount", "refund", "voucher", "surcharge", "receipt"),
    "routing.py": ("carrier", "depot", "parcel", "detour", "waypoint", "manifest"),
    "storage.py": ("shelf", "pallet", "bucket", "replica", "snapshot", "lease"),
}
VERBS = ("choose", "merge", "expire", "validate", "rank")
ASKED = {"billing.py": "expire_voucher", "routing.py": "choose_carrier", "storage.py": "merge_replica"}
QUESTIONS = (
    "In {file}, what does {name} return when its list is empty, and where is that decided?",
    "What does {name} return when its list is empty, and where is that decided?",
)


def definition(name: str, dice: random.Random) -> str:
    """A function with a docstring and a body of its own."""
    noun = name.partition("_")[2]
    limit, field = dice.randrange(3, 90), dice.choice(("weight", "due", "owner", "price", "region", "grade"))
    return f'''
def {name}({noun}s, {field}, limit={limit}):
    """{name.replace("_", " ").capitalize()} by {field}; at most {limit} are considered.

    Entries without a {field} are skipped. An empty list gives {dice.choice(("None", "zero", "the default", "[]"))}.
    """
    found = []
    for {noun} in {noun}s[:limit]:
        if {noun}.{field} is None:
            continue
        if {noun}.{field} >= {field}:
            found.append(({noun}.{field}, {noun}.id))
    if not found:
        return DEFAULTS["{name}"]
    return sorted(found)[{dice.randrange(-3, 3)}]
'''


def sources() -> dict[str, dict[str, str]]:
    """The definitions of each file, by name; the same every time."""
    dice = random.Random(14)
    return {
        file: {f"{verb}_{noun}": definition(f"{verb}_{noun}", dice) for noun in nouns for verb in VERBS}
        for file, nouns in FILES.items()
    }


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of aider: what was asked, and what the upstream received of it. `sent`, `received`: tokens of the prompt.
    `whole`: the definition that was asked for arrived whole. `named`: the files whose names arrived, each on a line of
    its own. `shares`: of each file, the share of its lines that arrived."""

    file: str
    question: str
    status: int
    sent: int
    received: int
    whole: bool
    named: tuple[str, ...]
    shares: Mapping[str, float]
    steps: str

    @property
    def held(self) -> bool:
        """Whether the definition and the name of its file are there."""
        return self.status == 200 and self.whole and self.file in self.named


def run(aider: str, model: str, file: str, question: str, ladder: str, keep: Path | None) -> Trial:
    """Asks one question about one file."""
    found = sources()
    settings = {"PLIMSOLL_LADDER": ladder} if ladder else {}
    config = SimulatorConfig(window=WINDOW, windows={model: WINDOW}, text=ANSWER)
    with TemporaryDirectory() as folder, world(config, **settings) as made:
        for name, definitions in found.items():
            Path(folder, name).write_text("DEFAULTS = {}\n" + "\n".join(definitions.values()))
        named = ASKED[file]
        command = [aider, "--model", f"openai/{model}", *OPTIONS, "--message", question.format(file=file, name=named)]
        command += ["--openai-api-base", made.through, "--openai-api-key", "none", *found]
        done = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=TIMEOUT_S
        )
        requests = [r for r in made.simulator.received if r.path.endswith("/chat/completions")]
        outcomes = [o for o in made.outcomes if o.endpoint == "chat"]
        if not outcomes:
            raise RuntimeError(f"aider sent nothing:\n{done.stdout}\n{done.stderr}")
        if keep is not None and requests:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{named}-{QUESTIONS.index(question)}.json").write_bytes(requests[0].body)
        one = outcomes[0]
        text = received(requests[0]) if requests else ""
        return Trial(
            file,
            question,
            one.status,
            one.prompt or 0,
            one.prompt_sent or 0,
            found[file][named].strip() in text,
            tuple(name for name in found if f"\n{name}\n" in text),  # as aider writes it above the file
            {name: share("\n".join(definitions.values()), text) for name, definitions in found.items()},
            ", ".join(note.step for note in one.notes),
        )


def environment(folder: str) -> dict[str, str]:
    """What aider runs with: a home of its own, and no network but this machine."""
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **{name: nowhere for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")},
        **{name: "127.0.0.1" for name in ("NO_PROXY", "no_proxy")},
    }


def received(request: RecordedRequest) -> str:
    """All text of the messages that the upstream received."""
    body: dict[str, Any] = json.loads(request.body)
    return "\n".join(m["content"] for m in body["messages"] if isinstance(m["content"], str))


def share(text: str, there: str) -> float:
    """The share of a text's lines, each of its own wording, that are there."""
    lines = {line for line in text.splitlines() if line.strip()}
    return sum(line in there for line in lines) / len(lines)


def main() -> int:
    """Runs every trial and prints one row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aider", default="aider", help="aider's executable")
    parser.add_argument("--model", default="gpt-4", help=f"a model with a window of {WINDOW:,} tokens")
    parser.add_argument("--ladder", default="", help="the proxy's ladder; its own default if empty")
    parser.add_argument("--keep", type=Path, help="a folder for the bodies that the upstream received")
    arguments = parser.parse_args()
    aider = shutil.which(arguments.aider)
    if aider is None:
        print(f"no aider at {arguments.aider}: pip install aider-chat, then --aider PATH", file=sys.stderr)
        return 2
    print("| asked | named | status | sent | received | definition | files named | lines of each file | steps |")
    print("|---|---|---|---|---|---|---|---|---|")
    held = []
    for file in FILES:
        for question in QUESTIONS:
            t = run(aider, arguments.model, file, question, arguments.ladder, arguments.keep)
            shares = ", ".join(f"{name} {part:.0%}" for name, part in t.shares.items())
            yes = {True: "yes", False: "**no**"}
            print(
                f"| {ASKED[file]} | {yes['{file}' in question]} | {t.status} | {t.sent:,} | {t.received:,} | "
                f"{yes[t.whole]} | {', '.join(t.named) or '**none**'} | {shares} | {t.steps} |",
                flush=True,
            )
            held.append(t.held)
    print(f"\n{sum(held)} of {len(held)}: the definition is whole, and the name of its file is there.")
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
