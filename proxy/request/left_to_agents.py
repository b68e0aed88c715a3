"""Which requests ask for a summary of the conversation, and what is left to agents that compact by themselves.

An agent that compacts its conversation when its provider refuses it keeps more of it than any cut: with
`OnFull.AGENT` it gets that refusal. Its request for the summary is fitted, for without it the conversation ends; and if
that is refused all the same, the conversation is fitted from there on.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from proxy.model.bounded import Bounded
from proxy.model.conversation import Kind, Prompt
from proxy.model.terms import OnFull
from proxy.request.stages import Planned, Received, Scanned
from proxy.upstreams.internal_client import tenant_of

MAX_CONVERSATIONS = 4_096  # that are remembered
DIGEST_BYTES = 16


def is_compaction(received: Received, scanned: Scanned, prompt: Prompt | None = None) -> bool:
    """Whether a request has its conversation compacted: by the provider, or by an agent that asks for a summary."""
    return bool(scanned.compaction) or scanned.scan.compacts or received.path in received.api.compact_paths


@dataclass(frozen=True, slots=True)
class Agents:
    """What is left to agents; it remembers, in this process alone, the conversations whose compaction was refused: a
    keyed digest of their sender and their first user message, which stays when an agent drops what follows."""

    _key: bytes = field(default_factory=lambda: os.urandom(DIGEST_BYTES))
    _refused: Bounded[bytes, bool] = field(default_factory=lambda: Bounded(MAX_CONVERSATIONS))

    def leaves(self, received: Received, scanned: Scanned, prompt: Prompt) -> bool:
        """Whether it is left to the agent to make a request fit."""
        if received.terms.on_full is not OnFull.AGENT or prompt.form.embeds:
            return False
        if is_compaction(received, scanned, prompt):
            return False
        return not self._refused.filled or self._refused.get(self._digest(received, prompt)) is None

    def note_refused(self, planned: Planned) -> None:
        """The client gets a refusal. If that is of a compaction, its conversation is fitted from here on."""
        received, scanned, descent = planned.received, planned.scanned, planned.descent
        if received.terms.on_full is not OnFull.AGENT or scanned is None or descent is None:
            return
        if is_compaction(received, scanned, descent.prompt):
            self._refused.put(self._digest(received, descent.prompt), True)

    def _digest(self, received: Received, prompt: Prompt) -> bytes:
        first = next((message.text() for message in prompt.messages if message.kind is Kind.USER), "")
        said = tenant_of(received.headers) + first.encode(errors="replace")
        return hashlib.blake2b(said, digest_size=DIGEST_BYTES, key=self._key).digest()
