"""Whose memory a body takes: that of a key that was accepted, else of an address."""

from __future__ import annotations

from typing import Any

from proxy.request.body_callers import BodyCallers
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of
from proxy.upstreams.key_checks import KeyChecks
from proxy.wire.headers import QUERY


def scope(key: bytes = b"", client: tuple[str, int] | None = ("192.0.2.1", 5)) -> dict[str, Any]:
    return {"headers": [(b"authorization", key)] if key else [], "client": client}


def callers(checked: bool) -> BodyCallers:
    made = BodyCallers(KeyChecks(refused=checked), ExtraCalls(0))
    made.extra_calls.record_response(caller_of(scope(b"Bearer known")["headers"]), 200)
    return made


def test_an_accepted_key_is_a_caller_wherever_it_comes_from() -> None:
    found = callers(checked=True)
    known = found.caller(scope(b"Bearer known"))
    assert known == found.caller(scope(b"Bearer known", ("192.0.2.9", 7))) != b"192.0.2.1"


def test_invented_keys_and_none_are_their_address() -> None:
    found = callers(checked=True)
    assert {found.caller(scope(key)) for key in (b"Bearer a", b"Bearer b", b"")} == {b"192.0.2.1"}
    assert found.caller(scope(client=("2001:db8::5", 7))) == b"2001:db8::/64"


def test_who_sends_several_keys_may_have_invented_all_but_one() -> None:
    found, both = callers(checked=True), scope(b"Bearer known")
    both["headers"].append((b"x-goog-api-key", b"invented"))
    found.extra_calls.record_response(caller_of(both["headers"]), 200)
    assert found.caller(both) == b"192.0.2.1"


def test_a_key_is_one_caller_however_it_is_written_and_none_in_a_query() -> None:
    found, seen = callers(checked=True), set()
    for value in (b"Bearer known", b"bearer known", b"BEARER  known ", b"known"):
        found.extra_calls.record_response(caller_of(scope(value)["headers"]), 200)
        seen.add(found.caller(scope(value)))
    assert len(seen) == 1 and b"192.0.2.1" not in seen
    for query in (b"key=known", b"key=known&x=1", b"key=known&api-key=invented"):
        headers = [(QUERY, query)]
        found.extra_calls.record_response(caller_of(headers), 200)
        assert found.caller_at(headers, "192.0.2.1") == b"192.0.2.1"


def test_where_any_key_is_answered_none_is_a_caller() -> None:
    assert callers(checked=False).caller(scope(b"Bearer known")) == b"192.0.2.1"


def test_who_has_no_address_is_one_caller() -> None:
    found = callers(checked=True)
    assert found.caller(scope(client=None)) == found.caller(None) == b""
