"""First sentences, in several languages and of descriptions as tools have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.first_sentence import CUT, LONGEST, MORE, first_sentence


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Reads a file. Use it often.", "Reads a file."),
        ("Really delete it? Ask first.", "Really delete it?"),
        ("Deletes all of it! Ask first.", "Deletes all of it!"),
        ("Searches e.g. Jira or files, i.e. All of them. More.", "Searches e.g. Jira or files, i.e. All of them."),
        ("Uses version 1.2 of a.b and `c.d`. Never else.", "Uses version 1.2 of a.b and `c.d`."),
        ("Liest z. B. Dateien oder u. a. Ordner ein. Schluss.", "Liest z. B. Dateien oder u. a. Ordner ein."),
        ("Search (approx. Nearest) items. More.", "Search (approx. Nearest) items."),
        ("1. Read the file. 2. Write it.", "1. Read the file."),
        ('Says "do it." Then waits.', 'Says "do it."'),
        ("ファイルを読み込みます。次に返します。", "ファイルを読み込みます。"),
        ("फ़ाइल पढ़ता है। फिर लौटाता है।", "फ़ाइल पढ़ता है।"),
        ("هل تريد حذف الملف؟ اسأل أولا", "هل تريد حذف الملف؟"),
    ],
)
def test_a_sentence_ends_where_a_reader_sees_its_end(text: str, first: str) -> None:
    assert first_sentence(text) == first


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Search the items\nUse this when nothing else helps", "Search the items"),
        ("Creates an item with:\n - name\n - state", "Creates an item with:"),
        ("# Title of the tool\n\nit reads files.", "# Title of the tool"),
        ("Searches the\nindex for items\nof all users.\nMore of it.", "Searches the\nindex for items\nof all users."),
    ],
)
def test_a_line_break_ends_a_sentence_unless_the_line_is_only_wrapped(text: str, first: str) -> None:
    assert first_sentence(text) == first


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Note. This reads the file. More.", "Note. This reads the file."),
        ("<use>\nReads files.\n</use>", "<use>\nReads files."),
    ],
)
def test_what_says_nothing_is_no_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first


def test_what_has_no_end_is_cut_at_a_word() -> None:
    found = first_sentence("word " * 400)
    assert found.endswith("word" + MORE) and len(found) <= CUT + len(MORE)
    assert first_sentence("no end at all") == "no end at all"
    assert first_sentence("x" * 5_000) == "x" * CUT + MORE
    assert first_sentence("語" * 5_000) == "語" * (CUT // 3) + MORE


@pytest.mark.parametrize("text", ["", "  \n ", " " * 5_000 + "far behind"])
def test_of_nothing_there_is_nothing(text: str) -> None:
    assert first_sentence(text) == ""


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=2_000))
def test_it_is_the_beginning_of_the_text_and_short_and_found_again(text: str) -> None:
    found = first_sentence(text)
    assert text.strip().startswith(found.removesuffix(MORE).rstrip()) or found == ""
    assert len(found.encode()) <= LONGEST + len(MORE.encode())
    assert first_sentence(text) == found


def test_a_long_description_takes_no_time() -> None:
    for text in ("a. " * 400_000, "\n" * 1_000_000, "e.g. " * 200_000, "." * 1_000_000, "(" * 1_000_000):
        assert len(first_sentence(text)) <= LONGEST
