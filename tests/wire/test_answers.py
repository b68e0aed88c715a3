"""What an object of an answer says, in the words of each provider."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.model.outcome import Usage
from proxy.wire.answers import (
    MOST,
    choices_of,
    fields_of,
    finish_of,
    finish_within,
    has_content,
    is_error,
    plain_usage,
    says_words,
    usage_of,
    usage_within,
)


def fields(value: Any) -> Any:
    return fields_of(msgspec.json.encode(value))


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
            Usage(13, 0, 7),
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
    assert usage_of(fields(told)) == usage


def test_usage_that_is_not_told_again_stays() -> None:
    before = Usage(9, 1, 4)
    assert usage_of(fields({"usage": None}), before) == before
    assert usage_of(fields({"usage": {"output_tokens": 30}}), before) == Usage(9, 30, 4)
    assert usage_of(fields({"usage": {}}), before) == before
    assert usage_of(fields({"usage": {"input_tokens": 10, "output_tokens": 2}}), before) == Usage(10, 2)


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
    assert usage_within(rest, Usage(7)) == usage


def test_a_finish_reason_is_found_in_the_end_of_an_object_whose_beginning_is_gone() -> None:
    assert finish_within(b'"finish_reason":null},{"finish_reason" : "stop"}],"stop_reason":"length"}') == "length"
    assert finish_within(b'"finish_reason":null}') is None


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"finish_reason": "stop"}, "stop"),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"delta": {"stop_reason": "max_tokens"}}, "max_tokens"),
        ({"finish_reason": None, "delta": {"content": "x"}}, None),
        ({"finish_reason": 7, "delta": "x"}, None),
    ],
)
def test_a_finish_reason_is_found_where_its_api_puts_it(told: Any, reason: str | None) -> None:
    assert finish_of(fields(told)) == reason


@pytest.mark.parametrize(
    ("told", "content"),
    [
        ({"delta": {"role": "assistant", "content": ""}}, False),
        ({"delta": {"role": "assistant", "content": None, "refusal": None, "tool_calls": []}}, False),
        ({"delta": {"content": "x"}}, True),
        ({"delta": {"reasoning_content": "x"}}, True),
        ({"delta": {"tool_calls": [{"index": 0}]}}, True),
        ({"delta": {"refusal": "no"}}, True),
        ({"delta": {}}, False),
        ({"delta": "x"}, True),
        ({"delta": ""}, False),
        ({"message": {"role": "assistant", "content": "x"}}, True),
        ({"message": {"role": "assistant", "content": None}}, False),
        ({"text": "x"}, True),
        ({"content": [{"type": "text", "text": "x"}]}, True),
        ({"content": []}, False),
        ({"output": [{}]}, True),
        ({"usage": {}}, False),
    ],
)
def test_content_is_anything_of_a_reply_and_a_role_is_none(told: Any, content: bool) -> None:
    assert has_content(fields(told)) is content


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"error": {"message": "m"}}, True),
        ({"error": "m"}, True),
        ({"type": "error", "error": {"type": "overloaded_error"}}, True),
        ({"object": "error", "message": "m"}, True),
        ({"error": None}, False),
        ({"error": {}}, False),
        ({"choices": []}, False),
    ],
)
def test_an_error_is_anything_true_under_that_name(told: Any, error: bool) -> None:
    assert is_error(fields(told)) is error


@pytest.mark.parametrize("payload", [b"", b"[DONE]", b"[1]", b'{"a":', b'{"a":"\xff"}', b"[" * 5_000, b'{"choices":7}'])
def test_what_is_no_object_of_an_answer_says_nothing(payload: bytes) -> None:
    told = fields_of(payload)
    assert not choices_of(told)
    assert (usage_of(told), finish_of(told), has_content(told), is_error(told)) == (None, None, False, False)


def test_values_that_cannot_be_read_say_nothing() -> None:
    deep = b"[" * 5_000
    assert usage_of(fields_of(b'{"usage":{"prompt_tokens":1e999}}')) is None
    assert finish_of({"finish_reason": msgspec.Raw(b'"\xff"')}) is None
    assert usage_of({"usage": msgspec.Raw(deep)}) is None
    assert choices_of({"choices": msgspec.Raw(deep)}) == ()


WHOLE = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
}


@pytest.mark.parametrize(
    ("other", "usage"),
    [
        ({}, Usage(7, 2, 3)),
        ({"usage": {"prompt_tokens": 7, "prompt_tokens_details": {}}}, Usage(7)),
        ({"usage": {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}}, Usage(7)),
        ({"error": None}, Usage(7, 2, 3)),
        ({"choices": []}, Usage(7, 2, 3)),
        ({"object": "text_completion"}, None),
        ({"error": {"message": "too long"}}, None),
        ({"choices": [{"finish_reason": "model_length"}]}, None),
        ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": MOST + 1}}, None),
        ({"usage": None}, None),
    ],
)
def test_the_usage_of_a_whole_plain_answer_is_told_at_once(other: dict[str, Any], usage: Usage | None) -> None:
    assert plain_usage(msgspec.json.encode({**WHOLE, **other})) == usage
    assert plain_usage(msgspec.json.encode({**WHOLE, **other})[:-1]) is None


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (
            '{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}',
            True,
        ),
        ('{"choices":[{"delta":{}},{"delta":{"content":"Hi"}}]}', True),
        ('{"choices":[{"delta":{"content":""}}]}', False),
        ('{"choices":[{"delta":{"content":"Hi"},"finish_reason":"error"}]}', False),
        ('{"choices":[{"delta":{"content":"Hi"}}],"error":{"message":"no"}}', False),
        ('{"object":"error","choices":[{"delta":{"content":"Hi"}}]}', False),
        ('{"choices":[{"delta":{"content":[{"text":"Hi"}]}}]}', False),
        ('{"choices":[{"delta":{"tool_calls":[{"id":"c"}]}}]}', False),
        ("[DONE]", False),
        ("", False),
    ],
)
def test_words_of_a_reply_are_known_at_once(payload: str, found: bool) -> None:
    assert says_words(payload.encode()) is found
