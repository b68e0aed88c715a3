"""Cuts the middle out of texts that are out of all proportion, before any step reads them; it weighs no text's worth.

A step reads every line and word of a text. Of 64 MB that took minutes and gigabytes; the room is never more than a few.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy import outsize
from proxy.fit.steps.truncate_longest import waterline
from proxy.types import Draft, Facts, Ladder, Message, Prompt, replace

TRUNCATE, TRIM = "truncate_longest", "trim_tool_results"  # the steps that may cut a text, and a result
TOGETHER = 16 << 20  # bytes of a request's messages that steps read
LEAST = 1 << 17  # bytes that a message may always keep
FOR_A_TOKEN = 4  # bytes that a text may keep for each token of the largest window that the request may go to


def abridged(draft: Draft, prompt: Prompt, ladder: Ladder, facts: Facts) -> Draft:
    """The draft with every long message in a few megabytes, where the ladder may cut it and the client did not pin it.
    The same draft where none is so long, as nearly always."""
    sizes = [len(message.raw) for message in draft.messages]
    widest = max(window.tokens for window in (facts.window, *(rival.window for rival in facts.rivals)))
    most = max(outsize.OUTSIZE, FOR_A_TOKEN * widest)
    if sum(sizes) > TOGETHER:
        height = waterline(sorted(sizes, reverse=True), sum(sizes) - TOGETHER)
        most = max(LEAST, min(most, height))
    if max(sizes, default=0) <= most:
        return draft
    steps = {rung.step for rung in ladder.rungs}

    def short(message: Message) -> Message:
        allowed = TRUNCATE in steps or (TRIM in steps and message.answers is not None)
        if len(message.raw) <= most or not allowed or message.index in prompt.pins:
            return message
        gone = outsize.cuts(message.raw, most)
        return replace(message, raw=outsize.without(message.raw, gone), why="longest text") if gone else message

    def changed(messages: Sequence[Message]) -> Sequence[Message]:
        made = [short(message) for message in messages]
        same = all(a is b for a, b in zip(made, messages, strict=True))
        return messages if same else draft.recount(made)

    made = [changed(block.messages) for block in draft.blocks]
    if all(messages is block.messages for messages, block in zip(made, draft.blocks, strict=True)):
        return draft
    return draft.with_blocks([replace(b, messages=tuple(m)) for b, m in zip(draft.blocks, made, strict=True)])
