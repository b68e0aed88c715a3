"""A response passes with more tokens in the prompt of its usage, and nothing that could be read waits."""

from __future__ import annotations

import pytest

from proxy.apis.ollama import API as OLLAMA
from proxy.apis.openai_chat import API as CHAT
from proxy.model.api import Api
from proxy.wire import restated
from proxy.wire.restated import Change, Restater

EVENTS = b': usage\n\ndata: {"choices":[]}\r\n\r\ndata:{"usage":{"prompt_tokens":%d}}\r\rdata: [DONE]\n\n'
LINES = b'{"message":{"content":"prompt_eval_count"}}\n{"prompt_eval_count":%d,"done":true}\r\n'
STREAMS = [(CHAT, "text/event-stream; charset=utf-8", EVENTS), (OLLAMA, "application/x-ndjson", LINES)]


@pytest.mark.parametrize(("api", "kind", "stream"), STREAMS)
def test_a_stream_may_be_split_at_every_byte_and_a_line_passes_once_it_is_whole(
    api: Api, kind: str, stream: bytes
) -> None:
    raw, wanted = stream % 7, stream % 1_007
    for size in range(1, len(raw) + 1):
        one, got = Restater(Change(api, 1_000), kind), b""
        for start in range(0, len(raw), size):
            got += one.feed(raw[start : start + size])
            here = raw[: start + size]
            assert got.count(b"\n") + got.count(b"\r") == here.count(b"\n") + here.count(b"\r")
        assert got + one.end() == wanted


@pytest.mark.parametrize(("api", "kind", "stream"), STREAMS)
def test_a_stream_that_ends_in_the_middle_of_a_line_ends_there_with_its_own_bytes(
    api: Api, kind: str, stream: bytes
) -> None:
    raw = stream % 7
    for length in range(len(raw)):
        one = Restater(Change(api, 1_000), kind)
        got = one.feed(raw[:length]) + one.end()
        ends = max(raw[:length].rfind(b"\n"), raw[:length].rfind(b"\r")) + 1
        assert got.endswith(raw[ends:length]) and got.replace(b"1007", b"7") == raw[:length]


def test_a_plain_response_waits_for_its_end_and_the_blanks_before_it_do_not() -> None:
    one = Restater(Change(CHAT, 1_000), "application/json")
    assert (one.feed(b" \n"), one.feed(b"\t")) == (b" \n", b"\t")
    assert one.feed(b'\n{"usage":{"prompt_to') == one.feed(b'kens":7}}') == one.feed(b" ") == b""
    assert one.end() == b'\n{"usage":{"prompt_tokens":1007}} ' and one.end() == b""


@pytest.mark.parametrize(("kind", "line"), [("text/event-stream", b"data: "), ("application/json", b"")])
def test_what_would_wait_for_too_long_passes_as_it_is(monkeypatch: pytest.MonkeyPatch, kind: str, line: bytes) -> None:
    monkeypatch.setattr(restated, "MOST_HELD", 20)
    one = Restater(Change(CHAT, 1_000), kind)
    first, rest = line + b'{"usage":{"prompt_tokens":7', b',"x":1}}\n\n'
    assert (one.feed(first), one.feed(rest), one.end()) == (first, rest, b"")


def test_what_is_no_json_is_not_read() -> None:
    one = Restater(Change(CHAT, 1_000), "text/html")
    assert not one.reads and one.feed(b'{"usage":{"prompt_tokens":7}}') == b'{"usage":{"prompt_tokens":7}}'
    assert one.end() == b"" and Restater(Change(CHAT, 1), "application/problem+json").reads


def test_a_whole_response_is_restated_and_one_without_usage_is_the_same() -> None:
    plain = b'{"choices":[]}'
    assert Change(CHAT, 5).whole(plain) is plain
    assert Change(CHAT, 5).whole(b'{"usage":{"prompt_tokens":7}}') == b'{"usage":{"prompt_tokens":12}}'
