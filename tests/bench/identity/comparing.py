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
MARKERS = re.compile(r"\[[^\[\]\n]{0,200}(?:left out|superseded|tokens|…)[^\[\]\n]{0,200}\]")
# Values of JSON that people read: the message of an error; in an answer of /inspect the reasons and the notices.
TEXTS = re.compile(r'(?<="message":) ?"(?:[^"\\]|\\.)*"|(?<="why":)"(?:[^"\\]|\\.)*"|(?<="notices":)\[[^\]]*\]')
LENGTH = re.compile(r"(?i)content-length: \d+")
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
    lengths of the bodies that hold them. All other bytes stay."""
    record = json.loads(line)
    for answer in (record.get("answer"), record.get("inspect")):
        if answer is not None:
            _without_words(answer, _unworded_answer(answer))
    for sent in record.get("upstream", ()):
        if _without_words(sent, MARKERS.sub(WORDS, sent["body"]) if isinstance(sent.get("body"), str) else None):
            sent |= {"bytes": WORDS, "digest": WORDS}
    if record["kind"] == "event":
        record["line"] = {name: value for name, value in record["line"].items() if name not in ("event", "why", "at")}
    if record["kind"] == "metrics":
        record["metrics"] = [one for one in record["metrics"] if not one.startswith("# HELP")]
    return json.dumps(record)


def _without_words(message: dict[str, Any], body: str | None) -> bool:
    """Sets the body of a request or an answer, and masks its notice; its length, too, if the body is another one."""
    changed = body is not None and body != message["body"]
    masked = {"x-plimsoll-notice"} | ({"content-length"} if changed else set())
    if "headers" in message:
        message["headers"] = [[n, WORDS if n.lower() in masked else v] for n, v in message["headers"]]
    if changed:
        message["body"] = body
    return changed


def _unworded_answer(answer: dict[str, Any]) -> str | None:
    body = answer.get("body")
    if not isinstance(body, str):
        return None
    head, parted, rest = body.rpartition("\r\n\r\n")
    if body.startswith("HTTP/1.1 ") and parted:  # a raw connection
        head = LENGTH.sub(WORDS, head) if "HTTP/1.1 4" in head else head
        return head + parted + (TEXTS.sub(WORDS, rest) if rest.startswith("{") else WORDS)
    if answer.get("status", 0) >= 400 and not body.startswith(("{", "[", "data:", "event:")):
        return WORDS
    return TEXTS.sub(WORDS, MARKERS.sub(WORDS, body))


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
