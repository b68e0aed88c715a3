"""What the tap knows of an answer, however its bytes are cut, framed and encoded."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.ollama import API as OLLAMA
from proxy.apis.openai_chat import API
from proxy.model.api import ResponseState
from proxy.model.outcome import Usage
from proxy.model.structs import replace
from proxy.wire.tap import KEEP_JSON, KEEP_STREAM, MAX_INFLATED, Tap
from tests.counted_work import calls_of

STREAM = "text/event-stream; charset=utf-8"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}]
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, "usage": None, **more}
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


ROLE = chunk({"role": "assistant", "content": ""})
WORD = chunk({"content": 'wörd \U0001f600 error "usage":{ [DONE]'})
STOP = chunk(finish="stop")
USAGE = chunk(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"
COMMENT = b": PROCESSING\n\n"
WHOLE = COMMENT + ROLE + WORD + COMMENT + WORD + STOP + USAGE + DONE
ALL = (Usage(9, 2), "stop", True, None, True)


def fed(chunks: Iterable[bytes], content_type: str = STREAM, encoding: str = "") -> Tap:
    tap = Tap(API, content_type, encoding)
    for piece in chunks:
        tap.feed(piece)
    return tap


def known(tap: Tap) -> tuple[Usage | None, str | None, bool, bytes | None, bool]:
    return tap.usage, tap.finish, tap.done, tap.error, tap.content_seen


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    marks = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(marks)]


@given(st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_it_does_not_matter_where_a_stream_is_cut_nor_how_its_lines_end(places: list[int], end: bytes) -> None:
    assert known(fed(cut(WHOLE.replace(b"\n", end), places))) == ALL


def test_nor_whether_it_comes_byte_by_byte_and_something_is_asked_each_time() -> None:
    tap = Tap(API, STREAM)
    seen = []
    for place in range(len(WHOLE)):
        tap.feed(WHOLE[place : place + 1])
        seen.append(known(tap))
    assert seen[-1] == ALL
    assert seen[len(COMMENT + ROLE) - 1] == (None, None, False, None, False)
    assert seen[len(COMMENT + ROLE + WORD) - 1] == (None, None, False, None, True)


def test_an_end_without_its_blank_line_is_read_all_the_same() -> None:
    assert known(fed([WHOLE.rstrip()])) == ALL


def test_words_in_the_content_are_taken_for_nothing_else() -> None:
    quoting = '"usage": {"prompt_tokens": 1}, "finish_reason": "length", data: [DONE] event: error {"error": 1}'
    assert known(fed([ROLE, chunk({"content": quoting})])) == (None, None, False, None, True)


@pytest.mark.parametrize(
    ("last", "usage"),
    [
        (chunk(finish="stop", usage={"prompt_tokens": 4, "completion_tokens": 5}), Usage(4, 5)),
        (chunk(finish="stop", x_groq={"id": "r", "usage": {"prompt_tokens": 4, "completion_tokens": 5}}), Usage(4, 5)),
        (STOP, None),
    ],
    ids=["Mistral and DeepSeek: beside the choices", "Groq: under x_groq", "nobody asked for it"],
)
def test_usage_is_found_where_a_provider_puts_it(last: bytes, usage: Usage | None) -> None:
    assert known(fed([ROLE, WORD, last, DONE])) == (usage, "stop", True, None, True)


def test_of_usage_that_grows_with_every_chunk_the_last_counts() -> None:
    growing = [chunk({"content": "x"}, usage={"prompt_tokens": 4, "completion_tokens": n}) for n in range(200)]
    assert fed([*growing, STOP, DONE]).usage == Usage(4, 199)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"message":"m","code":400}}\n\n',
        b'event: error\ndata: {"message":"m"}\n\n',
        b"event: error\ndata: overloaded\n\n",
        b'data: {"object":"error","message":"m","code":400}\n\n',
    ],
)
@pytest.mark.parametrize("before", [b"", COMMENT, ROLE + WORD, WORD * 500])
def test_an_error_inside_a_stream_is_kept(before: bytes, event: bytes) -> None:
    tap = fed([before, event, DONE])
    assert tap.error == event.rstrip().rpartition(b"data: ")[2]
    assert tap.content_seen is (WORD in before)


class Counting:
    """The responses of an API; counts the events that are read."""

    def __init__(self) -> None:
        self.read_events = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(API.response, name)

    def read(self, data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
        self.read_events += 1
        return API.response.read(data, state, event)


def test_a_stream_without_an_error_is_not_read_to_find_one() -> None:
    counting = Counting()
    tap = Tap(replace(API, response=counting), STREAM)
    tap.feed(ROLE + chunk({"content": "word"}) + STOP + DONE)
    assert (tap.error, counting.read_events) == (None, 0)
    tap.feed(b'data: {"error":{"message":"m"}}\n\n')
    assert tap.error == b'{"error":{"message":"m"}}' and counting.read_events > 0


def test_the_first_error_counts() -> None:
    assert fed([b'data: {"error":1}\n\n', b'data: {"error":2}\n\n']).error == b'{"error":1}'


@pytest.mark.parametrize("size", [1_000, 70_000])
def test_of_a_long_stream_the_end_counts(size: int) -> None:
    chunks = [COMMENT, ROLE, *[WORD] * (3 * KEEP_STREAM // len(WORD)), STOP, USAGE, DONE]
    assert known(fed(cut(b"".join(chunks), range(size, 3 * KEEP_STREAM, size)))) == ALL


def test_what_only_the_beginning_of_a_long_stream_says_is_not_lost() -> None:
    start = b'data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
    text = b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}\n\n'
    end = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":900}}\n\n'
    tap = fed([start, *[text] * 1_000, end])
    assert known(tap) == (Usage(7, 900), "end_turn", False, None, True)


def test_usage_in_an_event_that_is_too_long_to_be_kept_is_found_at_its_end() -> None:
    huge = b'data: {"type":"response.completed","response":{"output":"' + b"x" * 2 * KEEP_STREAM
    tail = b'","status":"completed","usage":{"input_tokens":3,"output_tokens":4}}}\n\n'
    assert fed(cut(huge + tail, range(0, 3 * KEEP_STREAM, 1_000))).usage == Usage(3, 4)


def test_a_long_stream_costs_no_more_memory_than_its_end() -> None:
    tap = fed([WORD] * 5_000)
    assert sum(map(len, tap._kept)) < KEEP_STREAM + len(WORD)


def plain(content: str, **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return msgspec.json.encode(
        {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}, **more}, order=None
    )


PLAIN = (Usage(9, 2), "stop", False, None, True)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"])
@pytest.mark.parametrize("size", [10, KEEP_JSON // 2, 3 * KEEP_JSON])
def test_a_plain_answer_is_read_however_long_it_is(kind: str, size: int) -> None:
    assert known(fed(cut(plain("x" * size), range(0, 3 * KEEP_JSON, 65_536)), kind)) == PLAIN


def test_an_empty_answer_has_no_content() -> None:
    assert known(fed([plain("")], "application/json")) == (Usage(9, 2), "stop", False, None, False)


def test_a_plain_answer_that_is_an_error_is_kept_whole() -> None:
    body = b'{"error":{"message":"m"}}'
    assert known(fed([body[:9], body[9:]], "application/json")) == (None, None, False, body, False)


@pytest.mark.parametrize("kind", ["", "text/html", "image/png", "application/octet-stream"])
def test_other_kinds_of_answers_are_let_by(kind: str) -> None:
    tap = fed([plain("x")], kind)
    assert known(tap) == (None, None, False, None, False)
    assert not tap._kept


def encoders() -> list[tuple[str, Any]]:
    naked = zlib.compressobj(wbits=-15)
    return [("gzip", zlib.compressobj(wbits=31)), ("deflate", zlib.compressobj()), ("Deflate ", naked)]


@pytest.mark.parametrize(("encoding", "encoder"), encoders(), ids=["gzip", "deflate", "deflate without a header"])
def test_encoded_streams_are_read_on_a_copy(encoding: str, encoder: Any) -> None:
    pieces = [encoder.compress(part) + encoder.flush(zlib.Z_SYNC_FLUSH) for part in cut(WHOLE, range(0, 2_000, 99))]
    tap = fed(pieces, encoding=encoding)
    assert known(tap) == ALL
    assert known(fed([b"".join(pieces)[:1], b"".join(pieces)[1:]], encoding=encoding)) == ALL


def test_an_encoded_answer_that_is_empty_says_nothing() -> None:
    assert known(fed([b""], encoding="deflate")) == (None, None, False, None, False)


def test_an_encoding_that_is_not_read_and_bytes_that_are_not_what_they_say_are_let_by() -> None:
    nothing = (None, None, False, None, False)
    assert known(fed([WHOLE], encoding="br")) == nothing
    assert known(fed([WHOLE], encoding="gzip, gzip")) == nothing
    assert known(fed([WHOLE, WHOLE], encoding="gzip")) == nothing
    assert known(fed([b"\xff" * 99], encoding="deflate")) == nothing


def test_a_bomb_is_given_up() -> None:
    tap = fed([gzip.compress(b"data: " + b"x" * (2 * MAX_INFLATED)), b"more"], encoding="gzip")
    assert known(tap) == (None, None, False, None, False)
    assert not tap._kept


def test_a_chunk_costs_next_to_nothing() -> None:
    tap = fed([ROLE, WORD])

    def feed(count: int) -> None:
        for _ in range(count):
            tap.feed(WORD)

    assert calls_of(lambda: feed(10_000)) < 20 * 10_000


def test_a_plain_answer_that_came_in_pieces_tells_its_usage() -> None:
    told = b'{"object":"chat.completion","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
    tap = Tap(API, "application/json")
    for at in range(0, len(told), 10):
        tap.feed(told[at : at + 10])
    assert tap.usage == Usage(3) and tap.finish == "stop"


def test_lines_of_json_are_read_as_events_are() -> None:
    said = {"model": "m", "message": {"role": "assistant", "content": "word"}, "done": False}
    last = {**said, "message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 9}
    part, end = msgspec.json.encode(said) + b"\n", msgspec.json.encode({**last, "eval_count": 2}) + b"\n"
    for stream in (part + end, part * (KEEP_STREAM // len(part) + 3) + end, (part + end).replace(b"\n", b"\r\n")):
        tap = Tap(OLLAMA, "application/x-ndjson")
        for start in range(0, len(stream), 1000):
            tap.feed(stream[start : start + 1000])
        assert (tap.usage, tap.finish, tap.done, tap.error, tap.content_seen) == ALL
    broken = Tap(OLLAMA, "application/x-ndjson; charset=utf-8")
    broken.feed(part + b'{"error":"gone"}')
    assert broken.error == b'{"error":"gone"}' and not broken.done


def test_of_a_stream_it_knows_about_how_many_tokens_came() -> None:
    word = chunk({"content": " word"})
    assert fed([ROLE, *[word] * 50]).came == 51
    long = fed([ROLE, *[word] * 2_000])  # whose beginning is dropped
    assert long.came == pytest.approx(2_001, rel=0.02)
    lines = Tap(OLLAMA, "application/x-ndjson")
    lines.feed(b'{"response":"a","done":false}\n' * 7)
    assert lines.came == 7
    assert fed([b'{"id": "1"'], "application/json").came == fed([]).came == 0


@pytest.mark.parametrize(
    "event",
    [
        chunk({"content": "some words of it " * 100}),
        chunk({"reasoning_content": "some words of it " * 100}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "some words of it " * 100}}]}),
        b'data: {"type":"response.output_text.delta","delta":"' + b"some words of it " * 100 + b'"}\n\n',
        b'data: {"type":"content_block_delta","delta":{"text":"' + b"some words of it " * 100 + b'"}}\n\n',
    ],
)
def test_events_of_many_tokens_count_as_many(event: bytes) -> None:
    assert fed([event] * 10).came == pytest.approx(4_000, rel=0.1)
    again = b'data: {"type":"response.output_text.done","text":"' + b"some words of it " * 1_000 + b'"}\n\n'
    assert fed([*[event] * 5, again]).came == fed([event] * 5).came and fed([again]).came == 1
