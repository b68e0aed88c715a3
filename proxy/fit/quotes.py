"""Quotes what was left out in one message before the question: dropped turns, passages of shortened texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from proxy.fit.claims.orders import lines_of_message
from proxy.fit.claims.reasons import QUOTED
from proxy.fit.dropping import unquoted
from proxy.fit.excerpts import Excerpt, excerpts, fitting, said
from proxy.fit.held_quotes import NOTHING, Held
from proxy.fit.long_texts import EXCERPTED, rate_of
from proxy.fit.relevance.history.changes import changing
from proxy.fit.relevance.history.turns import choose_turns
from proxy.fit.relevance.passages.data import left_out
from proxy.fit.relevance.passages.excerpt import shortened_for
from proxy.fit.relevance.passages.file_names import file_names
from proxy.fit.relevance.passages.ranking import rank_passages
from proxy.fit.relevance.passages.texts import Shortened, Text, read
from proxy.fit.relevance.text.question import Question
from proxy.fit.relevance.text.reading import read_message, speakers_of
from proxy.model.claims import Reason
from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft
from proxy.model.structs import replace

GAP = 3  # tokens of the mark between two quotes
FULL, TRIES = 0.97, 3  # costs are estimates: quotes are chosen again for the room that is left, up to this share of it
HELD = f"{QUOTED}relevance at the last cut"
NEWS = 2.0  # the score of what may change the best quotes, ...
CHANGES = 0.02  # ... and its share of the room (measured)
FIRST = 3.0  # the score of what comes before all others: the best of these has 1, and costs weigh little
NONE_FIRST: Mapping[int, Sequence[tuple[int, int]]] = {}
LONG = 0.25  # share of the room from which a dropped message is quoted by its passages, not whole; less if less is left


class _Quote(msgspec.Struct, frozen=True, gc=False):
    """A text that may be quoted. `place`: its position among all; `block`: the index of the block that it is from.

    `text` is empty for a whole block: its texts are read only if it is chosen. `source`: the file that it is from. The
    text has its line breaks: of a long text a copy without them for each passage takes too much memory. `data`: of a
    passage of a JSON value the place of its first one, else -1.
    """

    place: int
    block: int
    text: str
    score: float
    cost: int
    source: str = ""
    data: int = -1


def with_quotes(
    draft: Draft,
    blocks: Sequence[Block],
    kept: Mapping[int, int],
    original: Draft | None,
    question: Question,
    alike: Sequence[float] | None = None,
    first: Mapping[int, Sequence[tuple[int, int]]] = NONE_FIRST,
    changes: Collection[int] = (),
    held: Held = NOTHING,
) -> Draft:
    """The draft with a message before the question that quotes what it lacks, in the room that is left.

    `blocks`: those that the draft was cut from; `kept`: the index of each that is still there, to its index in the
    draft. `original`: what the client sent, with the whole texts. `alike`: the similarity of each block but that of the
    question, by embeddings. `first`: blocks that come before all others, with the lines of their text that are enough,
    as (start, end) in characters; without any, all of them. `changes`: blocks with signs of a change; those come next
    that may change what the best quotes say. `held`: what is quoted since the last cut, in a message of its own.
    """
    room = draft.room - draft.prompt
    quotes, needs, speakers, values = _quotes(draft, blocks, kept, original, question, alike)
    scores = _scores(quotes)
    shortened = shortened_for(question, draft.meter)
    quotes = _with_first(_with_changes(quotes, changes, blocks, CHANGES * draft.room), first, blocks, draft)
    before, claims = draft, {quote.block: _why(quote.score) for quote in quotes if quote.score >= NEWS}
    if held.again(_chosen_blocks(quotes, needs, room), blocks):
        holding, moved = _with_held(draft, blocks, kept, held)
        if (left := holding.room - holding.prompt) >= 0:
            draft, kept, room = holding, moved, left
            quotes, needs = _without(quotes, needs, held.places)
    block, quoted, goal = None, list[_Quote](), room
    whole = cache(lambda place: said(blocks[place], speakers))
    for _ in range(TRIES):
        chosen = choose_turns([q.score for q in quotes], [q.cost for q in quotes], goal, exchange=0, closing=needs)
        wanted = _with_json([quotes[k] for k in sorted(chosen)], values, shortened)
        texts = [Excerpt(q.place, q.text.strip("\r\n") or whole(q.block), q.score, q.source) for q in wanted]
        found, stay = fitting(draft, texts, room)
        if found is None or (block is not None and found.tokens <= block.tokens):
            break
        block, quoted = found, [wanted[k] for k in stay]
        if len(chosen) == len(quotes) or len(stay) < len(wanted) or block.tokens >= FULL * room:
            break
        goal += room - block.tokens
    if block is None and draft is before:
        return draft
    at = kept[question.place]
    there = () if draft is before else held.places
    why = {m.index: claims.get(place, HELD) for place in there for m in blocks[place].messages}
    why |= {m.index: _why(quote.score) for quote in reversed(quoted) for m in blocks[quote.block].messages}
    drops = tuple(replace(d, why=why[d.index]) if d.index in why else d for d in draft.drops)
    quoting = [] if block is None else [block]
    made = replace(draft.with_blocks([*draft.blocks[:at], *quoting, *draft.blocks[at:]]), drops=drops)
    return unquoted(made, {m.index: (s, blocks[p].tokens) for p, s in scores.items() for m in blocks[p].messages})


def _scores(quotes: Iterable[_Quote]) -> dict[int, float]:
    """The best score of what may be quoted of each block."""
    found: dict[int, float] = {}
    for quote in quotes:
        found[quote.block] = max(found.get(quote.block, 0.0), quote.score)
    return found


def _chosen_blocks(quotes: Sequence[_Quote], needs: Mapping[int, int], room: int) -> set[int]:
    """The blocks that are quoted whole in a room."""
    chosen = choose_turns([q.score for q in quotes], [q.cost for q in quotes], room, exchange=0, closing=needs)
    return {quotes[k].block for k in chosen if not quotes[k].text}


def _with_held(
    draft: Draft, blocks: Sequence[Block], kept: Mapping[int, int], held: Held
) -> tuple[Draft, Mapping[int, int]]:
    """The draft with what is quoted since the last cut where it was put then, and where the kept blocks are in it."""
    at = min(number for place, number in kept.items() if place >= held.at)
    texts = [Excerpt(place, said(blocks[place], held.speakers), 0.0) for place in held.places]
    block = replace(excerpts(draft, texts), pinned=True)
    moved = {place: number + (number >= at) for place, number in kept.items()}
    return draft.with_blocks([*draft.blocks[:at], block, *draft.blocks[at:]]), moved


def _without(
    quotes: Sequence[_Quote], needs: Mapping[int, int], places: Collection[int]
) -> tuple[list[_Quote], dict[int, int]]:
    """The quotes that are not of these blocks, and what they need."""
    gone = frozenset(places)
    stay = [k for k, quote in enumerate(quotes) if quote.block not in gone]
    at = {k: number for number, k in enumerate(stay)}
    return [quotes[k] for k in stay], {at[k]: at[above] for k, above in needs.items() if k in at and above in at}


def _with_changes(
    quotes: Sequence[_Quote], changes: Collection[int], blocks: Sequence[Block], room: float
) -> list[_Quote]:
    """The quotes with those before the others, within `room` tokens, that may change what the best of them say."""
    if not changes:
        return list(quotes)
    whole = [(k, q) for k, q in enumerate(quotes) if not q.text]
    at = {quote.block: n for n, (_, quote) in enumerate(whole)}
    wanted = [at[block] for block in changes if block in at]
    if not wanted:
        return list(quotes)
    scores = [quote.score for _, quote in whole]
    found = list(quotes)
    for _, place in changing(wanted, lambda n: blocks[whole[n][1].block].messages[0].own_text(), scores, len(wanted)):
        k, quote = whole[place]
        if quote.cost <= room:
            room -= quote.cost
            found[k] = replace(quote, score=max(quote.score, NEWS))
    return found


def _with_first(
    quotes: Sequence[_Quote], first: Mapping[int, Sequence[tuple[int, int]]], blocks: Sequence[Block], draft: Draft
) -> list[_Quote]:
    """The quotes with those of the blocks that come first. Of an order the place among the others stays."""
    if not first:
        return list(quotes)
    found: list[_Quote] = []
    for quote in quotes:
        spans = first.get(quote.block)
        if spans is None or quote.text:
            found.append(quote)
        elif not spans:
            found.append(replace(quote, score=FIRST))
        else:
            message = blocks[quote.block].messages[0]
            text = f"{message.role}: {lines_of_message(message, spans)}"
            found.append(replace(quote, text=text, score=FIRST, cost=draft.meter.text(text) + GAP))
    return found


def _why(worth: float) -> str:
    if worth >= FIRST:
        return f"{QUOTED}{Reason.ORDER}"
    if worth >= NEWS:
        return f"{QUOTED}{Reason.CHANGED}"
    return QUOTED + (f"relevance {worth:.2f}" if worth > 0 else "recent")


def _quotes(
    draft: Draft,
    blocks: Sequence[Block],
    kept: Mapping[int, int],
    original: Draft | None,
    question: Question,
    alike: Sequence[float] | None,
) -> tuple[list[_Quote], dict[int, int], set[str], dict[int, str]]:
    """What may be quoted, in order; for a passage the index of the one that it stands under; the speakers; and the JSON
    values by the place of their first passage."""
    sent = {} if original is None else {m.index: m for m in original.messages}
    least = min(LONG * draft.room, draft.room - draft.prompt)
    wholes = [_whole(block, place in kept, sent, least) for place, block in enumerate(blocks)]
    asked = question.place
    places = [place for place in range(len(blocks)) if place != asked or wholes[place] is not None]
    texts = {place: read(m.own_text(), rate_of(m, m.parts(), draft.meter)) for place, m in enumerate(wholes) if m}
    groups = [texts.get(place) or tuple(map(read_message, blocks[place].messages)) for place in places]
    speakers = speakers_of(["" if isinstance(group, Text) else group[0].speaker for group in groups])
    near = None if alike is None else [1.0 if p == asked else alike[p - (p > asked)] for p in places]
    found: list[_Quote] = []
    needs: dict[int, int] = {}
    values: dict[int, str] = {}
    at = 0
    for place, group, scores in zip(places, groups, rank_passages(groups, question, near), strict=True):
        if isinstance(group, Text):
            own = blocks[place].messages[0].own_text() if place in kept else ""
            json = {span[0]: value for span in group.data if _is_missing(value := group.value(span), own)}
            _add_passages(group, scores, own, json.keys(), place, at, found, needs)
            values |= {at + first: value for first, value in json.items()}
            at += len(group.passages) + 1
            continue
        if place not in kept and any([reading.length for reading in group]):
            found.append(_Quote(at, place, "", scores[0], blocks[place].tokens))
        at += 1
    return found, needs, speakers, values


def _whole(block: Block, kept: bool, sent: Mapping[int, Message], least: float) -> Message | None:
    """The client's message that a block is quoted from passage by passage: it was shortened, or it is long and gone."""
    first = block.messages[0]
    original = sent.get(first.index)
    if original is None or len(block.messages) > 1:
        return None
    return original if first.why == EXCERPTED or (not kept and original.tokens > least) else None


def _is_missing(value: str, own: str) -> bool:
    """Whether a JSON value is not in a text: what stays of it in its place is not quoted again."""
    return not own or left_out(value) in own


def _add_passages(
    text: Text,
    scores: Sequence[float],
    own: str,
    values: Collection[int],
    block: int,
    at: int,
    found: list[_Quote],
    needs: dict[int, int],
) -> None:
    """Adds the passages that are not present in what is left of the text (`own`), and heads of records for what stands
    under them. `values`: the first passages of the JSON values to quote. Lines that only name a file are left out: each
    quote names its own."""
    present = frozenset([line.rstrip("\r") for line in own.split("\n")] if own else ())
    index: dict[int, int] = {}
    data = {place: span[0] for span in text.data for place in range(*span)}
    names = file_names([passage.text for passage in text.passages], text.outline)
    for place, (passage, score) in enumerate(zip(text.passages, scores, strict=True)):
        words = passage.text.strip("\r\n")
        there = words in present or ("\n" in words and present.issuperset(words.split("\n")))
        heads = text.records is not None and place in text.records.along(place)
        if place in data:
            there = data[place] not in values
        if words and (heads or not (there or place in names.naming)):
            above = _above(text, place)
            if above in index:
                needs[len(found)] = index[above]
            index[place] = len(found)
            cost = int(text.rate * len(words)) + GAP
            value = at + data[place] if place in data else -1
            found.append(_Quote(at + place, block, passage.text, 0.0 if there else score, cost, names.of[place], value))


def _above(text: Text, place: int) -> int:
    """The passage that must be quoted with another one: the last line of its record's head, the line before in that
    head, else what it stands under."""
    head = () if text.records is None else text.records.along(place)
    before = [line for line in head if line < place]
    return before[-1] if before else text.outline.parents[place]


def _with_json(quotes: Sequence[_Quote], values: Mapping[int, str], shortened: Shortened) -> list[_Quote]:
    """The quotes, with the passages of each JSON value as one valid value of as many tokens."""
    tokens: dict[int, int] = {}
    for quote in quotes:
        tokens[quote.data] = tokens.get(quote.data, 0) + quote.cost
    found: dict[int, _Quote] = {}
    for number, quote in enumerate(quotes):
        if quote.data < 0:
            found[-1 - number] = quote
        elif quote.data not in found:
            text = shortened(values[quote.data], tokens[quote.data])
            found[quote.data] = replace(quote, text=text, cost=tokens[quote.data])
        elif quote.score > found[quote.data].score:
            found[quote.data] = replace(found[quote.data], score=quote.score)
    return [*found.values()]
