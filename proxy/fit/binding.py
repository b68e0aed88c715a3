"""Removes reasoning that is bound to messages which a cut has changed: its model would refuse it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft, Drop

NAME = (
    "drop_reasoning"  # its name in notes, that of the step, too: what a later step unbinds, no step of a ladder can see
)
WHY = "its reasoning is bound to what was cut"


def unbound(before: Draft, after: Draft) -> Draft:
    """The draft `after` without the reasoning behind the first message that is not as the client sent it; without any
    where a tool is not.

    "One mismatch invalidates that block and every later one" (Anthropic, preserved thinking). Returns `after` itself if
    its model does not bind reasoning, or if nothing changed.
    """
    tools = after.definitions.changed
    if not after.window.binds or (after.blocks is before.blocks and not tools):
        return after
    kept = 0 if tools else _unchanged(before, after)
    blocks, drops = [], []
    for block in after.blocks:
        place, kept = kept, kept - len(block.messages)
        found = block if place >= len(block.messages) else _without(after, block, max(0, place))
        drops += [Drop(m.index, WHY) for m in block.messages if m.index not in {n.index for n in found.messages}]
        blocks += [found] if found.messages else []
    same = len(blocks) == len(after.blocks) and all(a is b for a, b in zip(blocks, after.blocks, strict=True))
    return after if same else after.with_blocks(blocks, drops)


def _unchanged(before: Draft, after: Draft) -> int:
    """How many messages at the beginning are those that the client sent."""
    pairs = zip(before.messages, after.messages, strict=False)
    return next((place for place, (old, new) in enumerate(pairs) if old.raw != new.raw), len(list(before.messages)))


def _without(draft: Draft, block: Block, start: int) -> Block:
    """The block without the reasoning of its messages from `start` on."""
    messages = (*block.messages[:start], *_stripped(block.messages[start:]))
    if all(a is b for a, b in zip(messages, block.messages, strict=False)) and len(messages) == len(block.messages):
        return block
    return replace(block, messages=draft.recount(messages) if messages else ())


def _stripped(messages: tuple[Message, ...]) -> Iterator[Message]:
    for message in messages:
        raw = message.format.without_reasoning(message)
        if raw is None:
            yield message
        elif raw:
            yield replace(message, raw=raw, why=message.why or WHY)
