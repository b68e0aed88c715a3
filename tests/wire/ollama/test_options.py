"""Options and truncation of requests to Ollama."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proxy.wire.ollama.options import refusing, reply_limit, with_reply_limit, without_stream, without_truncation
from proxy.wire.scan import NotUnderstood


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def test_the_reply_limit_is_an_option_and_less_than_one_is_none() -> None:
    for options, limit in ((b"null", None), (b"{}", None), (b'{"num_predict":7}', 7), (b'{"num_predict":-1}', None)):
        assert reply_limit({"options": msgspec.Raw(options)}) == limit
    assert reply_limit({}) is None
    with pytest.raises(msgspec.ValidationError):
        reply_limit({"options": msgspec.Raw(b'{"num_predict":"x"}')})


def test_another_limit_leaves_the_other_options_as_they_are() -> None:
    assert with_reply_limit(b'{"top_k": 1.50, "num_predict": 9}', 5) == b'{"top_k":1.50,"num_predict":5}'


def test_a_server_is_told_to_refuse_unless_the_client_said_what_is_to_be_done() -> None:
    assert json.loads(without_truncation(body(a=1))) == json.loads(body(a=1)) | {"truncate": False}
    for own in (True, False, None):
        raw = body(truncate=own)
        assert without_truncation(raw) is raw
    assert refusing({"truncate": b"true"}) == {"truncate": b"true"}


def test_a_request_without_its_stream_says_so() -> None:
    for fields in ({}, {"stream": True}):
        assert json.loads(without_stream(body(**fields))) == json.loads(body(stream=False))


def test_what_is_no_json_is_not_changed() -> None:
    for change in (without_stream, without_truncation):
        with pytest.raises(NotUnderstood):
            change(b'{"model":')
