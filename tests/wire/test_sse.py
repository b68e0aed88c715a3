"""Where an event ends and what its data are, however it is framed."""

from __future__ import annotations

import re

import pytest

from proxy.wire.sse import events, last_match, with_lf


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_way(end: bytes) -> None:
    data = end.join([b"event: error", b"data: 1", b"", b"data: 2", b"", b""])
    assert list(events(with_lf(data))) == [(b"error", b"1"), (b"", b"2")]


def test_lines_of_data_are_joined_and_one_blank_is_taken_off() -> None:
    assert list(events(b'data:{"a":\ndata:  1}\nid: 7\nretry: 9\n\n')) == [(b"", b'{"a":\n 1}')]


def test_comments_and_events_without_data_are_none() -> None:
    assert list(events(b": OPENROUTER PROCESSING\n\n\n\nevent: ping\n\ndata:\n\ndata: 1\n\n")) == [(b"", b"1")]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert list(events(b"\xef\xbb\xbfdata: 1\n\n")) == [(b"", b"1")]


def test_an_event_without_its_blank_line_counts_unless_only_finished_ones_are_asked_for() -> None:
    assert list(events(b"data: 1\n\ndata: 2\n")) == [(b"", b"1"), (b"", b"2")]
    assert list(events(b"data: 1\n\ndata: 2\n", finished=True)) == [(b"", b"1")]


@pytest.mark.parametrize(
    ("buffer", "data"),
    [
        (b"", []),
        (b"data: 1", []),
        (b"data: 1\n", []),
        (b"data: 1\r\n\r", [b"1"]),
        (b": one\n\n: two\n\n", []),
        (b'event: error\r\ndata: {"error":1}\r\n\r\nda', [b'{"error":1}']),
    ],
)
def test_an_event_is_finished_as_soon_as_its_blank_line_came(buffer: bytes, data: list[bytes]) -> None:
    assert [payload for _, payload in events(with_lf(buffer), finished=True)] == data


@pytest.mark.parametrize("rest", [b"", b"y" * 10_000])
def test_the_last_match_is_found_near_the_end_and_far_from_it(rest: bytes) -> None:
    assert last_match(re.compile(b"x+"), b"axbxx" + rest) == 3
    assert last_match(re.compile(b"z"), b"axbxx" + rest) == -1
