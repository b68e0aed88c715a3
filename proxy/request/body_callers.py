"""Who a request counts as in the budget of memory for bodies, before its body is read."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.http.addresses import network_of
from proxy.http.receiving import Scope
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of, key_digest
from proxy.upstreams.key_checks import KeyChecks, brings_credential
from proxy.upstreams.models_listing import Headers


@dataclass(frozen=True, slots=True)
class BodyCallers:
    """Callers by the key that they send, once an upstream that checks keys has accepted it: others may be invented.
    All others are callers by their address, also who sends several keys: an upstream may read one of them alone."""

    keys: KeyChecks
    extra_calls: ExtraCalls

    def caller(self, scope: Scope | None) -> bytes:
        """Returns the caller of a request: a digest, or an address. Empty where neither is known."""
        if scope is None:
            return b""
        client = scope.get("client")
        return self.caller_at(scope["headers"], client[0] if client else "")

    def caller_at(self, headers: Headers, address: str) -> bytes:
        """The same of a request with these headers, from this address."""
        if self.keys.checked and brings_credential(headers) and self.extra_calls.has_accepted(caller_of(headers)):
            key = key_digest(headers)
            if key is not None:
                return key
        return network_of(address).encode() if address else b""
