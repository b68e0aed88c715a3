"""Whatever JSON a client sends, it can be read and counted."""

import pytest

from proxy.model.lenient_json import (
    Json,
    changed_at,
    compact,
    compacted,
    mapping,
    raw_places,
    read,
    read_text,
    string,
)

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


ODD = b' {"a" : 1 ,\n"b":{"c":[ {"b":2} ],"d\\"e": -1.50 }, "\\u0066" :"\\"f\\":9","g":{} } \n'


def test_each_value_of_an_object_stands_where_it_is_said_to_stand() -> None:
    found = {name: ODD[start:stop] for name, (start, stop) in raw_places(ODD).items()}
    assert found == {"a": b"1", "b": b'{"c":[ {"b":2} ],"d\\"e": -1.50 }', "f": b'"\\"f\\":9"', "g": b"{}"}


@pytest.mark.parametrize("raw", [b"", b"[1]", b"1", b'{"a":1', b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":3}'])
def test_of_what_is_no_object_or_says_a_thing_twice_no_place_is_certain(raw: bytes) -> None:
    assert raw_places(raw) == {} and changed_at(raw, ("a",), lambda value: b"7") == raw


def test_a_value_is_changed_at_its_path_and_no_other_byte() -> None:
    assert changed_at(ODD, ("b", 'd"e'), lambda value: b"7") == ODD.replace(b"-1.50", b"7")
    assert changed_at(ODD, ("b", "x"), lambda value: b"7") == ODD == changed_at(ODD, ("a", "b"), lambda value: b"7")
