"""Texts that are a run of records keep the head of each of which anything stays, and say how many there are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.lines import shorten_lines
from proxy.fit.relevance.results.records import records_of, rows_of
from proxy.fit.relevance.text.query import ResultQuery
from tests.laws.meters import CharMeter
from tests.makers import words

METER = CharMeter()
NAMES = [f"{name}{place}" for place in range(6) for name in ("harbour", "quay", "mast", "keel", "rope", "lamp", "tide")]
ANSWER = "the spare anchor is stored under the bridge"


def bodies() -> list[str]:
    """Forty texts of six lines; number 23 has the answer in its fifth."""
    made = [[f"{words(7, f'{name}_{line}_')} is told" for line in range(6)] for name in NAMES[:40]]
    made[23][4] = ANSWER
    return ["\n".join(lines) for lines in made]


def written(form: str, between: str = "\n\n") -> str:
    """The bodies, each with a head: {n} is its number, {name} its name, {id} like a commit's, {body} its text."""
    texts = enumerate(zip(NAMES, bodies(), strict=False), 1)
    return between.join(form.format(n=n, name=name, id=f"{n * 7919:07x}a", body=body) for n, (name, body) in texts)


FORMS = {
    "mails": (
        "From: {name}@yard.example\nTo: all@yard.example\nSubject: about the {name}\nDate: Mon, {n} Mar 2026\n\n{body}",
        ["From: mast3@yard.example", "Subject: about the mast3"],
    ),
    "commits": (
        "commit {id}\nAuthor: {name} <{name}@yard.example>\nDate:   Mon Mar 2 10:{n}:00 2026\n\n{body}",
        ["commit 002e668a", "Author: mast3"],
    ),
    "search results": (
        "{n}. All about the {name}\n   URL: https://yard.example/{name}\n{body}",
        ["24. All about the mast3", "URL: https://yard.example/mast3"],
    ),
    "threads": (
        '"{name}-worker" #{n} prio=5 tid=0x{id} waiting\n{body}',
        ['"mast3-worker" #24'],
    ),
    "goroutines": ("goroutine {n} [running]:\n{body}", ["goroutine 24 [running]:"]),
    "entries of a log": ("2026-03-02 10:{n:02}:00 job {name} failed\n{body}", ["2026-03-02 10:24:00 job mast3 failed"]),
    "tags": ('<passage rank="{n}" from="{name}.txt">\n{body}\n</passage>', ['<passage rank="24" from="mast3.txt">']),
    "lines of signs": ("--- {name}.txt ---\n{body}", ["--- mast3.txt ---"]),
    "headings": ("### Hit {n}\n\n*Found in {name}.txt*\n\n{body}", ["### Hit 24", "*Found in mast3.txt*"]),
}


def shortened(text: str, limit: int, question: str) -> str:
    found = shorten_lines(text, limit, ResultQuery(question), METER, lambda made: METER.text(made) <= limit)
    assert found is not None and METER.text(found) <= limit
    return found


@pytest.mark.parametrize("kind", FORMS)
def test_what_stays_of_a_record_stays_with_its_head(kind: str) -> None:
    form, heads = FORMS[kind]
    text = written(form)
    seen = records_of(text.split("\n"))
    assert seen is not None and len(seen.heads) == 40
    found = shortened(text, 900, "Where is the spare anchor?")
    before = found[: found.index(ANSWER)].split("\n")
    firsts = {text.split("\n")[place] for place in seen.heads}
    own = before[max(place for place, line in enumerate(before) if line in firsts) :]
    assert all(any(head in line for line in own) for head in heads), "its own head, and no other one between"
    assert re.search(r"\[Truncated: 40 total (results|commits), \d+ shown in part\]", found)


@pytest.mark.parametrize("kind", FORMS)
def test_no_line_stands_under_the_head_of_another_record(kind: str) -> None:
    text = written(FORMS[kind][0])
    lines, owner, at = text.split("\n"), {}, -1
    seen = records_of(lines)
    assert seen is not None
    for place, line in enumerate(lines):
        at = place if place in seen.heads else at
        owner[line] = lines[at]
    current = ""
    for line in shortened(text, 1_200, "Which mast or rope is told of?").split("\n"):
        if lines.count(line) == 1:
            current = line if owner[line] == line else current
            assert owner[line] == current
    assert current


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{i} {words(6, f'n{i}_')}" for i in range(90)),
        "# Guide\n\n" + "\n\n".join(f"## Part {i}\n\n{words(9)}\n\n### Detail {i}\n\n{words(9)}" for i in range(9)),
        "\n\n".join(f"Anna: {words(9, f'a{i}')}\n\nBert: {words(9, f'b{i}')}" for i in range(20)),
        "\n\n".join(f"def run_{i}(boat):\n    return boat.sail({i})" for i in range(20)),
        "\n\n".join(f"{i % 3 + 1}. {words(9, f'n{i}')}\n   more" for i in range(12)),
        "\n".join(f"--- a/boat{i}.py\n+++ b/boat{i}.py\n@@ -1 +1 @@\n-sail\n+row" for i in range(9)),
        "\n\n".join(["Note: see below\nKey: none"] * 9),
        "",
    ],
)
def test_other_texts_are_no_records(text: str) -> None:
    assert records_of(text.split("\n")) is None


def test_the_rows_of_tables_are_counted_without_their_header() -> None:
    rows = [(f"S{i}", words(2, f"r{i}"), str(i * 7)) for i in range(120)]
    csv = "\n".join(map(",".join, [("id", "what", "kg"), *rows]))
    ruled = "\n".join(f"| {' | '.join(row)} |" for row in [("id", "what", "kg"), ("---", "---", "---"), *rows])
    jsonl = "\n".join(f'{{"id": "{row[0]}", "what": "{row[1]}"}}' for row in rows)
    for text in (csv, ruled, jsonl):
        assert rows_of(text.split("\n")) == 120
        assert re.search(r"\n\[Truncated: 120 total rows; [1-9]\d* shown\]\Z", shortened(text, 500, "What of S77?"))
        assert re.search(r"S77\b", shortened(text, 300, "What of S77?"))
    assert rows_of(["one, two", "three", "and, more, of, it"]) == 0 and rows_of([]) == 0


@given(st.text(alphabet="<a=\"1>#-* \n0:'.,|{}", max_size=300), st.integers(1, 60))
def test_it_is_always_within_the_limit(text: str, limit: int) -> None:
    found = shorten_lines(text, limit, ResultQuery("a 1"), METER, lambda made: METER.text(made) <= limit)
    assert found is None or METER.text(found) <= limit
