"""What clients count as by their addresses."""

from __future__ import annotations

import pytest

from proxy.http.addresses import network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_a_client_counts_as_its_address_or_its_network_of_64_bits(address: str, network: str) -> None:
    assert network_of(address) == network
