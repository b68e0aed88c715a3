"""How often the line that a question is about survives, in logs made by script that are one tool result, in process.

python -m tests.bench.logs [--variant first|second] [--seed N] [--each N] [--show]

The ranking was developed on the first variant; nothing is tuned on the second.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from proxy.apis.openai_chat import request
from proxy.cache.counts import LocalCounts
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.conversation import PartKind
from proxy.model.limits import Window
from proxy.model.plan import Facts, Ladder
from proxy.tokens.meter import meter_for
from tests.bench.logs.generator import Case, cases

BUDGETS = (1_000, 2_000, 4_000)  # tokens for the result
REPLY, MARGIN = 500, 100
CALLS = ({"path": "/var/log/app.log"}, {"command": "tail -n 2000 /var/log/app.log"}, {"service": "app", "limit": 2000})
SYSTEM = "You are an assistant with tools. Answer from the results of your tools."


def conversation(case: Case) -> bytes:
    """A request in which a tool returned the log; the question is asked before the call, or after the result."""
    dice = random.Random(case.question + case.needle)
    function = {"name": "read_log", "arguments": json.dumps(dice.choice(CALLS))}
    made = {"id": "c1", "type": "function", "function": function}
    call = {"role": "assistant", "content": None, "tool_calls": [made]}
    log = json.dumps({"output": case.log, "exit_code": 0}) if dice.random() < 0.15 else case.log
    result = {"role": "tool", "tool_call_id": "c1", "content": log}
    asked = {"role": "user", "content": case.question}
    talk = [asked, call, result]
    if dice.random() < 0.3:
        first, answer = "Please get me the log, I will ask about it then.", "I have it. What do you want to know?"
        talk = [{"role": "user", "content": first}, call, result, {"role": "assistant", "content": answer}, asked]
    messages = [{"role": "system", "content": SYSTEM}, *talk]
    return json.dumps({"model": "gpt-4o", "max_tokens": REPLY, "messages": messages}).encode()


def keeps(ladder: Ladder, case: Case, budget: int) -> bool:
    """Whether the needle is still there, whole, with so many tokens for the result."""
    prompt = request.parse(conversation(case))
    meter = meter_for(prompt, prompt.model, LocalCounts())
    others = [message for message in prompt.messages if not message.answers]
    room = sum(meter.fixed.values()) + sum(sum(meter.costs([message])) for message in others) + budget
    made = plan(prompt, ladder, Facts(Window(room + REPLY + MARGIN), meter)).draft
    parts = [part for message in made.messages for part in message.parts() if part.kind is PartKind.RESULT]
    text = "\n".join(part.text for part in parts)
    return case.needle in text or json.dumps(case.needle)[1:-1] in text


def table(found: Sequence[tuple[Case, list[bool]]], by: Callable[[Case], str]) -> None:
    """Prints a row for each kind of case."""
    rows: dict[str, list[list[bool]]] = defaultdict(list)
    for case, kept in found:
        rows[by(case)].append(kept)
    for name, row in rows.items():
        shares = " | ".join(f"{sum(column) / len(column):.2f}" for column in zip(*row, strict=True))
        print(f"| {name} | {len(row)} | {shares} |")


def main() -> None:
    """Prints recall by format, by kind of question, and of all."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--variant", choices=("first", "second"), default="first")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--each", type=int, default=2, help="logs for each needle")
    arguments.add_argument("--show", action="store_true", help="the cases whose needle is lost")
    chosen = arguments.parse_args()
    ladder = load_rules(None).ladders["default"]
    made = cases(chosen.variant, chosen.seed, chosen.each)
    found = [(case, [keeps(ladder, case, budget) for budget in BUDGETS]) for case in made]
    print(f"| variant {chosen.variant} | cases | 1k | 2k | 4k |\n|---|---|---|---|---|")
    table(found, lambda case: case.format)
    table(found, lambda case: case.kind)
    table(found, lambda case: "all")
    for case, kept in found if chosen.show else ():
        if not all(kept):
            print(f"{case.format} {kept}: {case.question}\n    {case.needle}")


if __name__ == "__main__":
    main()
