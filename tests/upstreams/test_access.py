"""What goes to an upstream of a row, and what does not."""

from __future__ import annotations

import pytest

from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.upstreams.access import Access, access_of, key_of, response_headers

KEY = (b"x-api-key", b"op")
CHAT = b"/v1/chat/completions"


def sent(access: Access, *headers: tuple[bytes, bytes], target: bytes = CHAT) -> list[tuple[bytes, bytes]]:
    return access.request_headers("POST", target, headers)


def test_headers_that_are_known_go_along_and_no_others() -> None:
    known = [(b"content-type", b"application/json"), (b"anthropic-beta", b"x"), (b"x-stainless-lang", b"python")]
    unknown = [(b"authorization", b"c"), (b"cookie", b"c"), (b"x-mine", b"c"), (b"x-plimsoll-mode", b"off")]
    assert sent(Access(), *known, *unknown) == known


def test_a_row_may_name_further_headers() -> None:
    assert sent(Access(headers=frozenset({b"x-mine"})), (b"x-mine", b"1"), (b"x-other", b"2")) == [(b"x-mine", b"1")]


def test_a_header_that_the_client_declares_to_be_of_the_connection_does_not_go() -> None:
    assert sent(Access(), (b"connection", b"user-agent"), (b"user-agent", b"x")) == []


def test_the_operators_key_goes_with_calls_of_models_and_with_paths_of_the_row() -> None:
    access = Access(KEY, lambda path: path == "/v1/audio/speech")
    assert sent(access) == sent(access, target=b"/v1/audio/speech") == [KEY]
    assert sent(access, target=b"/v1/files") == sent(access, target=b"/v1/audio/../files") == []


def test_of_a_websockets_subprotocols_only_those_that_are_no_key_go() -> None:
    offered = (b"sec-websocket-protocol", b"realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1")
    assert sent(Access(), offered) == [(b"sec-websocket-protocol", b"realtime, openai-beta.realtime-v1")]
    assert sent(Access(), (b"sec-websocket-protocol", b"secret")) == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/v1/x", b"/v1/x"),
        (b"/v1/x?api-version=1&key=k", b"/v1/x?api-version=1"),
        (b"/v1/x?key=k", b"/v1/x"),
        (b"/v1/x?k%65y=k&beta=true", b"/v1/x?beta=true"),
        (b"/v1/x?beta", b"/v1/x?beta"),
    ],
)
def test_known_parameters_of_the_query_go_along_and_no_others(target: bytes, expected: bytes) -> None:
    assert Access().target(target) == expected


def test_headers_about_the_operators_account_go_to_no_client() -> None:
    kept = [(b"x-request-id", b"1"), (b"retry-after", b"1")]
    assert response_headers([(b"set-cookie", b"a"), *kept, (b"openai-organization", b"acme")]) == kept


def row(**fields: str) -> UpstreamRow:
    return UpstreamRow(name="a", url="http://h", **fields)  # type: ignore[arg-type]


def test_a_key_comes_from_the_variable_that_the_row_names() -> None:
    assert key_of(row(), {}) == ""
    assert key_of(row(key="K"), {"K": " op\n"}) == "op"
    assert key_of(row(key="K"), None) == "K"  # nothing is sent


@pytest.mark.parametrize("variables", [{}, {"K": " "}, {"K": "a\nb"}, {"K": "s\u00e9"}])
def test_a_missing_or_broken_key_is_an_error_that_does_not_show_it(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="the variable K is not set, or is no key") as caught:
        key_of(row(key="K"), variables)
    assert "s\u00e9" not in str(caught.value)


def test_the_key_stands_in_the_header_of_the_row_and_in_no_repr() -> None:
    keyed = bool
    assert access_of(row(), "op", keyed).key == (b"authorization", b"Bearer op")
    access = access_of(row(key_header="x-goog-api-key", headers=("x-team",)), "op", keyed)  # type: ignore[arg-type]
    assert (access.key, access.headers) == ((b"x-goog-api-key", b"op"), frozenset({b"x-team"}))
    assert access_of(row(), "", keyed).key is None and "op" not in repr(access)
