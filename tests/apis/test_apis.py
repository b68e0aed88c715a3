"""Which APIs are found, and in which shape an error is shown on each path."""

from __future__ import annotations

import json

import pytest

from proxy.apis import api_of, apis, by_path, error_body, stream_format
from proxy.apis.openai_chat import API
from proxy.apis.openai_responses import API as RESPONSES
from proxy.errors import bad_header, does_not_fit, overloaded


def test_every_package_with_an_api_is_found_and_no_name_or_path_is_taken_twice() -> None:
    assert API in apis()
    assert len({api.name for api in apis()}) == len(apis())
    assert len(by_path()) == sum(len(api.paths) for api in apis())
    assert by_path()["/v1/responses"] is by_path()["/openai/v1/responses"] is RESPONSES
    assert by_path()["/v1/chat/completions"] is by_path()["/chat/completions"] is API


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"model": "m", "messages": []}, "chat"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"function": {}}]}, "chat"),
        ({"model": "m", "input": "x"}, "responses"),
        ({"model": "m", "input": "x", "prompt": {"id": "pmpt_1"}}, "responses"),
        ({"model": "m", "prompt": "x"}, "completions"),
        ({"model": "m", "messages": [], "system": "x"}, "messages"),
        ({"model": "m", "messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages"),
        ({"model": "m", "messages": [], "tools": [{"input_schema": {}}]}, "messages"),
    ],
)
def test_the_api_of_a_body_is_recognised_by_its_fields(body: object, name: str) -> None:
    found = api_of(json.dumps(body).encode())
    assert found is not None and found.name == name


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model":"m"}', b'{"prompt":5}'])
def test_a_body_of_no_api_has_none(body: bytes) -> None:
    assert api_of(body) is None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files", "/metrics", "*"])
def test_an_error_has_all_four_keys_of_openais_contract_on_every_path(path: str) -> None:
    for error in (does_not_fit(1, 2, 3, 4, "messages"), overloaded(), bad_header("x", "is wrong")):
        shown = json.loads(error_body(path, error))
        assert shown["error"].keys() == {"message", "type", "param", "code"}
        assert shown["error"]["message"] == error.message and shown["error"]["code"] == error.code


def test_an_error_in_a_stream_is_an_event_with_the_same_json() -> None:
    error = overloaded()
    for path in ("/v1/chat/completions", "/v1/files"):
        assert stream_format(path).error_event(error) == b"data: " + error_body(path, error) + b"\n\n"
        assert stream_format(path).is_end_of_stream(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/api/chat", "/api/tags", "/api/pull"])
def test_an_error_on_any_path_of_ollamas_has_ollamas_shape(path: str) -> None:
    assert json.loads(error_body(path, overloaded())) == {"error": overloaded().message}
