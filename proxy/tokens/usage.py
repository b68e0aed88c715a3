"""What an upstream's count of a prompt says beside ours: whether it has read all of the prompt.

Some servers cut a prompt that is too long for them without a word (Ollama to its `num_ctx`), and answer what is left.
That they read so much of one prompt proves no bound: they may have dropped whole messages, or report only what they did
not have in a cache. That they read the same of several that differ does.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.limits import Quality
from proxy.model.outcome import Usage

READ = 0.6  # of our count: fewer is no error of counting; of what may be trusted the worst was 36 % off, and over
FEWER = 200  # tokens at least: short prompts are off by more than shares say
SAME = 0.02  # by so much figures may differ and count as the same
PROVES = 3  # prompts, one after another, of which the same was read
LEAST_BOUND = 1_000  # tokens; nobody serves a model that reads less
LEAST = 64  # tokens: a usage of fewer counts something else than the prompt


def truncated(counted: int, quality: Quality | str, unit: float | None, usage: Usage) -> bool:
    """Whether usage speaks of far fewer tokens than were sent. Never where the count is an estimate or holds parts
    whose cost is assumed (no `unit`), nor where tokens from a cache may be what is missing."""
    if unit is None or quality == Quality.ESTIMATED or usage.prompt < LEAST:
        return False
    read = usage.prompt + usage.cached
    return read < READ * counted and counted - read > FEWER


@dataclass(frozen=True, slots=True)
class Cut:
    """What was read of prompts that were cut without a word: `read` tokens (the most), the last time of `sent` ones;
    `count` prompts in a row."""

    read: int
    sent: int
    count: int = 1

    @property
    def proves(self) -> bool:
        """Whether no longer prompt is read."""
        return self.count >= PROVES and self.read >= LEAST_BOUND

    def again(self, read: int, sent: int) -> Cut:
        """After another prompt that was cut. The same prompt says nothing new; where as much was read as a prompt is
        longer than the one before, what was read is what was new."""
        if abs(read - self.read) > SAME * self.read:
            return Cut(read, sent)
        more = abs(sent - self.sent)
        if more <= SAME * self.sent:
            return self
        return Cut(max(read, self.read), sent, 1 if abs(more - read) < 0.25 * read else self.count + 1)

    def holds(self, read: int) -> bool:
        """Whether it may still be so after a prompt that was read as a whole."""
        return read <= self.read * (1 + SAME)
