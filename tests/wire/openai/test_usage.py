"""What token usage is read from the JSON of each provider."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.model.lenient_json import raw_fields
from proxy.model.outcome import Usage
from proxy.wire.openai.usage import usage_in, usage_in_tail, with_more_prompt


def fields(value: Any) -> Any:
    return raw_fields(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}, Usage(9, 12)),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}},
            Usage(9, 1, 4),
        ),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}, Usage(9)),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8}}, Usage(9, 0, 8)),
        ({"usage": None, "x_groq": {"id": "r", "usage": {"prompt_tokens": 5, "completion_tokens": 6}}}, Usage(5, 6)),
        (
            {
                "response": {
                    "usage": {"input_tokens": 5, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 2}}
                }
            },
            Usage(5, 6, 2),
        ),
        (
            {"message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 1}}},
            Usage(13, 0, 7, written=1),
        ),
        (
            {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2}}},
            Usage(9, 0, 4, written=2),
        ),
        ({"usage": {"prompt_tokens": "9"}}, None),
        ({"usage": {"prompt_tokens": True}}, None),
        ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"completion_tokens": 3}}, None),
        ({"usage": 3}, None),
        ({"usage": None}, None),
        ({"message": "usage"}, None),
        ({}, None),
        (["usage"], None),
    ],
)
def test_usage_is_found_under_every_name(told: Any, usage: Usage | None) -> None:
    assert usage_in(fields(told)) == usage


def test_usage_that_is_not_told_again_stays() -> None:
    before = Usage(9, 1, 4)
    assert usage_in(fields({"usage": None}), before) == before
    assert usage_in(fields({"usage": {"output_tokens": 30}}), before) == Usage(9, 30, 4)
    assert usage_in(fields({"usage": {"output_tokens": 30}}), Usage(9, 1, 4, written=2)) == Usage(9, 30, 4, written=2)
    assert usage_in(fields({"usage": {}}), before) == before
    assert usage_in(fields({"usage": {"input_tokens": 10, "output_tokens": 2}}), before) == Usage(10, 2)


@pytest.mark.parametrize(
    ("rest", "usage"),
    [
        (b'..."}}],"usage" : {"prompt_tokens":9,"completion_tokens":1},"x":"y"}', Usage(9, 1)),
        (b'"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2}}', Usage(2)),
        (b'"usage":{"prompt_tokens":9', Usage(7)),
        (b'"usage":' + b'{"a":' * 5_000, Usage(7)),
        (b'"usage":null}', Usage(7)),
        (b"", Usage(7)),
    ],
)
def test_usage_is_found_in_the_end_of_an_object_whose_beginning_is_gone(rest: bytes, usage: Usage) -> None:
    assert usage_in_tail(rest, Usage(7)) == usage


def test_values_that_cannot_be_decoded_report_nothing() -> None:
    assert usage_in(raw_fields(b'{"usage":{"prompt_tokens":1e999}}')) is None
    assert usage_in({"usage": msgspec.Raw(b"[" * 5_000)}) is None


@pytest.mark.parametrize(
    ("told", "restated"),
    [
        (
            b'{"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}',
            b'{"usage":{"prompt_tokens":1009,"total_tokens":1012,"completion_tokens":3}}',
        ),
        (
            b'{"usage":{"prompt_tokens":9,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":1}}',
            b'{"usage":{"prompt_tokens":1009,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":1001}}',
        ),
        (b'{"x_groq":{"usage":{"prompt_tokens":9}}}', b'{"x_groq":{"usage":{"prompt_tokens":1009}}}'),
        (b'{"response":{"usage":{"input_tokens":9}}}', b'{"response":{"usage":{"input_tokens":1009}}}'),
    ],
)
def test_a_prompt_is_restated_with_its_totals_and_more_of_it_from_no_cache(told: bytes, restated: bytes) -> None:
    assert with_more_prompt(told, 1_000) == restated
    before, after = usage_in(raw_fields(told)), usage_in(raw_fields(restated))
    assert before is not None and after == Usage(before.prompt + 1_000, before.completion, before.cached)


@pytest.mark.parametrize(
    "told",
    [
        b'{"usage":null}',
        b'{"usage":{"prompt_tokens":0,"total_tokens":0}}',
        b'{"usage":{"completion_tokens":3,"total_tokens":3}}',
        b'{"usage":{"prompt_tokens":%b,"total_tokens":5}}' % (b"9" * 50),
        b'{"usage":[1]}',
        b'{"choices":[{"usage":{"prompt_tokens":9}}]}',
        b'{"usage":{"prompt_tokens":9},"usage":{"prompt_tokens":9}}',
        b'{"usage":{"prompt_tokens":9}',
        b"",
    ],
)
def test_what_reports_no_prompt_stays_as_it_is(told: bytes) -> None:
    assert with_more_prompt(told, 1_000) == told
