"""Proves that a refactoring changes no behaviour: records a set of requests, and compares two recordings.

    python -m tests.bench.identity record OUT.jsonl.gz [--root CHECKOUT] [--requests 3000] [--seed N] [--data FOLDER]
    python -m tests.bench.identity compare BEFORE.jsonl.gz AFTER.jsonl.gz [--wording] [--show N]

`record` starts proxies of CHECKOUT with different settings in front of a scripted upstream, and sends a fixed sequence
of generated requests to each. It writes one JSON line per request: the digest of its body, what the upstream received,
what the client received, and for some of them the answer of /inspect. Per proxy it writes the log lines without times,
and the metrics. Two recordings of one checkout are identical byte for byte, also on a loaded machine. FOLDER (or its
`data/`) holds recorded conversations, such as `history_convs.jsonl.gz`; they are not part of this project.

`compare` exits with 1 if records differ. With `--wording`, records that differ only in human-readable texts (messages
of errors and events, notices, reasons, markers) are counted apart and do not fail.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.arguments import checkout, existing
from tests.bench.identity.comparing import compare
from tests.bench.identity.data import Data
from tests.bench.identity.recording import record, requests_of
from tests.bench.identity.requests import KINDS
from tests.bench.identity.settings import RECORDED, SETTINGS
from tests.hostile import harness


def recorded(count: int, seed: int, data: Data | None, only: str) -> Iterator[dict[str, Any]]:
    """The records of all settings, or of those named in `only`; each setting has its share of `count` requests."""
    settings = SETTINGS if data is None else (*SETTINGS, RECORDED)
    kinds = KINDS if data is None else {**KINDS, **data.kinds}
    numbers: Counter[str] = Counter()
    whole, begun, made = sum(setting.share for setting in settings), 0, 0
    for setting in settings:
        begun += setting.share
        share = count * begun // whole - made
        made += share
        requests = requests_of(setting, kinds, share, seed, numbers)
        if only and setting.name not in only.split(","):
            deque(requests, maxlen=0)  # the numbers of the next setting follow
        else:
            started = time.monotonic()
            yield from record(setting, requests)
            print(f"{setting.name:12}{share:6,} requests {time.monotonic() - started:7.1f} s", file=sys.stderr)


def write(path: Path, records: Iterator[dict[str, Any]]) -> Counter[str]:
    """Writes one JSON line per record, reproducibly; returns the number of records of each kind."""
    counts: Counter[str] = Counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        with io.TextIOWrapper(packed, encoding="utf-8", errors="surrogatepass") as lines:
            for one in records:
                counts[one["kind"]] += 1
                lines.write(json.dumps(one) + "\n")
    return counts


def main() -> int:
    """Exit code 1 if records differ, 2 if the data is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("out", type=Path)
    recorder.add_argument("--root", type=checkout, default=harness.ROOT, help="the checkout whose proxy runs")
    recorder.add_argument("--requests", type=int, default=3_000)
    recorder.add_argument("--seed", type=int, default=13)
    recorder.add_argument("--data", type=Path, help="a folder of recorded conversations")
    recorder.add_argument("--only", default="", help="names of settings, separated by commas; default: all")
    comparer = commands.add_parser("compare")
    comparer.add_argument("before", type=existing)
    comparer.add_argument("after", type=existing)
    comparer.add_argument("--wording", action="store_true", help="tolerate differences in human-readable texts")
    comparer.add_argument("--show", type=int, default=20, help="number of records whose differences are printed")
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.before, given.after, given.wording, given.show)
    harness.ROOT = given.root.resolve()
    try:
        folder = given.data / "data" if given.data and (given.data / "data").is_dir() else given.data
        data = Data(folder) if folder else None
    except FileNotFoundError as error:
        print(f"There is no {error.filename}: nothing was recorded.", file=sys.stderr)
        return 2
    began = time.monotonic()
    counts = write(given.out, recorded(given.requests, given.seed, data, given.only))
    print(", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items())))
    print(f"{sum(counts.values()):,} records in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
