"""Which spellings are one path, and which requests bring a credential."""

from __future__ import annotations

import pytest

from proxy.wire.paths import brings_key, one_path


def test_doubled_and_trailing_slashes_do_not_change_a_path() -> None:
    for path in (b"/v1/models", b"//v1//models", b"/v1/models/", b"/v1///models//"):
        assert one_path(path) == b"/v1/models"
    assert one_path(b"/") == one_path(b"") == b"/"


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
