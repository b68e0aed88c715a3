"""What may be forwarded, by name alone."""

from __future__ import annotations

import pytest

from proxy.wire.headers import (
    CREDENTIALS,
    HOP_BY_HOP,
    MOST_NAMES,
    NameTest,
    answered_id,
    connection_options,
    head_of,
    reported_cost,
    request_id,
    spellings,
    to_client,
    to_upstream,
    value_of,
)

END_TO_END = [(b"content-type", b"application/json"), (b"x-a", b"1"), (b"x-a", b"2"), (b"accept", b"*/*")]


def test_end_to_end_headers_keep_their_order_and_duplicates() -> None:
    assert to_upstream(END_TO_END) == END_TO_END
    assert to_client(END_TO_END) == END_TO_END


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_hop_by_hop_headers_go_neither_way(name: bytes) -> None:
    assert to_upstream([(name, b"x"), *END_TO_END]) == END_TO_END
    assert to_client([(name, b"x"), *END_TO_END]) == END_TO_END


@pytest.mark.parametrize("name", [b"host", b"expect", b"x-plimsoll-mode", b"x-plimsoll-", b"x-plimsoll-anything"])
def test_what_is_said_to_the_proxy_stays_here(name: bytes) -> None:
    assert to_upstream([*END_TO_END, (name, b"x")]) == END_TO_END


@pytest.mark.parametrize("name", [b"transfer_encoding", b"content_length", b"proxy_authorization", b"x_plimsoll_mode"])
def test_a_name_that_a_server_may_read_as_one_of_these_goes_neither_way(name: bytes) -> None:
    assert to_upstream([(name, b"x"), *END_TO_END]) == to_client([(name, b"x"), *END_TO_END]) == END_TO_END


def test_other_names_with_underscores_go_both_ways() -> None:
    headers = [(b"session_id", b"1"), (b"x_api_key", b"2")]
    assert to_upstream(headers) == to_client(headers) == headers


def test_each_hyphen_of_a_name_is_spelled_both_ways() -> None:
    assert set(spellings((b"a-b-c", b"d"))) == {b"a-b-c", b"a_b-c", b"a-b_c", b"a_b_c", b"d"}
    assert {b"authorization", b"x-api-key", b"x_api_key", b"x-goog-api-key", b"api_key"} <= CREDENTIALS


def test_an_upstream_does_not_speak_for_the_proxy() -> None:
    assert to_client([(b"x-plimsoll-steps", b"none"), *END_TO_END, (b"x-plimsoll-", b"x")]) == END_TO_END


def test_a_name_that_only_begins_like_ours_is_forwarded() -> None:
    headers = [(b"x-plimsollx", b"1"), (b"x-plimsol", b"2")]
    assert to_upstream(headers) == headers
    assert to_client(headers) == headers


def test_headers_that_connection_names_end_here() -> None:
    named = [(b"connection", b"close, X-Secret ,,"), (b"x-secret", b"1"), (b"connection", b"x-a"), *END_TO_END]
    kept = [h for h in END_TO_END if h[0] != b"x-a"]
    assert to_upstream(named) == kept
    assert to_client(named) == kept


def test_close_and_keep_alive_name_no_header() -> None:
    assert to_client([(b"connection", b"close"), (b"close", b"1"), (b"x", b"2")]) == [(b"close", b"1"), (b"x", b"2")]
    assert to_client([(b"connection", b"keep-alive"), (b"x", b"2")]) == [(b"x", b"2")]


def test_further_names_are_left_out_on_request() -> None:
    assert to_upstream(END_TO_END, frozenset((b"x-a",))) == [END_TO_END[0], END_TO_END[3]]
    assert to_client(END_TO_END, frozenset((b"x-a", b"accept"))) == [END_TO_END[0]]


def test_options_are_names_in_lower_case() -> None:
    assert connection_options([b"Close , TE", b"x"]) == {b"close", b"te", b"x"}


def test_the_first_value_of_a_name_is_found() -> None:
    assert value_of(END_TO_END, b"x-a") == b"1"
    assert value_of(END_TO_END, b"x-b") is None


def test_only_what_looks_like_an_id_is_one() -> None:
    for good in (b"req_011CSHoEeqs5C35K2UUqR7Fy", b"5f1c:0/a+b=", b"x" * 80):
        assert request_id(good) == good.decode()
    for bad in (b"", b"x" * 81, b"a b", b"a\x1b[31m", b"sk-proj-1", b'"', b"\xe4"):
        assert request_id(bad) == ""


def test_an_upstream_names_the_id_in_one_of_two_headers() -> None:
    assert answered_id([(b"request-id", b"req_2"), (b"x-request-id", b"req_1")]) == b"req_1"
    assert answered_id([(b"request-id", b"req_2")]) == b"req_2" and answered_id([(b"x-other", b"a")]) is None


def test_a_head_is_its_start_line_and_its_headers_in_order() -> None:
    headers = [(b"host", b"a"), (b"x", b""), (b"x", b"2: 3")]
    assert head_of(b"GET / HTTP/1.1", headers) == b"GET / HTTP/1.1\r\nhost: a\r\nx: \r\nx: 2: 3"
    assert head_of(b"HTTP/1.1 200 OK", ()) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("broken", [b"\r", b"\n", b"\r\n"])
def test_a_line_break_anywhere_in_a_head_makes_it_none(broken: bytes) -> None:
    for start, header in (
        (b"GET /" + broken, (b"a", b"b")),
        (b"GET /", (b"a" + broken, b"b")),
        (b"GET /", (b"a", broken + b"b")),
        (b"GET /", (b"a", b"b" + broken)),
    ):
        assert head_of(start, [(b"host", b"a"), header]) is None


def test_names_that_clients_invent_are_told_apart_without_being_remembered() -> None:
    asked: list[bytes] = []

    def starts_with_x(name: bytes) -> bool:
        asked.append(name)
        return name.startswith(b"x")

    test = NameTest(starts_with_x)
    assert [test[b"x"], test[b"y"], test[b"x"], test[b"y"]] == [True, False, True, False] and asked == [b"x", b"y"]
    for number in range(2 * MOST_NAMES):
        assert test[b"x%d" % number] and not test[b"y%d" % number]
    assert test[b"x" * 1_000] and len(test) == MOST_NAMES and b"x" * 1_000 not in test


@pytest.mark.parametrize(
    ("value", "cost"),
    [(b"0.25", 0.25), (b"1e-05", 1e-05), (b"0", None), (b"-1", None), (b"None", None), (b"nan", None), (b"1e9", None)],
)
def test_a_gateway_says_what_a_request_costs(value: bytes, cost: float | None) -> None:
    assert reported_cost([(b"server", b"x"), (b"x-litellm-response-cost", value)]) == cost
    assert reported_cost([(b"server", b"x")]) is None
