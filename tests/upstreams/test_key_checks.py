"""Whether an upstream checks keys."""

from __future__ import annotations

import pytest

from proxy.config.key_checks import KeyCheck
from proxy.upstreams.key_checks import KeyChecks, brings_credential
from proxy.wire.headers import QUERY

KEY = [(b"authorization", b"Bearer sk-1")]
PAGE = [*KEY, (b"origin", b"https://site.example")]


def of(*, checks: bool | None = None) -> KeyChecks:
    found = KeyChecks("h")
    found.use_rows([] if checks is None else [KeyCheck("row", ("h",), checks=checks)])
    return found


@pytest.mark.parametrize("status", [401, 403])
def test_an_upstream_checks_keys_once_it_refused_one(status: int) -> None:
    keys = of()
    assert not keys.checked
    for harmless in (200, 400, 404, 429, 500):
        keys.record_response(KEY, harmless)
    assert not keys.checked
    keys.record_response(KEY, status)
    assert keys.checked
    keys.record_response(KEY, 200)
    assert keys.checked


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_request_without_a_key_says_nothing_of_keys(status: int) -> None:
    keys = of()
    keys.record_response([(b"cookie", b"key=1")], status)
    assert not keys.checked


def test_a_page_that_a_local_server_refuses_is_no_refused_key() -> None:
    keys = of()
    keys.record_response(PAGE, 403)
    assert not keys.checked
    keys.record_response(PAGE, 401)
    assert keys.checked


def test_a_row_is_right_whatever_the_upstream_answers() -> None:
    assert of(checks=True).checked
    never = of(checks=False)
    never.record_response(KEY, 401)
    assert not never.checked
    never.use_rows([])
    assert never.checked  # the row has gone, and a key was refused


def test_a_credential_is_in_a_header_or_in_the_query() -> None:
    assert (
        brings_credential(KEY) and brings_credential([(b"x-api-key", b"1")]) and brings_credential([(b"api-key", b"")])
    )
    assert brings_credential([(QUERY, b"api_key=1")])
    assert not brings_credential([(QUERY, b"api-version=1"), (b"cookie", b"a")])
