"""What became of each message of a request, as rows: for /inspect, the page, the terminal and reports alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proxy.model.conversation import TEXTS, Block, Message
from proxy.model.plan import Draft, Plan
from proxy.wire.omissions import Range, omitted
from proxy.wire.touches import NEVER, History, Touch, Touched, as_list, touched

# How the reasons of messages begin that are no longer sent: a summary covers them, they were joined with a neighbour,
# or an excerpt quotes them. EXCERPTED: the passages of a message that bear on the question stay.
SUMMARISED, JOINED, RECALLED, EXCERPTED = "summarised", "joined", "recalled", "excerpt"
KEPT, SHORTENED, DROPPED, ADDED = "kept", "shortened", "dropped", "added"
STATES = (KEPT, SHORTENED, "excerpted", JOINED, RECALLED, SUMMARISED, DROPPED, ADDED)
LAST = -1  # instead of an index: behind the client's last message


class Row(msgspec.Struct, frozen=True, gc=False):
    """One message. `index`: its place in what the client sent; None for a message of the proxy's own. `state`: one of
    `STATES`; `step`: the step that did it, empty for a message that is kept; `why`: the reason in words. `tokens`: as
    received and as sent. `lines`: of a text of which an excerpt is sent, and `left_out` its ranges that the excerpt
    does not have whole. `steps`: each step that touched it, in order: with `tokens` their sum is `tokens_sent`.
    """

    index: int | None
    role: str
    state: str
    step: str
    why: str
    tokens: int
    tokens_sent: int
    lines: int = 0
    left_out: tuple[Range, ...] = ()
    steps: tuple[Touch, ...] = ()


def as_json(row: Row) -> dict[str, Any]:
    """A row as JSON; `lines` and `left_out` only where an excerpt leaves lines out."""
    found = msgspec.structs.asdict(row)
    found["steps"] = as_list(row.steps)
    if not row.left_out:
        del found["lines"], found["left_out"]
    return found


def rows(plan: Plan, lines: bool = True) -> list[Row]:
    """A row for each message, in order. With the overhead their tokens add up to those of the prompt, and what is sent
    of them to those of the prompt that is sent.

    The client's messages are kept, shortened, excerpted, joined, recalled, summarised or dropped. A message of the
    proxy's own is added: it stands before the client's message that follows it. `lines`: compare excerpts with their
    texts, which takes time.
    """
    dropped = {drop.index: drop.why for drop in plan.draft.drops}
    sent = {m.index: m for m in plan.draft.messages}
    added, steps = _added(plan.draft), touched(plan)
    newest = len(plan.before.blocks) - 1
    found: list[Row] = []
    for place, block in enumerate(plan.before.blocks):
        for m in block.messages:
            found += [_own(ours, steps) for ours in added.get(m.index, ())]
            now, history = sent.get(m.index), steps.of.get(m.index, NEVER)
            if now is None:
                found.append(_gone(m, history, dropped.get(m.index, "")))
            else:
                found.append(_sent(m, now, history, _kept(block, place == newest), lines))
    return [*found, *[_own(ours, steps) for ours in added.get(LAST, ())]]


def _own(m: Message, steps: Touched) -> Row:
    """The row of a message of the proxy's own."""
    history = steps.own.get(m.raw, NEVER)
    step = history.step or steps.last
    return Row(None, m.role, ADDED, step, m.why, 0, m.tokens, steps=history.touches)


def _added(draft: Draft) -> Mapping[int, Iterable[Message]]:
    """The messages of the proxy's own, by the index of the client's message that follows them; else by `LAST`."""
    found: dict[int, list[Message]] = {}
    waiting: list[Message] = []
    for message in draft.messages:
        if message.index < 0:
            waiting.append(message)
        elif waiting:
            found[message.index], waiting = waiting, []
    return {**found, LAST: waiting}


def _gone(m: Message, history: History, why: str) -> Row:
    state = next((state for state in (SUMMARISED, RECALLED, JOINED) if why.startswith(state)), DROPPED)
    reason = why.removeprefix(f"{RECALLED}: ")
    return Row(m.index, m.role, state, history.step, reason, m.tokens, 0, steps=history.touches)


def _sent(then: Message, now: Message, history: History, kept: str, lines: bool) -> Row:
    if now.raw == then.raw:
        steps, why = history.touches, now.why or kept
        return Row(then.index, then.role, KEPT, "", why, then.tokens, now.tokens, steps=steps)
    state = JOINED if now.why.startswith(JOINED) else "excerpted" if now.why.startswith(EXCERPTED) else SHORTENED
    count, left_out = omitted(_read(then), _read(now)) if lines and state != JOINED else (0, [])
    why, ranges = now.why or kept, tuple(left_out)
    return Row(
        then.index,
        then.role,
        state=state,
        step=history.step,
        why=why,
        tokens=then.tokens,
        tokens_sent=now.tokens,
        lines=count if ranges else 0,
        left_out=ranges,
        steps=history.touches,
    )


def _read(message: Message) -> str:
    """Its texts, each from a line of its own. Arguments of calls are JSON and have no lines."""
    return "\n".join(part.text for part in message.parts() if part.kind in TEXTS)


def _kept(block: Block, newest: bool) -> str:
    return "newest" if newest else "pinned" if block.pinned else "fits"
