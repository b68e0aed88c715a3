"""Streams whose lines are JSON."""

from proxy.wire.ndjson import objects

TWO = b'{"a":1}\n\r\n {"b":"\\n"}\r\n'


def test_every_line_with_something_in_it_is_an_event() -> None:
    assert list(objects(TWO)) == [(b"", b'{"a":1}'), (b"", b'{"b":"\\n"}')]
    assert list(objects(b"")) == []


def test_a_line_whose_end_is_missing_counts_unless_it_must_be_finished() -> None:
    assert [data for _, data in objects(TWO + b'{"c"')][2:] == [b'{"c"']
    assert list(objects(TWO + b'{"c"', finished=True)) == list(objects(TWO))
