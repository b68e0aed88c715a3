"""Whatever JSON a client sends, it can be read and counted."""

import pytest

from proxy.model.lenient_json import Json, compact, compacted, mapping, read, read_text, string

DEEP = "[" * 20_000


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (rb'"\ud800"', "\ud800"),
        (b"not json", "not json"),
        (b"\xff", "\ufffd"),
        (DEEP.encode(), DEEP),
    ],
)
def test_what_cannot_be_parsed_is_read_as_text(raw: bytes, value: Json) -> None:
    assert read(raw) == value


def test_a_number_with_more_digits_than_python_reads_stays_text() -> None:
    assert read_text("1" * 9_000) == "1" * 9_000


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ('{ "a" : [1, 2.50],\n "b": "\\u00e9" }', '{"a":[1,2.5],"b":"é"}'),
        ('{"a": ', '{"a": '),
        ("", ""),
        (DEEP, DEEP),
    ],
)
def test_json_loses_its_blanks_and_other_text_loses_nothing(text: str, short: str) -> None:
    assert compacted(text) == short


def test_a_value_that_the_fast_writer_refuses_is_written_all_the_same() -> None:
    assert compact({"a": "\ud800", "b": 1 << 80}) == '{"a":"\ud800","b":1208925819614629174706176}'


def test_what_is_of_another_kind_is_empty() -> None:
    assert (mapping([1]), mapping({"a": 1}), string(None), string("x")) == ({}, {"a": 1}, "", "x")
