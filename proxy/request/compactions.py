"""Which requests ask for a summary of the conversation: they are fitted as little as possible, for they must go out."""

from __future__ import annotations

from proxy.model.conversation import Prompt
from proxy.request.stages import Received, Scanned


def is_compaction(received: Received, scanned: Scanned, prompt: Prompt | None = None) -> bool:
    """Whether a request has its conversation compacted: by the provider, or by an agent that asks for a summary."""
    return scanned.scan.compacts or received.path in received.api.compact_paths
