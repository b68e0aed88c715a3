"""What an upstream's count of a prompt says beside ours: whether it has read all of the prompt.

Some servers cut a prompt that is too long for them without a word (Ollama to its `num_ctx`), and answer what is left.
"""

from __future__ import annotations

from proxy.types import Quality, Usage

READ = 0.6  # of our count: fewer is no error of counting; of what may be trusted the worst was 36 % off, and over
FEWER = 200  # tokens at least: short prompts are off by more than shares say
LEAST = 64  # tokens: a usage of fewer counts something else than the prompt


def truncated(counted: int, quality: Quality | str, unit: float | None, usage: Usage) -> bool:
    """Whether usage speaks of far fewer tokens than were sent. Never where the count is an estimate or holds parts
    whose cost is assumed (no `unit`), nor where tokens from a cache may be what is missing."""
    if unit is None or quality == Quality.ESTIMATED or usage.prompt < LEAST:
        return False
    read = usage.prompt + usage.cached
    return read < READ * counted and counted - read > FEWER
