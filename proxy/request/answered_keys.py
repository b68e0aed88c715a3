"""What the default upstream's answers say of a client's own key, or of its absence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.http.memory_budget import SMALL
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of
from proxy.upstreams.key_checks import REFUSING, KeyChecks, brings_credential
from proxy.wire.headers import Header


@dataclass(frozen=True, slots=True)
class AnsweredKeys:
    """Records whom the upstream accepted. `extra_calls`: set if extra calls, or budgets, depend on that. `accepted`:
    whose large bodies it accepted, for the budget of memory."""

    keys: KeyChecks
    extra_calls: ExtraCalls | None = None
    accepted: ExtraCalls | None = None

    def record(self, headers: Sequence[Header], status: int, size: int) -> None:
        """Records an answer to a request with a body of `size` bytes. Most say nothing of keys: they are no refusal,
        and their bodies take little memory."""
        if status not in REFUSING and self.extra_calls is None and size <= SMALL:
            return
        self.keys.record_response(headers, status)
        accepted = self.accepted if self.extra_calls is None and size > SMALL else self.extra_calls
        if accepted is not None and (self.keys.checked or not brings_credential(headers)):
            accepted.record_response(caller_of(headers), status)
