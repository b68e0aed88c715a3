"""What is known of a message once it was read."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.relevance.text.dates import PartialDate
from proxy.fit.relevance.text.reading import (
    ARGUMENTS,
    OWN_KEY,
    Reading,
    read_message,
    read_text,
    reading,
    speakers_of,
)
from proxy.model.conversation import Message
from tests.makers import message as make


def message(**fields: Any) -> Message:
    return make(fields)


def words(read: Reading) -> dict[str, int]:
    return read.words


def test_a_text_is_read_once() -> None:
    assert read_text("alpha beta") is read_text("alpha beta")
    assert read_text("alpha beta") != read_text("alpha gamma")


def test_stop_words_are_left_out_where_the_text_is_known_to_be_english() -> None:
    read = read_text("What is it that the dog and the cat have to do with this?")
    assert words(read) == {"dog": 1, "cat": 1}
    assert words(read_text("What is it that is_valid has to do with this?")) == {"is_valid": 1, "valid": 1}
    assert read.length == 14 and read.english == 11


def test_elsewhere_every_word_counts() -> None:
    assert words(read_text("was war an dem Tag so los")) == {w: 1 for w in "was war an dem tag so los".split()}


def test_of_a_long_message_only_the_beginning_may_be_read() -> None:
    long = message(role="tool", content="alpha beta " * 10 + "gamma")
    assert set(words(read_message(long))) == {"alpha", "beta", "gamma"}
    assert words(read_message(long, 10)) == {"alpha": 1, "beta": 1} and read_message(long, 10) != read_message(long)
    assert read_message(long, 10) is read_message(long, 10)


def test_calls_are_read_with_their_names_and_arguments() -> None:
    calls = [{"id": "1", "function": {"name": "grep_files", "arguments": '{"pattern":"one\\ntwo"}'}}]
    read = read_message(message(role="assistant", content=None, tool_calls=calls))
    assert {"grep", "pattern", "one", "two"} <= set(read.words)
    assert read.names == ("grep_files",)
    assert read_message(message(role="assistant", content=None, tool_calls=calls)) is read


def test_of_long_arguments_the_beginning_is_read() -> None:
    calls = [{"id": "1", "function": {"name": "write", "arguments": f"early{' filler' * ARGUMENTS} late"}}]
    read = read_message(message(role="assistant", content="said", tool_calls=calls))
    assert set(read.words) == {"said", "write", "early", "filler"}


def test_what_is_remembered_holds_nothing_long_but_what_was_read_of_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2 * OWN_KEY}}
    sent = message(role="user", content=[image, {"type": "text", "text": "alpha"}])
    for read in (read_message(sent), read_message(sent, 3), read_text("alpha " * OWN_KEY)):
        assert isinstance(read.key, int)
    assert len({read_message(sent).key, read_message(sent, 3).key, read_text(sent.raw.decode()).key}) == 3
    assert read_message(sent) is read_message(sent) and words(read_message(sent)) == {"alpha": 1}


def test_escapes_in_json_do_not_grow_onto_words() -> None:
    read = read_message(message(role="tool", content='{"text":"line\\nbreak"}'))
    assert {"line", "break"} <= set(read.words)


@pytest.mark.parametrize(
    ("text", "speaker", "day"),
    [
        ("[2023-05-08] Caroline: Hey Mel!", "caroline", PartialDate(5, 2023, 8)),
        ("(1:56 pm on 8 May, 2023) Grad G: yes", "grad g", PartialDate(5, 2023, 8)),
        ("Marketing : no .", "marketing", None),
        ("The Chair (Ms. A. Moss): yes", "the chair (ms. a. moss)", None),
        ("小明：你好", "小明", None),
        ("[14:02] see https://example.org", "", None),
        ("no one speaks", "", None),
        ("", "", None),
    ],
)
def test_who_speaks_and_when_stands_at_the_beginning(text: str, speaker: str, day: PartialDate | None) -> None:
    read = reading(0, text)
    assert (read.speaker, read.day) == (speaker, day)


def test_a_name_that_the_message_bears_is_its_speaker() -> None:
    assert read_message(message(role="user", name="Ann", content="Bob: hi")).speaker == "ann"


def test_what_is_no_utf8_is_read_all_the_same() -> None:
    read = read_message(make(b'{"role":"user","content":"alpha \xff beta"}'))
    assert {"alpha", "beta"} <= set(read.words)


def test_a_name_before_a_colon_is_a_speaker_only_where_most_turns_bear_one() -> None:
    assert speakers_of(["ann", "bob", "ann", "bob", ""]) == {"ann", "bob"}
    assert speakers_of(["note", "", "", "note", "", ""]) == set()
    assert speakers_of(["a", "b", "c"]) == set()
