"""Which spellings are one path, and where the operator's key goes."""

from __future__ import annotations

import pytest

from proxy.wire.paths import LONGEST_PATH, brings_key, deployment_of, family, one_path, shown, takes_key


def test_doubled_and_trailing_slashes_do_not_change_a_path() -> None:
    for path in (b"/v1/models", b"//v1//models", b"/v1/models/", b"/v1///models//"):
        assert one_path(path) == b"/v1/models"
    assert one_path(b"/") == one_path(b"") == b"/"


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", b"/v1/chat/completions"),
        ("POST", b"/chat/completions"),
        ("POST", b"//v1/chat//completions/?x=1"),
        ("POST", b"/v1/completions"),
        ("POST", b"/v1/embeddings"),
        ("POST", b"/v1/responses"),
        ("GET", b"/v1/responses"),
        ("POST", b"/v1/responses/compact"),
        ("POST", b"/responses/input_tokens"),
        ("POST", b"/v1/messages"),
        ("POST", b"/v1/messages/count_tokens"),
        ("GET", b"/v1/models"),
        ("GET", b"/models?limit=3"),
        ("POST", b"/api/chat"),
        ("GET", b"/api/ps"),
    ],
)
def test_the_key_goes_to_what_asks_a_model_and_to_the_list_of_models(method: str, target: bytes) -> None:
    assert takes_key(method, target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", b"/v1/organization/admin_api_keys"),
        ("GET", b"/v1/chat/completions"),
        ("DELETE", b"/v1/models"),
        ("GET", b"/v1/models/../organization/admin_api_keys"),
        ("POST", b"/v1/chat/completions/../../files"),
        ("POST", b"/v1/chat%2Fcompletions"),
        ("POST", b"/v1/files"),
        ("POST", b"/v1/fine_tuning/jobs"),
        ("GET", b"/v1/responses/resp_1"),
        ("POST", b"/v1/v1/embeddings"),
        ("GET", b"/v1"),
        ("GET", b"?/v1/models"),
        ("POST", b"/api/pull"),
        ("DELETE", b"/api/delete"),
    ],
)
def test_it_goes_nowhere_else(method: str, target: bytes) -> None:
    assert not takes_key(method, target)


@pytest.mark.parametrize(
    ("target", "told", "named"),
    [
        (b"/v1/chat/completions", "/v1/chat/completions", "chat"),
        (b"/v1/responses?api_key=sk-1", "/v1/responses", "responses"),
        (b"/v1/responses/resp_68af/input_items", "/v1/responses/*/input_items", "responses"),
        (b"//v1//files/file-1/content/", "/v1/files/*/content", "files"),
        (b"/v1/messages/count_tokens", "/v1/messages/count_tokens", "messages"),
        (b"/openai/deployments/mine/chat/completions", "/openai/deployments/*/chat/completions", "azure"),
        (b"/api/chat", "/api/chat", "ollama"),
        (b"/v1/sk-secret", "/v1/*", "other"),
        (b"/secret%20words/\xff", "/*/*", "other"),
        (b"/", "/", "other"),
        (b"/v1" + 9 * b"/x", "/v1/*/*/*/*/*/*/*/...", "other"),
        (b"/v1/" + LONGEST_PATH * b"x", "/...", "other"),
    ],
)
def test_a_log_shows_of_a_path_only_the_words_of_known_apis(target: bytes, told: str, named: str) -> None:
    assert shown(target) == told
    assert family(told) == named


@pytest.mark.parametrize(
    "query", [b"key=1", b"a=b&api_key=1", b"a=b&Api-Key=", b"token=x", b"access_token=x", b"apikey=1"]
)
def test_a_credential_in_a_query_is_a_clients_own_key(query: bytes) -> None:
    assert brings_key(b"/v1/responses?" + query, [])


@pytest.mark.parametrize("target", [b"/v1/key=1", b"/v1/models?page_token=1", b"/v1/models?monkey=1", b"/v1/models"])
def test_what_is_no_credential_is_none(target: bytes) -> None:
    assert not brings_key(target, [(b"sec-websocket-protocol", b"realtime"), (b"x-key", b"1")])


def test_a_subprotocol_may_be_a_credential() -> None:
    assert brings_key(b"/v1/responses", [(b"sec-websocket-protocol", b"realtime, openai-insecure-api-key.sk-1")])


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (b"/openai/deployments/my%20own/chat/completions", ("my%20own", b"/chat/completions")),
        (b"/openai/deployments/a/embeddings", ("a", b"/embeddings")),
        (b"/openai/deployments/a", None),
        (b"/openai/deployments//embeddings", None),
        (b"/v1/embeddings", None),
    ],
)
def test_the_path_of_a_deployment_has_its_name(path: bytes, found: tuple[str, bytes] | None) -> None:
    assert deployment_of(path) == found
