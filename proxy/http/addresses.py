"""Clients by their addresses, as far as one of them can choose: an IPv6 client has a whole /64."""

from __future__ import annotations

import ipaddress


def network_of(address: str) -> str:
    """Returns what the clients at an address count as: itself, of IPv6 its network of 64 bits. Never raises."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
