"""Which steps touched each message of a plan, and by how many tokens: they add up to what the steps' notes say.

A step may only mark a block: it counts as an estimate until a later step, or the end of the plan, makes it. So the step
that marked it has the estimate, and what the made block has more or less than that belongs to the step that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxy.model.conversation import Block, Message
from proxy.model.plan import Plan

AGAIN = ""  # instead of a step: the request was counted otherwise after the last one


class Touch(msgspec.Struct, frozen=True, gc=False):
    """What a step changed of a message, in tokens. A step that only counts it otherwise, such as for another model, has
    one, too. `step` may be `AGAIN`."""

    step: str
    tokens: int


class History(msgspec.Struct, frozen=True, gc=False):
    """What became of a message: `touches` in order, and the `step` that did it; empty if none changed its content."""

    touches: tuple[Touch, ...] = ()
    step: str = ""

    def then(self, step: str, tokens: int, did: bool) -> History:
        """The history with another touch."""
        return History((*self.touches, Touch(step, tokens)), step if did else self.step)


NEVER = History()


@dataclass(slots=True)
class Touched:
    """What became of the client's messages (`of`: by index; without those that nothing touched), and of those of the
    proxy's own (`own`: by their JSON). `last`: the last step."""

    of: dict[int, History] = field(default_factory=dict)
    own: dict[bytes, History] = field(default_factory=dict)
    last: str = ""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """A message in a draft: its JSON and its tokens. `later`: its block is only marked."""

    raw: bytes
    tokens: int
    later: bool = False


def touched(plan: Plan) -> Touched:
    """What became of each message of a plan."""
    found = Touched(last=plan.notes[-1].step if plan.notes else "")
    before = plan.before
    ends = [*zip([note.step for note in plan.notes], plan.drafts, strict=False), (AGAIN, plan.draft)]
    for step, draft in ends:
        if draft is not before:
            stay = {id(block) for block in before.blocks} & {id(block) for block in draft.blocks}
            _add(found, step, *([b for b in each.blocks if id(b) not in stay] for each in (before, draft)))
        before = draft
    return found


def _add(found: Touched, step: str, before: Sequence[Block], after: Sequence[Block]) -> None:
    """Adds what a step did to these blocks."""
    was, now = _client(before), _client(after)
    for index, seen in was.items():
        _compare(found.of, step, index, seen, now.get(index))
    for index in now.keys() - was.keys():
        found.of[index] = found.of.get(index, NEVER).then(step, now[index].tokens, did=True)
    _follow(step, found.own, _ours(before), _ours(after))


def as_list(touches: Iterable[Touch]) -> list[dict[str, Any]]:
    """Touches as JSON."""
    return [{"step": touch.step, "tokens": touch.tokens} for touch in touches]


def overhead(plan: Plan, touches: Iterable[Touch]) -> tuple[Touch, ...]:
    """What each step changed besides the messages, whose `touches` are given: tools, schemas, the request itself."""
    left: Counter[str] = Counter()
    for note in plan.notes:
        left[note.step] += note.tokens_after - note.tokens_before
    left[AGAIN] += plan.draft.billed - plan.before.billed - sum(left.values())
    for touch in touches:
        left[touch.step] -= touch.tokens
    return tuple(Touch(step, tokens) for step, tokens in left.items() if tokens)


def _compare(histories: dict[int, History], step: str, index: int, then: _Seen, now: _Seen | None) -> None:
    """Adds what a step did to a message."""
    if now is None:
        histories[index] = histories.get(index, NEVER).then(step, -then.tokens, did=True)
        return
    marked, made = now.later and not then.later, then.later and not now.later
    did = marked or (now.raw != then.raw and not made)  # what was marked before and is made now tells nothing new
    if did or now.tokens != then.tokens:
        histories[index] = histories.get(index, NEVER).then(step, now.tokens - then.tokens, did)


def _client(blocks: Iterable[Block]) -> dict[int, _Seen]:
    """The client's messages in blocks, by index."""
    return {m.index: seen for block in blocks for m, seen in _messages(block) if m.index >= 0}


def _ours(blocks: Iterable[Block]) -> list[_Seen]:
    """The messages of the proxy's own in blocks, in order."""
    return [seen for block in blocks for m, seen in _messages(block) if m.index < 0]


def _messages(block: Block) -> Iterator[tuple[Message, _Seen]]:
    """The messages of a block with what they count as: of one that is only marked, shares of its estimate."""
    if block.later is None:
        for m in block.messages:
            yield m, _Seen(m.raw, m.tokens)
        return
    shares = _shares([m.tokens if m.answers else 0 for m in block.messages], block.whole - block.tokens)
    for m, less in zip(block.messages, shares, strict=True):
        yield m, _Seen(m.raw, m.tokens - less, later=True)


def _shares(weights: Sequence[int], amount: int) -> list[int]:
    """An amount in parts as large as the weights are, which add up to it."""
    whole = sum(weights)
    if not whole:
        return [amount, *[0] * (len(weights) - 1)]
    ends = [round(amount * part / whole) for part in _sums(weights)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _sums(weights: Iterable[int]) -> Iterator[int]:
    total = 0
    for weight in weights:
        total += weight
        yield total


def _follow(step: str, histories: dict[bytes, History], then: Sequence[_Seen], now: Sequence[_Seen]) -> None:
    """Adds what a step did to our own messages. One that it wrote anew goes on from the one that it was before."""
    known, stay = {seen.raw: seen for seen in then}, {seen.raw for seen in now}
    gone = [seen for seen in then if seen.raw not in stay]
    for seen in now:
        old = known.get(seen.raw) or (gone.pop(0) if gone else None)
        before = NEVER if old is None else histories.get(old.raw, NEVER)
        tokens = seen.tokens - (0 if old is None else old.tokens)
        if old is None or old.raw != seen.raw or tokens:
            histories[seen.raw] = before.then(step, tokens, did=old is None)
