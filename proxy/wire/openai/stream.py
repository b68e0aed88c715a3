"""How streams of Chat Completions and Completions end, and those of compatible servers."""

from __future__ import annotations

END = b"[DONE]"  # the data of the last event
ENDS = (b"data: " + END, b"data:" + END)


def is_end_of_stream(tail: bytes) -> bool:
    """Whether the last bytes of a stream are its last event."""
    return tail.rstrip().endswith(ENDS)
