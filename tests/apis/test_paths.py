"""What a path means: where the operator's key goes, and what logs and metrics show."""

from __future__ import annotations

import pytest

from proxy.apis import apis
from proxy.apis.paths import LONGEST_PATH, family, only_counts, shown, takes_key


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


def test_every_apis_usual_path_may_carry_the_key_and_is_shown_whole() -> None:
    for api in apis():
        for path in api.paths[:1]:
            assert takes_key("POST", path.encode()) and shown(path.encode()) == path


@pytest.mark.parametrize(
    ("target", "counts"),
    [
        (b"/v1/messages/count_tokens?beta=true", True),
        (b"/v1/responses/input_tokens/", True),
        (b"/v1beta/models/gemini-2.5-pro:countTokens", True),
        (b"/v1/images/generations?x=/count_tokens", False),
        (b"/v1/messages/count_tokens/batches", False),
    ],
)
def test_what_only_counts_is_told_by_the_end_of_its_path(target: bytes, counts: bool) -> None:
    assert only_counts(target) is counts
