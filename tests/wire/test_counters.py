"""How upstreams are asked for their own count: rows, bodies and answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.wire.counters import Counter, CounterCall, counter_for, in_header

CALL = {"path": "/v1/count", "answer": "count", "fields": ["model", "messages"]}
HEAD = {"messages": b'[{"role":"user"}]', "stream": b"true", "model": b'"m"'}


def counter(**fields: Any) -> Counter:
    return msgspec.convert({"name": "a", "api": "chat", "calls": [CALL], "hosts": ["h"], **fields}, Counter)


def test_a_call_has_the_named_fields_of_the_clients_body_with_their_bytes() -> None:
    assert CounterCall("/v1/count", "count", ("model", "messages", "tools")).body(HEAD) == (
        b'{"model":"m","messages":[{"role":"user"}]}'
    )


def test_a_second_call_has_the_answer_of_the_first_one() -> None:
    second = CounterCall("/tokenize", "tokens", into="content", add={"parse_special": True})
    assert second.body({}, 'a "b"') == b'{"parse_special":true,"content":"a \\"b\\""}'


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"count": 7, "tokens": [1]}', 7),
        (b'{"count": [5, 6, 7]}', 3),
        (b'{"count": "text"}', "text"),
        (b'{"count": 0}', None),
        (b'{"count": []}', None),
        (b'{"count": -7}', None),
        (b'{"count": 7.5}', None),
        (b'{"count": true}', None),
        (b'{"count": null}', None),
        (b'{"count": 1e12}', None),
        (b'{"count": 10000000000}', None),
        (b'{"tokens": 7}', None),
        (b"[7]", None),
        (b'{"count": ' + b"[" * 100_000, None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_an_answer_is_a_number_a_list_or_a_text_and_anything_else_is_none(payload: bytes, expected: Any) -> None:
    assert CounterCall("/v1/count", "count").read(payload) == expected


def test_a_row_counts_for_its_hosts_and_its_owners() -> None:
    one = counter(hosts=["*.Example.com", "127.0.0.1", "::1"], owners=["vllm"])
    assert one.serves("chat", "api.example.com", "") and one.serves("chat", "127.0.0.1", "")
    assert one.serves("chat", "10.0.0.1", "vllm")
    assert not one.serves("chat", "10.0.0.1", "") and not one.serves("messages", "127.0.0.1", "vllm")


def test_the_first_row_that_is_enabled_counts() -> None:
    off, one, two = counter(enabled=False), counter(name="b"), counter(name="c")
    assert counter_for([off, one, two], "chat", "h", "") is one
    assert counter_for([off], "chat", "h", "") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": " "},
        {"hosts": []},
        {"calls": []},
        {"calls": [CALL] * 3},
        {"calls": [{**CALL, "path": "v1/count"}]},
        {"calls": [{**CALL, "path": "/v1/count?x"}]},
        {"calls": [{**CALL, "answer": 7}]},
        {"calls": [{**CALL, "path": "/v1/{mode}:count"}]},
        {"calls": [{**CALL, "path": "/v1/a count"}]},
        {"calls": [{**CALL, "beside": "v1"}]},
        {"calls": [{**CALL, "answer": ""}]},
        {"calls": [{**CALL, "into": "text"}]},
        {"calls": [CALL, CALL]},
        {"hots": ["h"]},
        {"hosts": ["https://h"]},
        {"hosts": ["h:8000"]},
        {"hosts": [""]},
        {"headers": ["Anthropic-Beta"]},
        {"key_header": "X-Goog-Api-Key"},
    ],
)
def test_a_row_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        counter(**wrong)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("gemini-2.5-pro", b"/models/gemini-2.5-pro:count"),
        ("models/gemini-2.5-pro", b"/models/gemini-2.5-pro:count"),
        ("a/../b", b"/models/b:count"),
        ("..", None),
        ("a%2Fb", None),
        ("a?key=b", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_path_may_name_the_model_if_its_name_is_plain(model: str, target: bytes | None) -> None:
    assert CounterCall("/models/{model}:count", "n").target(model) == target
    assert CounterCall("/count", "n").target(model) == b"/count"


def test_a_bearer_token_may_go_in_another_header() -> None:
    bearer, plain = (b"authorization", b"Bearer k"), (b"x-goog-api-key", b"k")
    assert in_header([bearer, (b"a", b"b")], "x-goog-api-key") == [(b"a", b"b"), plain]
    for same in ([bearer, plain], [(b"authorization", b"Basic k")], []):
        assert in_header(same, "x-goog-api-key") is same
    assert in_header([bearer], "") == [bearer]
