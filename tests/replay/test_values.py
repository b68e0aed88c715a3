"""Reading of values of any type."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.model.outcome import Extra, Usage
from proxy.replay.values import body, first, moment, nested, of, status, text, tokens, usage, value
from tests.replay.readers.reading import STRANGE


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 0, 4)),
        ({"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}, Usage(9, 2, 4)),
        (
            {"input_tokens": 9, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 6},
            Usage(20, 0, 5, written=6),
        ),
        ({"input_tokens": 9, "input_tokens_details": {"cache_write_tokens": 3}}, Usage(9, 0, 0, written=3)),
        ('{"prompt_tokens": 9}', Usage(9)),
        ({"prompt_eval_count": 9, "eval_count": 1}, Usage(9, 1)),
        ({"completion_tokens": 2}, None),
        (
            {"prompt_tokens": 9, "completion_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(9, 8, reasoning=5),
        ),
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {"audio_tokens": 3},
                "completion_tokens_details": {"audio_tokens": 2},
                "service_tier": "flex",
                "cost": 0.5,
            },
            Usage(9, tier="flex", extra=Extra(audio=3, audio_reply=2, cost=0.5)),
        ),
        (
            {
                "input_tokens": 9,
                "cache_creation_input_tokens": 6,
                "cache_creation": {"ephemeral_1h_input_tokens": 4},
                "server_tool_use": {"web_search_requests": 2},
            },
            Usage(15, written=6, extra=Extra(written_hour=4, searches=2)),
        ),
    ],
)
def test_usage_is_read_as_each_api_writes_it(found: Any, expected: Usage | None) -> None:
    assert usage(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1_763_000_000, 1_763_000_000.0),
        (1_763_000_000_000, 1_763_000_000.0),
        (1_763_000_000_000_000_000, 1_763_000_000.0),
        ("1763000000.5", 1_763_000_000.5),
        ("2025-11-13T02:13:20Z", 1_763_000_000.0),
        ("2025-11-13T03:13:20+01:00", 1_763_000_000.0),
        ("2025-11-13 02:13:20.000000", 1_763_000_000.0),
        ("yesterday", None),
        (0, None),
        (float("inf"), None),
        (True, None),
        ("9" * 39, None),
    ],
)
def test_a_moment_is_read_in_any_of_its_forms(found: Any, expected: float | None) -> None:
    assert moment(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [(7, 7), ("7", 7), (7.9, 7), (-1, None), (True, None), (1e30, None), ("x", None), (None, None)],
)
def test_a_number_of_tokens(found: Any, expected: int | None) -> None:
    assert tokens(found) == expected


@pytest.mark.parametrize(("found", "expected"), [(404, 404), ("404", 404), (True, 0), (7, 0), ("4o4", 0), (None, 0)])
def test_a_status(found: Any, expected: int) -> None:
    assert status(found) == expected


def test_a_text_is_short_and_can_be_shown() -> None:
    assert text("a\x1b[2Jb") == "a?[2Jb" and len(text("x" * 999)) == 200 and text(7) == ""


def test_fields_are_decoded_and_the_first_that_says_something_counts() -> None:
    fields = {"a": msgspec.Raw(b"null"), "b": msgspec.Raw(b"1"), "c": msgspec.Raw(b"{")}
    assert of(fields, "x", "a", "b") == 1 and of(fields, "c") is None and value(None) is None
    assert first({"a": "x", "b": 2}, ("a", "b")) == 2 and first({}, ("a",)) == 0


def test_json_in_a_text_is_read() -> None:
    assert nested('{"a": 1}') == {"a": 1} and nested("[broken") == "[broken" and nested("plain") == "plain"


def test_a_text_with_a_value_in_every_second_byte_is_not_decoded() -> None:
    crowded = "[" + "1," * (1 << 18) + "1]"
    assert nested(crowded) == crowded and len(nested("[" + "1," * 1_000 + "1]")) == 1_001


def test_a_body_is_written_without_what_is_missing() -> None:
    assert body({"a": 1, "b": None, "c": msgspec.Raw(b" 2 ")}) == b'{"a":1,"c": 2 }'
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert body({"a": deep}) == b""
    while deep:  # so that it is not taken apart by recursion
        deep = deep[0]


@pytest.mark.parametrize("strange", STRANGE)
def test_no_value_raises(strange: Any) -> None:
    usage(strange), moment(strange), tokens(strange), status(strange), text(strange), nested(strange)
