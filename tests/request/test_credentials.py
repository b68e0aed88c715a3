"""The credentials of a request are known in every form in which a text may repeat them."""

from __future__ import annotations

from base64 import b64encode

from proxy.request.credentials import credentials_of
from proxy.wire.headers import QUERY


def test_a_key_is_known_without_its_scheme() -> None:
    assert credentials_of(((b"authorization", b"Bearer  sk-1234567890 "),)) == (b"sk-1234567890",)
    assert credentials_of(((b"x-api-key", b"sk-1234567890"), (b"api-key", b"short"), (b"host", b"example.com"))) == (
        b"sk-1234567890",
    )


def test_keys_in_the_query_are_known() -> None:
    assert credentials_of(((QUERY, b"key=AIza12345678&alt=sse"),)) == (b"AIza12345678",)


def test_a_key_is_known_as_urls_and_json_have_it() -> None:
    assert credentials_of(((b"x-api-key", b'ab/cd+"efgh'),)) == (b'ab/cd+"efgh', b"ab%2Fcd%2B%22efgh", b'ab/cd+\\"efgh')


def test_a_password_is_known_in_a_basic_credential() -> None:
    value = b64encode(b"me:password-4711")
    assert credentials_of(((b"authorization", b"Basic " + value),))[0::2] == (value, b"password-4711") or (
        b"password-4711" in credentials_of(((b"authorization", b"Basic " + value),))
    )
    assert credentials_of(((b"authorization", b"Basic not-base64!"),))[0] == b"not-base64!"
