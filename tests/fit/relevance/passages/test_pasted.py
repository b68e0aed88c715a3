"""What of a long text its sender wrote."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from proxy.fit.relevance.passages import pasted
from proxy.fit.relevance.passages.pasted import typed_ends

BODY = "The ferry leaves at nine.\nAsk Ida for the tickets."
FORMS: dict[str, Callable[[int], str]] = {
    "numbered": lambda k: f"({k}) notes/{k}.md\n{BODY}",
    "tags": lambda k: f'<note id="{k}">\n{BODY}\n</note>',
    "signs": lambda k: f"=== Note {k} ===\n{BODY}",
    "headings": lambda k: f"## Note {k}\n\n*Source: notes/{k}.md*\n\n{BODY}",
}


def own(text: str) -> tuple[str, str]:
    """What stands before and behind what was pasted."""
    start, end = typed_ends(text)
    return text[:start].strip(), text[end:].strip()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["", "Answer from these notes."])
@pytest.mark.parametrize("after", ["", "When does it leave?", "Be short.\n\nWhen does it leave?"])
def test_records_are_not_their_senders_words(form: str, before: str, after: str) -> None:
    notes = "\n\n".join(FORMS[form](k) for k in range(1, 21))
    text = "\n\n".join(filter(None, (before, notes, after)))
    if before or after:
        assert own(text) == (before, after)
    else:
        assert typed_ends(text) == (len(text), 0), "of a text that is nothing else both ends may be anything"


def test_a_heading_that_is_none_of_the_records_is_their_senders() -> None:
    notes = "\n\n".join(FORMS["headings"](k) for k in range(1, 21))
    assert own(f"{notes}\n\n## Question\n\nWhen does it leave?")[1] == "## Question\n\nWhen does it leave?"


def test_of_records_that_end_in_several_ways_the_last_paragraph_is_their_senders() -> None:
    notes = "\n\n".join(f"{FORMS['numbered'](k)}{chr(10) * 2 + 'More.' if k % 3 else ''}" for k in range(1, 21))
    assert own(f"{notes}\n\nWhen does it leave?")[1] == "When does it leave?"


@pytest.mark.parametrize(
    "table",
    [
        "id,town,day\n" + "\n".join(f"{i},Town{i},{i}" for i in range(100)),
        "| id | town |\n|---|---|\n" + "\n".join(f"| {i} | Town{i} |" for i in range(100)),
        "\n".join(json.dumps({"id": i, "town": f"Town{i}"}) for i in range(100)),
        json.dumps([{"id": i, "town": f"Town{i}"} for i in range(100)]),
        json.dumps({"took": 3, "hits": [{"id": i, "town": f"Town{i}"} for i in range(100)]}),
    ],
)
def test_tables_and_json_are_not_their_senders_words(table: str) -> None:
    assert own(f"Here they are:\n\n{table}\n\nWhich town is last?") == ("Here they are:", "Which town is last?")


@pytest.mark.parametrize("asks", [{"question": "Which town is last?"}, {"task": "Name the last town"}])
def test_an_object_that_asks_by_itself_may_be_its_senders_words(asks: dict[str, str]) -> None:
    value = json.dumps(asks | {"hits": [{"id": i, "town": f"Town{i}"} for i in range(100)]})
    text = f"Input as JSON, as always:\n{value}"
    assert typed_ends(text) == (len(text), 0)


def test_prose_and_very_long_texts_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    prose = "\n\n".join(f"Paragraph {i} tells of the island." for i in range(50))
    assert typed_ends(prose) == (len(prose), 0)
    monkeypatch.setattr(pasted, "LONGEST", 100)
    text = "\n\n".join(map(FORMS["signs"], range(20)))
    assert typed_ends(f"{text}\n\nWhen?") == (len(text) + 7, 0)
