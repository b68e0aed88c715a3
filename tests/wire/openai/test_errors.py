"""The JSON of the proxy's own errors in the shape that OpenAI's APIs share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.errors import ClientError, bad_header, does_not_fit
from proxy.wire.openai.errors import error_body, error_event


def shown(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    assert list(found) == ["error"] and list(found["error"]) == ["message", "type", "param", "code"]
    error: dict[str, Any] = found["error"]
    return error


def test_the_body_of_an_error_always_has_all_four_keys() -> None:
    no = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    assert shown(error_body(ClientError(400, "no"))) == no
    down = {"message": "down", "type": "server_error", "param": "x", "code": "upstream"}
    assert shown(error_body(ClientError(502, "down", "upstream", "x"))) == down


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "server_error") for status in (500, 502, 503, 504)),
        *((status, "invalid_request_error") for status in (400, 403, 404, 405, 408, 413, 414, 501, 505)),
    ],
)
def test_the_type_of_an_error_follows_from_its_status(status: int, kind: str) -> None:
    assert shown(error_body(ClientError(status, "text")))["type"] == kind


def test_the_api_names_the_field_that_is_too_long() -> None:
    too_long = does_not_fit(7200, 500, 100, 4096, "tools")
    assert shown(error_body(too_long, too_long="messages"))["param"] == "messages"
    assert shown(error_body(too_long))["param"] is None
    assert shown(error_body(bad_header("x-tag", "is wrong"), too_long="messages"))["param"] == "x-tag"


def test_an_event_is_the_body_as_data() -> None:
    error = does_not_fit(7200, 500, 100, 4096, "tools")
    assert error_event(error, too_long="input") == b"data: " + error_body(error, too_long="input") + b"\n\n"
