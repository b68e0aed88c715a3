"""Compares two recordings: identical records, records that differ in wording only, different records."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AROUND = 60  # characters shown around the first difference
MOST_FIELDS = 6  # shown per record
# Markers that steps write into a text.
MARKS = re.compile(r"\[[^\[\]\n]{0,200}(?:left out|superseded|tokens|…)[^\[\]\n]{0,200}\]")
WORDS = "*"


def read(path: Path) -> dict[str, str]:
    """The lines of a recording by the names of their records."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {json.loads(line)["name"]: line for line in lines}


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf of a record with its path; a text that holds JSON is parsed."""
    if isinstance(value, str) and value.startswith(("{", "[")) and (inner := _parsed(value)) is not None:
        yield path + "#", len(value)
        value = inner
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from fields(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for place, one in enumerate(value):
            yield from fields(one, f"{path}[{place}]")
    else:
        yield path, value


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def different(before: str, after: str) -> list[str]:
    """Each field that differs, with an excerpt of both."""
    one, two = (dict(fields(json.loads(line))) for line in (before, after))
    absent = "(absent)"
    paths = [path for path in {**one, **two} if one.get(path, absent) != two.get(path, absent)]
    return [f"{path}: {_shown(one.get(path, absent), two.get(path, absent))}" for path in paths]


def _shown(before: Any, after: Any) -> str:
    if not isinstance(before, str) or not isinstance(after, str):
        return f"{str(before)[:AROUND]!r} -> {str(after)[:AROUND]!r}"
    at = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    start = max(0, at - AROUND // 2)
    return f"at {at}: {before[start : at + AROUND]!r} -> {after[start : at + AROUND]!r}"


def unworded(line: str) -> str:
    """A record without its human-readable texts: error and event messages, notices, reasons, markers; and without the
    lengths of the bodies that hold them."""
    record = json.loads(line)
    for answer in (record.get("answer"), record.get("inspect")):
        if isinstance(answer, dict):
            _unword_answer(answer, inspected=answer is record.get("inspect"))
    for sent in record.get("upstream", ()):
        _unword_sent(sent)
    if record["kind"] == "event":
        record["line"] = {name: value for name, value in record["line"].items() if name not in ("event", "why", "at")}
    if record["kind"] == "metrics":
        record["metrics"] = [one for one in record["metrics"] if not one.startswith("# HELP")]
    return json.dumps(record)


def _unword_answer(answer: dict[str, Any], inspected: bool) -> None:
    body = answer.get("body")
    worded = body
    if isinstance(body, str):
        parsed = _parsed(body)
        if isinstance(parsed, dict):
            worded = _unword(parsed, inspected)
        elif body.startswith(("data:", "event:", ":")):
            worded = [_unword(_parsed(row.removeprefix("data: ")) or row, False) for row in body.splitlines()]
        elif answer.get("status", 0) >= 400 or "HTTP/1.1 4" in body[:10]:
            worded = WORDS
    answer["body"] = worded
    lengths = {"content-length"} if worded != body else set()
    kept = [[n, WORDS if n.lower() in {"x-plimsoll-notice", *lengths} else v] for n, v in answer.get("headers", ())]
    answer["headers"] = kept


def _unword(value: Any, inspected: bool) -> Any:
    if not isinstance(value, dict):
        return value
    error = value.get("error")
    if isinstance(error, dict) and "message" in error:
        return {**value, "error": {**error, "message": WORDS}}
    if not inspected:
        return value
    worded = {**value, "notices": WORDS, "request": json.loads(MARKS.sub(WORDS, json.dumps(value.get("request"))))}
    for detail in worded.get("messages", {}).get("detail", ()):
        detail["why"] = WORDS
    return worded


def _unword_sent(sent: dict[str, Any]) -> None:
    body = sent.get("body")
    if isinstance(body, str) and (worded := MARKS.sub(WORDS, body)) != body:
        sent |= {"body": worded, "bytes": WORDS, "digest": WORDS}
        sent["headers"] = [[n, WORDS if n.lower() == "content-length" else v] for n, v in sent["headers"]]


def compare(before: Path, after: Path, wording: bool, most: int) -> int:
    """Prints the counts, and the differences of up to `most` records. Returns 1 if one differs; with `wording` only if
    it differs in more than wording."""
    one, two = read(before), read(after)
    counts: dict[str, Counter[str]] = {}
    shown = 0
    for name in {**one, **two}:
        kind = json.loads(one.get(name) or two[name])["kind"]
        result = verdict(one.get(name), two.get(name), wording)
        counts.setdefault(kind, Counter())[result] += 1
        if result in ("different", "missing") and shown < most:
            shown += 1
            print(f"{name}: {result}")
            lines = different(one[name], two[name]) if result == "different" else []
            print("".join(f"    {line}\n" for line in lines[:MOST_FIELDS]), end="")
            print(f"    and {len(lines) - MOST_FIELDS} more fields\n" * (len(lines) > MOST_FIELDS), end="")
    results = ("identical", "wording", "different", "missing")
    print(f"{'':12}" + "".join(f"{result:>11}" for result in results))
    sums: Counter[str] = Counter()
    for kind, found in sorted(counts.items()):
        sums += found
        print(f"{kind:12}" + "".join(f"{found[result]:>11,}" for result in results))
    print(f"{'all':12}" + "".join(f"{sums[result]:>11,}" for result in results))
    return 1 if sums["different"] or sums["missing"] else 0


def verdict(before: str | None, after: str | None, wording: bool) -> str:
    """`identical`, `wording`, `different` or `missing` for the records of one request."""
    if before is None or after is None:
        return "missing"
    if before == after:
        return "identical"
    return "wording" if wording and unworded(before) == unworded(after) else "different"
