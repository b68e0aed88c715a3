"""Which APIs are found, and in which shape an error is shown on each path."""

from __future__ import annotations

import json

import pytest

from proxy.apis import (
    USUAL,
    api_of,
    apis,
    asked_in,
    at,
    by_path,
    clients_server,
    count_bodies,
    error_body,
    has_path,
    named,
    named_paths,
    server_of,
    servers,
    stream_format,
    usual,
)
from proxy.apis.openai_chat import API
from proxy.apis.openai_responses import API as RESPONSES
from proxy.errors import bad_header, does_not_fit, overloaded
from proxy.fit.money import CACHES
from proxy.model.structs import replace


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


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/openai/deployments/my%20own/chat/completions", ("chat", "my%20own")),
        ("/openai/deployments/a/embeddings", ("embeddings", "a")),
        ("/openai/deployments/a/completions", ("completions", "a")),
        ("/openai/deployments/a/responses", None),
        ("/openai/deployments/a", None),
        ("/openai/deployments//embeddings", None),
        ("/openai/deployments/a/b/embeddings", None),
        ("/v1/embeddings", None),
    ],
)
def test_a_path_that_names_the_model_has_its_api_and_the_name(path: str, found: tuple[str, str] | None) -> None:
    match = named(path)
    assert (None if match is None else (match[0].name, match[1])) == found
    api = at(path)
    assert (None if api is None else api.name) == (found[0] if found else "embeddings" if path in by_path() else None)


def test_a_name_may_stand_anywhere_in_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    gemini = replace(API, name="contents", paths=(), named_paths=("/v1beta/models/{model}:generateContent",))
    monkeypatch.setattr("proxy.apis.apis", lambda: (API, gemini))
    named_paths.cache_clear()
    try:
        assert named("/v1beta/models/gemini-2.5-pro:generateContent") == (gemini, "gemini-2.5-pro")
        assert named("/v1beta/models/tuned:7:generateContent") == (gemini, "tuned:7")
        assert named("/v1beta/models/gemini-2.5-pro:countTokens") is None
    finally:
        monkeypatch.undo()
        named_paths.cache_clear()


@pytest.mark.parametrize(
    ("path", "server"),
    [
        ("/v1/chat/completions", "openai"),
        ("/v1/responses", "openai"),
        ("/rerank", "openai"),
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/messages", "anthropic"),
        ("/api/chat", "ollama"),
        ("/v1beta/models/gemini:generateContent", "gemini"),
    ],
)
def test_the_kind_of_server_follows_from_the_path(path: str, server: str) -> None:
    assert server_of(path) is servers()[server]
    assert [name for name, one in servers().items() if has_path(one, path)] == [
        server,
        *(["litellm"] if path == "/v1/chat/completions" else []),
    ]


def test_what_is_not_known_is_read_as_the_usual_server_and_its_usual_api() -> None:
    assert usual() is API and next(iter(servers().values())) is USUAL is clients_server(())
    assert clients_server([(b"anthropic-version", b"2023-06-01")]) is servers()["anthropic"]


def test_what_an_api_and_a_server_name_is_there() -> None:
    assert list(count_bodies()) == ["gemini"]
    for server in servers().values():
        api = asked_in(server)
        assert (api is None) == (not server.asked_at) and (api is None or api.summary is not None)
        assert server.prompt_cache in ("", *CACHES)
        assert not server.mark or (api is not None and server.models is not None)
    for api in apis():
        assert servers()[api.server.name] is api.server and has_path(api.server, api.path)
