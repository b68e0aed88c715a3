"""Says of each message that a claim keeps why it stays, for reports. It changes no message's JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from proxy.model.claims import Reason, Standing
from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft, Drop
from proxy.model.structs import replace

KEPT = "kept: "
QUOTED = "recalled: "  # of a message that is gone from its place


def reasoned(draft: Draft, standing: Standing) -> Draft:
    """The draft with the reason of its claim in each claimed message that would not stay by itself."""
    reasons: dict[int, set[str]] = {}
    for claim in standing.results.values():
        reasons.setdefault(claim.index, set()).add(claim.reason)
    for typed in standing.messages.values():
        reasons.setdefault(typed.index, set()).add(typed.reason)
    if not reasons:
        return draft
    return replace(draft, blocks=tuple(_reasoned(block, reasons) for block in draft.blocks))


def _reasoned(block: Block, reasons: Mapping[int, set[str]]) -> Block:
    if block.pinned or not any(m.index in reasons and KEPT not in m.why for m in block.messages):
        return block
    return replace(block, messages=tuple(_said(m, reasons) for m in block.messages))


def _said(message: Message, reasons: Mapping[int, set[str]]) -> Message:
    if message.index not in reasons or KEPT in message.why:
        return message
    why = KEPT + ", ".join(sorted(reasons[message.index]))
    return replace(message, why=f"{message.why}; {why}" if message.why else why)


def counted(messages: Iterable[Message], drops: Iterable[Drop] = ()) -> tuple[tuple[str, int], ...]:
    """How many of these messages each reason keeps, the strongest reason first; reasons that keep none are left out.

    A message that two reasons keep counts for both. `drops`: those that are quoted for a reason count, too.
    """
    said = [message.why.rpartition(KEPT)[2].split(", ") for message in messages if KEPT in message.why]
    said += [[drop.why.removeprefix(QUOTED)] for drop in drops if drop.why.startswith(QUOTED)]
    found = Counter(reason for reasons in said for reason in reasons)
    return tuple((reason.value, found[reason.value]) for reason in Reason if found[reason.value])
