"""What a shortened result says of its whole, in the terms of the tool that returned it."""

from __future__ import annotations

import json
import re

import pytest

from proxy.fit.relevance.results.read_on import ReadOn
from proxy.fit.relevance.results.records import records_of
from proxy.fit.relevance.results.results import shorten
from proxy.fit.relevance.results.totals import totals_of
from proxy.fit.relevance.text.query import ResultQuery
from tests.counted_work import calls_of
from tests.laws.meters import CharMeter
from tests.makers import words

METER = CharMeter()


def lines(form: str, count: int) -> str:
    return "\n".join(
        form.format(n=n, m=n % 7, d=n // 10, w=words(6, f"w{n}_"), h=f"{n * 7919 + 0xABCDEF:040x}")
        for n in range(count)
    )


GREP = lines("src/part{d}/hull.py:{n}:    {w}", 300)
SHORT_LISTING = "\n".join(f"{word}{n}.py" for n in range(100) for word in ("anchor", "bow", "mast", "rudder"))
UNDER_PATHS = "\n\n".join(f"src/part{d}.py\n" + lines(f"{d}{{n}}:    {{w}}", 9) for d in range(30))
LONG_LISTING = "total 812\n" + lines("-rw-r--r-- 1 root root 4{n} May  8 10:00 hull{n}.py", 300)
TREE = ".\n" + lines("│   ├── hull{n}.py", 300) + "\n\n30 directories, 300 files"
LOG = "\n\n".join(
    f"commit {n * 7919 + 0xABCDEF:040x}\nAuthor: Ann <a@b>\nDate:   Mon May 8 10:0{n % 10}\n\n    {words(9, f'm{n}_')}"
    for n in range(90)
)
TESTS = (
    "collected 300 items\n\n"
    + "\n".join(
        f"tests/test_hull.py::test_{n} {'FAILED' if n % 50 == 0 else 'PASSED'} [ {n // 3}%]" for n in range(300)
    )
    + "\n\n6 failed, 294 passed in 3.1s"
)
GO = "\n".join(f"=== RUN   TestHull{n}\n--- {'FAIL' if n == 7 else 'PASS'}: TestHull{n} (0.00s)" for n in range(200))
PODS = "NAME        READY   STATUS    RESTARTS   AGE\n" + lines("hull-{n}    1/1     Running   {m}          {d}d", 200)
SEARCH = "\n\n".join(
    f"{n}. {words(4, f't{n}_')}\n   https://shop.example/{n}\n   {words(12, f's{n}_')}" for n in range(1, 61)
)

FORMS = {
    "grep": (GREP, r"300 total matches in 30 files; (\d+) in \d+ files? shown"),
    "grep without numbers": (
        lines("src/part{d}/hull.py:    {w}", 300),
        r"300 total matches in 30 files; (\d+) in \d+ files? shown",
    ),
    "grep in context": (
        "\n--\n".join(f"a/b{n}.c-{n}-  {words(5)}\na/b{n}.c:{n + 1}:  {words(5)}" for n in range(100)),
        r"100 total matches in 100 files; (\d+) in \d+ files? shown",
    ),
    "matches under paths": (UNDER_PATHS, r"270 total matches in 30 files; (\d+) in \d+ files? shown"),
    "counts": (lines("src/part{n}/hull.py:{m}", 300), r"300 total files; (\d+) shown"),
    "find": (lines("./src/part{d}/hull{n}.py", 300), r"300 total paths; (\d+) shown"),
    "ls": (SHORT_LISTING, r"400 total entries; (\d+) shown"),
    "ls -l": (LONG_LISTING, r"300 total entries; (\d+) shown"),
    "tree": (TREE, r"300 total entries; (\d+) shown"),
    "git log": (LOG, r"90 total commits, (\d+) shown in part"),
    "git log --oneline": (lines("{h:.9} {w}", 300), r"300 total commits; (\d+) shown"),
    "git status": (lines(" M src/part{d}/hull{n}.py", 300), r"300 total files; (\d+) shown"),
    "pytest": (TESTS, r"300 total tests, 6 failed; (\d+) shown, \d+ of them failed"),
    "go test": (GO, r"200 total tests, 1 failed; (\d+) shown, \d+ of them failed"),
    "cargo test": (lines("test hull::t{n} ... ok", 300), r"300 total tests, 0 failed; (\d+) shown"),
    "a compiler": (
        lines("src/part{d}.c:{n}:7: warning: {w}", 300),
        r"300 total diagnostics in 30 files; (\d+) in \d+ files? shown",
    ),
    "a table": ("id,what,kg\n" + lines("S{n},{w},{m}", 300), r"300 total rows; (\d+) shown"),
    "columns": (PODS, r"200 total rows; (\d+) shown"),
    "a search engine": (SEARCH, r"60 total results, (\d+) shown in part"),
}


def shortened(text: str, limit: int = 900, question: str = "What is it about?") -> str:
    made = shorten(text, limit, ResultQuery(question), METER)
    assert METER.text(made) <= limit and made != text
    return made


@pytest.mark.parametrize("kind", FORMS)
def test_a_shortened_result_says_how_many_of_how_many_it_shows(kind: str) -> None:
    text, said = FORMS[kind]
    made = shortened(text)
    note = made.splitlines()[-1]
    match = re.search(said, note)
    assert match is not None and note.startswith("[Truncated: "), note
    things = totals_of(text.split("\n"), records_of(text.split("\n")))
    assert things is not None
    if things.records is None:
        originals = text.split("\n")
        kept = made.split("\n")
        assert int(match[1]) == sum(kept.count(line) for line in {originals[place] for place in things.places})
    assert 0 < int(match[1]) < len(things.places)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("limit", [60, 200, 700])
def test_it_never_reads_like_a_complete_or_an_empty_one(kind: str, limit: int) -> None:
    made = shortened(FORMS[kind][0], limit)
    assert made.strip() and ("…" in made or "[Truncated" in made)


def test_json_says_it_in_fields_of_its_own() -> None:
    made = json.loads(shortened(json.dumps([{"id": n, "name": words(5, f"n{n}_")} for n in range(200)])))
    assert made["result_count"] == 200 and re.fullmatch(r"\[Truncated: 200 total results, \d+ shown\]", made["note"])


@pytest.mark.parametrize(
    "last", ["(Results are truncated. Use a more specific pattern.)", "... and 812 more", "Showing first 300 matches"]
)
def test_where_the_tool_itself_left_something_out_nobody_knows_the_total(last: str) -> None:
    assert "300 returned matches in 30 files" in shortened(f"{GREP}\n{last}")


@pytest.mark.parametrize(
    "text",
    [
        lines("2023-05-08 10:00:{n} INFO worker {n}: {w}", 300),
        lines("{w}. {w}.", 300),
        lines("    total_{n} = settle({m}, retries={d})", 300),
        lines("com.example.Hull: {w}", 300),
        lines("https://shop.example/{n}", 2),
        lines("12:{m}", 300),
        "\n" * 300,
        "",
    ],
)
def test_of_other_texts_nothing_is_counted_but_lines(text: str) -> None:
    assert totals_of(text.split("\n")) is None


def test_a_file_that_was_read_is_no_list_of_matches() -> None:
    made = shorten(GREP, 1_500, ResultQuery("What?"), METER, call=ReadOn(first=1, offset="offset"))
    assert "Truncated" not in made and "offset" in made


@pytest.mark.parametrize(
    "form", ["a/" * 500, "a" * 900 + ":1:", " " * 900 + "M x 1 +", "|" * 900, "x  " * 300, "A B  " * 200, "../" * 300]
)
def test_work_grows_with_the_lines_and_not_with_their_length(form: str) -> None:
    few, many, longer = [form] * 300, [form] * 600, [form * 20] * 300
    work = calls_of(lambda: totals_of(few))
    assert calls_of(lambda: totals_of(many)) <= 2.2 * work and calls_of(lambda: totals_of(longer)) <= 1.2 * work
