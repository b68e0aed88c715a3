"""Puts stubs in place of result texts that stand in a later result again, and of older versions of what was read again.

The newest copy stays whole; a stub says which call has it. The step acts when the run first does not fit, and then each
time that new stubs are worth a change of old messages, together; in between it holds. A later step may shorten the
newest copy, so `plan` resolves the stubs at its end (`claims.repeat_stubs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from proxy.fit.blocks import have_results
from proxy.fit.claims.calls import Call, calls_of
from proxy.fit.claims.claims import room_for_claims
from proxy.fit.claims.repeat_stubs import WHOLE_TEXT, stub, what, where
from proxy.fit.claims.repeats import Stretch, Text, arrivals, repeats
from proxy.fit.less_reply import with_less_reply
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import low_of
from proxy.fit.relevance.results.shown_lines import ShownPart, shown_parts
from proxy.model.claims import Holder, Reason, Repeat
from proxy.model.conversation import Message, Part
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace as replaced

CHARACTERS = 2  # of a token, at least, in a text that is long enough
MOST_NAMED = 3  # messages that a reason names
SHORTENED = (1500, 150)  # tokens to which later steps shorten old results: first to their cap, then to their short form
WHOLE = 4  # blocks before the newest, whose results get no short form
ROOTS = ("/", "~", "\\")  # what an absolute path starts with


@dataclass(frozen=True, slots=True)
class Params:
    """`least`: the tokens of a result from which it is compared with others. `low`: the depth of a cut, as in
    `prune_history`. `batch`: after the first cut, the share of the room that new stubs must save together."""

    least: int = 500
    low: float = 0.65
    batch: float = 0.08

    def __post_init__(self) -> None:
        if self.least < 1:
            raise ValueError("least must be at least 1 token")
        if not 0 < self.low <= 1 or not 0 < self.batch <= 1:
            raise ValueError("low and batch must be shares over 0 and at most 1")


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A text of a result where it stands: the place of its block, of its message in that, and its part there. `rate`:
    tokens of a character."""

    block: int
    at: int
    index: int
    part: ShownPart
    text: Text
    tool: str
    rate: float


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with a stub for the lines of each result that a later one has, or has in a newer version."""
    draft = draft.made()
    if draft.excess <= 0 or not have_results(draft.blocks):
        return draft
    found = _texts(draft, facts, params)
    if len(found) < 2:
        return draft
    again: dict[int, list[tuple[int, int]]] = {}
    alike = set[int]()  # texts that repeat others, or are repeated
    for number, sizes in enumerate(arrivals([each.text for each in found])):
        block = found[number].block
        tokens = [(found[n].block, int(size * found[n].rate)) for n, size in sizes.items()]
        again.setdefault(block, []).extend([pair for pair in tokens if pair[0] != block and pair[1]])
        alike |= {number, *sizes} if sizes else set()
    last = _last_cut(draft, again, params) if any(again.values()) else -1
    upto = [found[number] for number in sorted(alike) if found[number].block <= last]
    if len(upto) < 2:
        return draft
    fixed = _fixed(draft, facts, last)
    texts = [replaced(e.text, fixed=e.block in fixed or e.part.call in fixed) for e in upto]
    return _stubbed(draft, upto, repeats(texts))


def _texts(draft: Draft, facts: Facts, params: Params) -> list[Shown]:
    """The texts of results that are long enough, in order."""
    found: list[Shown] = []
    for place, block in enumerate(draft.blocks):
        calls: dict[str, Call] = {}
        tools: dict[str, str] = {}
        for at, message in enumerate(block.messages):
            tools |= {call.id: call.name for call in message.calls}
            if not message.answers or message.tokens < params.least:
                continue
            parts = shown_parts(message, CHARACTERS * params.least)
            rate = message.tokens / max(1, sum([part.shown.size for part in parts]))
            for part in parts:
                if not calls:
                    calls = {c.id: c for m in block.messages[:at] for c in calls_of(m, facts.conventions)}
                text = _text(part, calls.get(part.call), facts)
                found.append(Shown(place, at, message.index, part, text, tools.get(part.call, ""), rate))
    return found


def _text(part: ShownPart, call: Call | None, facts: Facts) -> Text:
    failures = facts.conventions.failures
    if call is None or not call.reads or not part.alone or (failures and part.start.startswith(failures)):
        return Text(part.shown, one=part.json)
    is_command = call.same[len(call.tool) + 1 : len(call.tool) + 2] != "{"
    certain = not is_command or call.path.startswith(ROOTS) or call.path[1:2] == ":"
    return Text(part.shown, call.path, call.same, certain, one=part.json)


def _last_cut(draft: Draft, again: Mapping[int, Sequence[tuple[int, int]]], params: Params) -> int:
    """The place of the block at which stubs were made the last time; -1 if never. `again`: by the place of a block, the
    places of those before it whose texts it repeats, with their tokens.

    The run is replayed from its start, as for other cuts: what comes later changes no cut. What a cut has shortened
    since, the oldest first, is not worth a stub: each change of old messages costs a provider's cache once.
    """
    lowered, blocks = with_less_reply(draft), draft.blocks
    room, always = lowered.room, lasting(blocks)
    stays = draft.fixed + sum([blocks[place].tokens for place in always])
    mark = stays + int(low_of(draft, params.low) * max(0, room - stays))
    live: dict[int, int] = {}  # the tokens of results that may yet be shortened, by the places of their blocks
    waiting = dict[int, int]()  # those of them that were repeated since the last stubs
    used, last, is_cut = draft.fixed, -1, False
    for place, block in enumerate(blocks):
        used += block.tokens
        for older, tokens in again.get(place, ()):
            if older in live:
                waiting[older] = min(live[older], waiting.get(older, 0) + tokens)
        if block.has_results and place not in always and block.tokens > SHORTENED[-1]:
            live[place] = block.tokens
        if used <= room and not is_cut:
            continue
        saved = sum(waiting.values())
        if saved and (not is_cut or saved >= params.batch * room):
            live |= {older: live[older] - tokens for older, tokens in waiting.items()}
            last, used = place, used - saved
            waiting.clear()
        is_cut = True
        if used > room:
            _shorten(live, used - mark, place)
            waiting = {older: min(live[older], tokens) for older, tokens in waiting.items() if older in live}
            used = mark
    return last


def _shorten(live: dict[int, int], excess: int, newest: int) -> None:
    """Lowers results as later steps will, the oldest first; those that are at their least are left out of `live`."""
    for least in SHORTENED:
        for place in [place for place in live if place < newest - (0 if least != SHORTENED[-1] else WHOLE)]:
            if excess <= 0:
                return
            excess -= max(0, live[place] - least)
            live[place] = min(live[place], least)
            if least == SHORTENED[-1]:
                del live[place]


def _fixed(draft: Draft, facts: Facts, last: int) -> set[int | str]:
    """The places of the blocks, and the ids of the calls, whose results stay: those of the last cut, what was pinned
    then, and what is claimed for another reason than that it was read again."""
    blocks = draft.blocks
    users = [place for place in range(last + 1) if blocks[place].user is not None]
    pinned = [place for place, block in enumerate(blocks) if block.pinned]
    found: set[int | str] = {last, *users[-1:], *pinned, *lasting(blocks)}
    if facts.claims is not None:
        found.update([back.target for back in facts.claims.backs()])
        standing = facts.claims.standing(room_for_claims(draft, facts)).results.values()
        found.update([claim.call for claim in standing if claim.reason is not Reason.ASKED_AGAIN])
    return found


def _stubbed(draft: Draft, found: Sequence[Shown], stretches: Sequence[Sequence[Stretch]]) -> Draft:
    """The draft with a stub for each stretch; the same draft if that saves nothing."""
    ids = Counter([call for message in draft.messages for call in message.answers])
    names = [each.part.call if ids[each.part.call] == 1 else "" for each in found]
    by_block: dict[int, list[int]] = {}
    for number, each in enumerate(found):
        if stretches[number]:
            by_block.setdefault(each.block, []).append(number)
    blocks = list(draft.blocks)
    stubs: dict[int, list[tuple[int, Stretch, str, tuple[str, ...]]]] = {}
    for place, numbers in by_block.items():
        block = blocks[place]
        messages = list(block.messages)
        made: list[tuple[int, Stretch, str, tuple[str, ...]]] = []
        for at in dict.fromkeys([found[number].at for number in numbers]):
            messages[at] = _edited(
                messages[at], [n for n in numbers if found[n].at == at], found, stretches, names, made
            )
        short = replace(block, messages=draft.recount(messages))
        if short.tokens < block.tokens:
            blocks[place], stubs[place] = short, made
    if not stubs:
        return draft
    raws = [blocks[each.block].messages[each.at].raw for each in found]
    every = [each for made in stubs.values() for each in made]
    made_of = tuple([_repeat(*each, found, names, raws) for each in every])
    return replaced(draft.with_blocks(blocks), repeats=made_of)


def _edited(
    message: Message,
    numbers: Sequence[int],
    found: Sequence[Shown],
    stretches: Sequence[Sequence[Stretch]],
    names: Sequence[str],
    made: list[tuple[int, Stretch, str, tuple[str, ...]]],
) -> Message:
    """The message with stubs in its results `numbers`; each is added to what was `made`, with the lines that it stands
    for."""
    parts = message.parts()
    edits: list[tuple[Part, str]] = []
    for number in numbers:
        part, shown = parts[found[number].part.place], found[number].part.shown
        lines, kept, end = part.text.split("\n"), list[str](), 0
        for each in stretches[number]:
            said = what(lines, each.start, each.end, shown.numbers)
            of = where([names[n] for n in each.holders], [found[n].tool for n in each.holders])
            kept += [*lines[end : each.start], stub(said, of, older=each.older)]
            end = each.end
            gone = () if each.older else tuple([line for line in lines[each.start : end] if line.strip()])
            made.append((number, each, said, gone))
        edits.append((part, "\n".join([*kept, *lines[end:]])))
    return message.edit(edits, _why([(each, said) for number, each, said, _ in made if number in numbers], found))


def _why(stubs: Sequence[tuple[Stretch, str]], found: Sequence[Shown]) -> str:
    """The reason of a message with stubs: `an older copy of #31`."""
    indices = sorted({found[n].index for each, _ in stubs for n in each.holders})
    names = [f"#{index}" for index in indices[:MOST_NAMED]]
    names += [f"{len(indices) - MOST_NAMED} more"] if len(indices) > MOST_NAMED else []
    partly = "" if all(said == WHOLE_TEXT for _, said in stubs) else "partly "
    kind = "version" if all(each.older for each, _ in stubs) else "copy"
    return f"{partly}an older {kind} of {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}"


def _repeat(
    number: int,
    stretch: Stretch,
    said: str,
    lines: tuple[str, ...],
    found: Sequence[Shown],
    names: Sequence[str],
    raws: Sequence[bytes],
) -> Repeat:
    of = where([names[n] for n in stretch.holders], [found[n].tool for n in stretch.holders])
    return Repeat(
        index=found[number].index,
        call=found[number].part.call,
        raw=raws[number],
        stub=stub(said, of, older=stretch.older),
        what=said,
        where=of,
        lines=lines,
        holders=tuple([Holder(found[n].index, found[n].part.call, raws[n]) for n in stretch.holders]),
        older=stretch.older,
    )
