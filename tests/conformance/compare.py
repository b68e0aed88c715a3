"""Compares two runs of the client's own tests: each test's result, and every request that reached the upstream.

`python -m tests.conformance.compare FOLDER LEAST`, where straight.xml, through.xml, straight.jsonl and through.jsonl
stand.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

CONNECTION = frozenset(
    {"connection", "keep-alive", "transfer-encoding"}
)  # they speak of one connection (RFC 9110, 7.6.1)
BOUNDARY = re.compile(r"boundary=\"?([^\";]+)")
SHOWN = 10

Request = tuple[str, str, tuple[tuple[str, str], ...], bytes]


def results(path: Path) -> dict[str, str]:
    """The result of each test by its name."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = kinds.pop() if kinds else "passed"
    return found


def requests(path: Path) -> Counter[Request]:
    """The requests of a run, as often as each came: tests run side by side, so their order says nothing."""
    with path.open(encoding="ascii") as lines:
        return Counter(map(normal, lines))


def normal(line: str) -> Request:
    """A request without what is another one each time: the port that it came to, the boundary of its parts."""
    told = json.loads(line)
    body = base64.b64decode(told["body"])
    boundary = next(_boundaries(told["headers"]), "")
    headers = [(name.lower(), value) for name, value in told["headers"] if name.lower() not in CONNECTION]
    headers = [("host", "HERE") if header == ("host", told["here"]) else header for header in headers]
    if boundary:
        body = body.replace(boundary.encode(), b"BOUNDARY")
        headers = [(name, value.replace(boundary, "BOUNDARY")) for name, value in headers]
    return told["method"], told["target"], tuple(sorted(headers)), body


def _boundaries(headers: list[tuple[str, str]]) -> Iterator[str]:
    for name, value in headers:
        match = BOUNDARY.search(value) if name.lower() == "content-type" else None
        if match:
            yield match[1]


def differences(folder: Path, least: int) -> list[str]:
    """What is not the same both ways, a line each; prints the counts. Fewer than so many tests mean that the suite did
    not run."""
    straight, through = (results(folder / f"{way}.xml") for way in ("straight", "through"))
    for way, found in (("straight", straight), ("through", through)):
        print(f"{way:9} {len(found):,} tests: {dict(Counter(found.values()))}")
    told = [f"{name}: {straight.get(name)} straight, {through.get(name)} through" for name in _other(straight, through)]
    if min(len(straight), len(through)) < least:
        told.append(f"fewer than {least:,} tests ran")
    before, after = (requests(folder / f"{way}.jsonl") for way in ("straight", "through"))
    print(f"requests  {before.total():,} straight, {after.total():,} through; {len(before):,} distinct")
    told += [f"only straight: {_short(request)}" for request in before - after]
    return told + [f"only through: {_short(request)}" for request in after - before]


def _other(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def _short(request: Request) -> str:
    method, target, headers, body = request
    return f"{method} {target} {dict(headers)} {body[:200]!r}"


def main(folder: str, least: str) -> int:
    """0 where everything is the same."""
    told = differences(Path(folder), int(least))
    for line in told[:SHOWN]:
        print(line)
    print("the same both ways" if not told else f"{len(told):,} differences")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
