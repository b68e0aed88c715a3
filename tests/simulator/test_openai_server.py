"""What all APIs of OpenAI's server refuse."""

from __future__ import annotations

import gzip

import pytest

from proxy.simulator.check import ApiError
from proxy.simulator.openai_server import check_method, posted
from proxy.simulator.settings import RecordedRequest


def request(method: str, body: bytes, *headers: tuple[bytes, bytes]) -> RecordedRequest:
    return RecordedRequest(method, "/v1/x", b"", headers, body)


def test_a_body_comes_decompressed_with_its_fields() -> None:
    raw = b'{"a": 1}'
    assert posted(request("POST", raw)) == (raw, {"a": 1})
    packed = request("POST", gzip.compress(raw), (b"content-encoding", b"gzip"))
    assert posted(packed) == (raw, {"a": 1})


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("GET", b"{", 405, "Not allowed to GET on /v1/x."),
        ("POST", b"{", 400, "We could not parse the JSON body of your request."),
        ("POST", b"[]", 400, "We could not parse the JSON body of your request."),
    ],
)
def test_a_wrong_method_comes_before_a_wrong_body(method: str, body: bytes, status: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        posted(request(method, body))
    assert (caught.value.status, caught.value.message) == (status, text)


def test_a_method_may_be_the_right_one() -> None:
    check_method(request("GET", b""), "GET")
