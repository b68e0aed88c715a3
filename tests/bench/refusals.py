"""How many recorded "too long" answers, and look-alikes, are recognised as they were annotated.

python -m tests.bench.refusals --data DIR
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.rules import load_rules
from proxy.types import Refusal
from proxy.wire.refusals import Rules, recognise

FIGURES = (("window", "limit"), ("prompt_tokens", "prompt"), ("completion_tokens", "completion"))


def faults(row: Mapping[str, Any], found: Refusal | None) -> list[str]:
    """What was told otherwise than annotated; a figure that is worked out from others may be missing."""
    if (found is not None) != row["is_overflow"]:
        return [f"is_overflow should be {row['is_overflow']}"]
    if found is None:
        return []
    told = {"limit": found.limit, "prompt": found.prompt, "completion": found.completion}
    if found.prompt is None and found.limit is not None and found.excess is not None:
        told["prompt"] = found.limit + found.excess
    return [
        f"{key} should be {row[key]}, is {told[mine]}" for key, mine in FIGURES if row[key] not in (None, told[mine])
    ]


def looked_at(rules: Rules, row: Mapping[str, Any]) -> Refusal | None:
    """A recorded body as it came."""
    return recognise(rules, row["status"], row["body"].encode())


def main() -> int:
    """Prints each row that was not told as annotated, and the sum; exit code 1 where there was one."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder with refusals.jsonl")
    path = arguments.parse_args().data / "refusals.jsonl"
    if not path.exists():
        print(f"{path} is not there: name its folder with --data", file=sys.stderr)
        return 2
    rules = load_rules(None).refusals
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = [(row, told) for row in rows if (told := faults(row, looked_at(rules, row)))]
    for row, told in wrong:
        print(f"{row['provider']}: {'; '.join(told)}")
    print(f"{len(rows) - len(wrong)} of {len(rows)} as annotated")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
