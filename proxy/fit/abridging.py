"""Cuts the middle out of oversized texts before any step reads them. It does not rank texts.

A step reads every line and word of a text. For 64 MB that took minutes and gigabytes, while the room is at most a few
megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.fit.shorten import waterline
from proxy.model import oversized_json
from proxy.model.conversation import Block, Message, Prompt
from proxy.model.plan import Draft, Facts, Ladder

TRUNCATE, TRIM = "truncate_longest", "trim_tool_results"  # the step that notes a cut, and the one for results alone
ANY_TEXT = {TRUNCATE, "excerpt_texts"}  # the steps that allow a cut of any text
# The most bytes of a request's messages that steps read, besides what fits into the largest window. Ranking a megabyte
# of words that are not cached takes more than a second, and sixty megabytes would delay the other requests.
TOGETHER = 4 << 20
LEAST, LEAST_PINNED = 256, 1 << 17  # bytes that a message keeps at least
FOR_A_TOKEN = 4  # bytes that a text may keep per token of the largest window among the candidates


def abridged(draft: Draft, prompt: Prompt, ladder: Ladder, facts: Facts) -> Draft:
    """The draft with its oversized messages cut, so that steps read a few megabytes at most.

    A message is cut only if a step of the ladder may cut it and the client did not pin it. Returns the same draft if no
    message is oversized, which is nearly always.
    """
    sizes = [len(message.raw) for message in draft.messages]
    widest = max(window.tokens for window in (facts.window, *(candidate.window for candidate in facts.candidates)))
    most, over = max(oversized_json.OUTSIZE, FOR_A_TOKEN * widest), sum(sizes) - TOGETHER - FOR_A_TOKEN * widest
    if over > 0:
        most = max(LEAST, min(most, waterline(sorted(sizes, reverse=True), over)))
    if max(sizes, default=0) <= most:
        return draft
    steps = {ladder_step.step for ladder_step in ladder.steps}

    def short(message: Message, most: int) -> Message:
        allowed = bool(ANY_TEXT & steps) or (TRIM in steps and message.answers is not None)
        if len(message.raw) <= most or not allowed or message.index in prompt.pins or message.keep:
            return message
        gone = oversized_json.cuts(message.raw, most, shortest=min(oversized_json.SHORTEST, most // 2))
        return replace(message, raw=oversized_json.without(message.raw, gone), why="longest text") if gone else message

    def changed(block: Block) -> Sequence[Message]:
        made = [short(message, max(LEAST_PINNED, most) if block.pinned else most) for message in block.messages]
        same = all(a is b for a, b in zip(made, block.messages, strict=True))
        return block.messages if same else draft.recount(made)

    made = [changed(block) for block in draft.blocks]
    if all(messages is block.messages for messages, block in zip(made, draft.blocks, strict=True)):
        return draft
    return draft.with_blocks([replace(b, messages=tuple(m)) for b, m in zip(draft.blocks, made, strict=True)])
