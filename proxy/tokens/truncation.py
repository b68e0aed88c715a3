"""Detects silent truncation: compares an upstream's count of a prompt with ours.

Some servers truncate a prompt that is too long without an error (Ollama to its `num_ctx`) and answer the rest. One such
prompt proves no limit: the server may have dropped whole messages, or may report only tokens that it had not cached.
The same count for several different prompts does.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.limits import CountUnit, Quality
from proxy.model.outcome import Usage

MIN_READ_SHARE = 0.6  # of our count. A smaller share is no counting error: the largest of a trusted count was 36 %
MIN_MISSING = 200  # tokens: counts of short prompts differ by a larger share
TOLERANCE = 0.02  # figures within this share of each other are equal
MIN_PROMPTS = 3  # consecutive prompts with the same figure prove a limit
MIN_LIMIT = 1_000  # tokens; no server reads fewer
MIN_USAGE = 64  # tokens; a smaller usage does not count the prompt


def truncated(counted: int, quality: Quality | str, unit: CountUnit | None, usage: Usage) -> bool:
    """Whether usage reports far fewer tokens than were sent. `counted` is our count, of the given quality.

    Always False if the count is an estimate or has parts with assumed costs (`unit` is None), or if cached tokens
    explain the difference.
    """
    if unit is None or quality == Quality.ESTIMATED or usage.prompt < MIN_USAGE:
        return False
    read = usage.prompt + usage.cached
    return read < MIN_READ_SHARE * counted and counted - read > MIN_MISSING


@dataclass(frozen=True, slots=True)
class SilentTruncation:
    """`count` consecutive prompts of which the upstream read at most `read` tokens; the last one had `sent` tokens."""

    read: int
    sent: int
    count: int = 1

    @property
    def proves(self) -> bool:
        """Whether the figures prove that the upstream reads no longer prompt."""
        return self.count >= MIN_PROMPTS and self.read >= MIN_LIMIT

    def again(self, read: int, sent: int) -> SilentTruncation:
        """The figures after another truncated prompt. The same prompt adds nothing. A prompt longer by just the tokens
        that were read restarts the count: the upstream then reported only what it had not cached."""
        if abs(read - self.read) > TOLERANCE * self.read:
            return SilentTruncation(read, sent)
        more = abs(sent - self.sent)
        if more <= TOLERANCE * self.sent:
            return self
        return SilentTruncation(max(read, self.read), sent, 1 if abs(more - read) < 0.25 * read else self.count + 1)

    def holds(self, read: int) -> bool:
        """Whether a limit is still possible after a prompt of `read` tokens that was read completely."""
        return read <= self.read * (1 + TOLERANCE)
