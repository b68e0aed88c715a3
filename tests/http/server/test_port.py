"""How many connections an address may have at one port."""

from __future__ import annotations

from typing import Any

from proxy.errors import ClientError
from proxy.http.server.port import Port


async def app(*_: Any) -> None:
    """An application that does nothing."""


def error_body(path: str, error: ClientError) -> bytes:
    return b""


def test_an_address_has_its_number_of_connections_and_each_that_closes_makes_room_for_one() -> None:
    events: list[dict[str, Any]] = []
    port = Port(app, {}, error_body, lambda text, **figures: events.append(figures), per_address=2)
    assert [port.open_from("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert port.open_from("10.0.0.2") and events == [{"limit": 2}]
    port.closed_from("10.0.0.1")  # the one that was refused is closed, too
    port.closed_from("10.0.0.1")
    assert port.open_from("10.0.0.1") and not port.open_from("10.0.0.1")


def test_a_network_of_ipv6_is_one_address() -> None:
    port = Port(app, {}, error_body, per_address=1)
    assert port.open_from("2001:db8:0:1::1") and not port.open_from("2001:db8:0:1::2")
    assert port.open_from("2001:db8:0:2::1")
