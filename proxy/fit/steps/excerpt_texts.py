"""Shortens long texts that were pasted into messages to the passages that bear on the question.

Each text says itself which of its lines are missing. Tool results are the job of `trim_tool_results`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from proxy.fit.layout import BEST, LAYOUTS, STABLE, layout_of
from proxy.fit.long_texts import EXCERPTED, LongMessage, long_message, long_places, with_context_only
from proxy.fit.quotes import with_quotes
from proxy.fit.relevance.passages.data import left_out
from proxy.fit.relevance.passages.excerpt import shortened_for
from proxy.fit.relevance.passages.ranking import rank_passages
from proxy.fit.relevance.passages.texts import Shortened, Text, choose
from proxy.fit.relevance.text.bm25 import Document
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.question import Question, question_of
from proxy.fit.relevance.text.reading import read_message
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace

IN_PLACE = 0.1  # of the room, for a text in its place where the block before the question quotes the rest of it
FRESH = 0.5  # of the room at least, for texts in the message that asks: later messages shorten it further
LEAST = 0.05  # of the room, for each text of several that compete, of at most `TOGETHER` for all
TOGETHER = 0.25
QUOTES = 0.05  # of the room at least, so that the rest of the texts is quoted in it
NEWEST = 0.1  # of the room, for the newest turns, which take part in no competition
TRIES = 4  # choices with better estimates of what passages cost
FULL = 0.95  # share of its room from which an excerpt is not made again
FRAME = 8  # tokens of a message besides its text
BEHIND = 2  # messages behind a text among which the question about it is: an answer may come first
MAX_CACHED, MAX_CACHED_BYTES = 2_000, 16 << 20

MADE: Bounded[int, bytes] = Bounded(MAX_CACHED, MAX_CACHED_BYTES)


@dataclass(frozen=True, slots=True)
class Params:
    """`share`: of the room; a message that takes more is long. `layout`: as in `prune_history`: `stable` chooses once
    for each text in its place, `best` for every question. `sections`: names of headings and tags in instructions whose
    sections are retrieved context; other sections are, if they are long.
    """

    share: float = 0.25
    layout: str = ""
    sections: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError("share must be a share over 0 and at most 1")
        if self.layout not in LAYOUTS:
            raise ValueError("layout must be stable or best")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its long texts shortened; the same draft if it fits, or if no text is long.

    Texts that are apart do not compete for room: they are left to `truncate_longest`.
    """
    if draft.prompt <= draft.room or draft.apart:
        return draft
    layout = BEST if draft.texts else layout_of(draft, params.layout)
    least = params.share * draft.room
    places = [*long_places(draft.blocks, least, draft.pins)]
    if not places:  # as in most conversations: then no question is formed
        return draft
    question = _question(draft.blocks, stable=layout != BEST)
    found = _long(draft, question, places, least, params.sections)
    if not found:
        return draft
    if layout == BEST:
        return _chosen_anew(draft, found, question)
    quoted = layout == STABLE and question.place >= 0
    made = _in_place(draft, found, question, params, quoted=quoted)
    if not quoted or made is draft or made.room - made.prompt < QUOTES * made.room:
        return made
    return with_quotes(made, made.blocks, {i: i for i in range(len(made.blocks))}, facts.original, question)


def _question(blocks: Sequence[Block], *, stable: bool) -> Question:
    """The question; with `stable` as it was asked, whatever an agent has done since then."""
    found = question_of(blocks) or Question(())
    if stable and 0 <= found.place < len(blocks) - 1:
        return question_of(blocks[: found.place + 1]) or found
    return found


def _long(
    draft: Draft, question: Question, at: Sequence[tuple[int, int]], least: float, sections: Collection[str]
) -> list[LongMessage]:
    """The messages with long texts, of those at these places. Those of instructions only if everything else cannot give
    enough room."""
    orders = {(b, p) for b, p in at if draft.blocks[b].messages[p].kind is Kind.INSTRUCTION}
    if orders and _without_texts(draft, at, orders) <= draft.room:
        at = [place for place in at if place not in orders]
    found: list[LongMessage] = []
    for place in at:
        spans = question.spans if place[0] == question.place else ()
        long = long_message(draft.blocks, place, draft.meter, spans)
        if long is not None and place in orders:
            long = with_context_only(long, least, sections)
        if long is not None:
            found.append(long)
    return found


def _without_texts(draft: Draft, long: Sequence[tuple[int, int]], orders: set[tuple[int, int]]) -> float:
    """The tokens of the draft with its instructions whole, and of the rest only what must stay."""
    found = draft.fixed + 0.0
    for number, block in enumerate(draft.blocks):
        for place, message in enumerate(block.messages):
            if (number, place) in orders:
                found += message.tokens
            elif block.pinned:
                found += min(message.tokens, LEAST * draft.room) if (number, place) in long else message.tokens
    return found


def _chosen_anew(draft: Draft, found: Sequence[LongMessage], question: Question) -> Draft:
    """The draft with the passages that are best for this question, in competition with the turns around them."""
    blocks = draft.blocks
    held = {long.block for long in found}
    groups: list[Text | Document] = []
    for place, block in enumerate(blocks):
        if place in held:
            groups += [text for long in found if long.block == place for text in long.texts]
        elif place != question.place:
            groups.append(tuple(map(read_message, block.messages)))
    ranked = rank_passages(groups, question)
    scores = [row for group, row in zip(groups, ranked, strict=True) if isinstance(group, Text)]
    turns = iter(row[0] for group, row in zip(groups, ranked, strict=True) if not isinstance(group, Text))
    worth = {place: next(turns) for place in range(len(blocks)) if place not in held and place != question.place}
    loose = {place: worth[place] for place in worth if not blocks[place].pinned}
    competing = _with_newest_first(loose, blocks, int(NEWEST * draft.room))
    others = draft.prompt - sum(blocks[place].tokens for place in loose) - sum(long.message.tokens for long in found)
    room = draft.room - others
    kept, rows = _worth_it(draft, found, scores, room, competing)
    shortened = shortened_for(question, draft.meter)
    return _fitted(draft, kept, rows, room, shortened, competing) if kept else draft


def _worth_it(
    draft: Draft,
    found: Sequence[LongMessage],
    scores: Sequence[Sequence[float]],
    room: float,
    turns: Sequence[tuple[float, int]],
) -> tuple[list[LongMessage], list[Sequence[float]]]:
    """The long messages to shorten, and the scores of their passages: those that are pinned, and those of which a
    passage that bears on the question is among the best for the room, or which the rest of the room is for.

    A share for each of the others would be taken from better turns: `prune_history` drops them as it drops turns.
    """
    loose = {long.block for long in found if not draft.blocks[long.block].pinned}
    texts = [replace(text, always=frozenset()) if m.block in loose else text for m in found for text in m.texts]
    rows = iter(zip(texts, choose(texts, scores, room, turns).chosen, scores, strict=True))
    kept, worth = list[LongMessage](), list[Sequence[float]]()
    for long in found:
        some = [next(rows) for _ in long.texts]
        bears = any(row[place] > 0 for _, chosen, row in some for place in chosen)
        size = sum(text.rate * len(text.passages[place].text) for text, chosen, _ in some for place in chosen)
        if long.block not in loose or bears or size > LEAST * draft.room:
            kept.append(long)
            worth += [row for _, _, row in some]
    return kept, worth


def _beside(long: LongMessage) -> float:
    """The tokens of a long message besides its long texts, estimated."""
    texts = sum(text.rate * len(passage.text) for text in long.texts for passage in text.passages)
    return FRAME + max(0.0, long.message.tokens - texts)


def _with_newest_first(loose: Mapping[int, float], blocks: Sequence[Block], room: int) -> list[tuple[float, int]]:
    """(score, tokens) of the turns that compete; the newest, which stay, before all others."""
    found: list[tuple[float, int]] = []
    for place in sorted(loose, reverse=True):
        room -= blocks[place].tokens
        found.append((math.inf if room >= 0 else loose[place], blocks[place].tokens))
    return found


def _fitted(
    draft: Draft,
    found: Sequence[LongMessage],
    scores: Sequence[Sequence[float]],
    room: float,
    shortened: Shortened,
    turns: Sequence[tuple[float, int]] = (),
) -> Draft:
    """The draft with the best passages of long messages that fit into `room` together with the best of the turns.

    Costs of passages are estimates: the choice is repeated for more or less room until the texts are as long as may be.
    """
    texts = [text for long in found for text in long.texts]
    least = min(LEAST, TOGETHER / len(texts)) * draft.room
    best, most, goal = draft, -math.inf, room - sum(map(_beside, found))
    for slack in range(TRIES):
        choice = choose(texts, scores, goal, turns, least)
        rows = iter(choice.chosen)
        made = _changed(draft, {(m.block, m.place): m.keeping([next(rows) for _ in m.texts], shortened) for m in found})
        spare = room - choice.turns - sum(made.blocks[m.block].messages[m.place].tokens for m in found)
        if spare >= 0 > most or (spare < most if spare >= 0 else spare > most):
            best, most = made, spare
        if choice.whole or 0 <= spare <= (1 - FULL) * room:
            break
        goal += spare - slack * FRAME
    return best


def _changed(draft: Draft, messages: Mapping[tuple[int, int], Message]) -> Draft:
    """The draft with these messages, by block and place, counted; blocks that became no shorter stay as they are."""
    blocks = list(draft.blocks)
    for number in dict.fromkeys(block for block, _ in messages):
        block = blocks[number]
        made = [messages.get((number, place), message) for place, message in enumerate(block.messages)]
        counted = replace(block, messages=draft.recount(made))
        blocks[number] = counted if counted.tokens < block.tokens else block
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _in_place(draft: Draft, found: Sequence[LongMessage], asked: Question, params: Params, *, quoted: bool) -> Draft:
    """The draft with each long text shortened for its own place, so that it stays the same in later requests.

    The choice depends on what stands before a text and on the user message directly after it. Only texts in the newest
    block may take more, until the next message, and in a run with tools those of the question, until the next one.
    `quoted`: the rest of the texts is quoted before the question, so they may be short in their place.
    """
    limit, fresh = int((IN_PLACE if quoted else params.share) * draft.room), int(FRESH * draft.room)
    last = len(draft.blocks) - 1
    made = draft
    for long in found:
        if long.block != last:
            own = fresh if long.block == asked.place and not quoted else limit
            made = _shortened(made, draft, long, asked, own, quoted=quoted)
    for long in found:
        if long.block == last:
            rest = made.prompt - made.blocks[last].tokens
            made = _shortened(made, draft, long, asked, max(fresh, draft.room - rest))
    return made


def _shortened(
    made: Draft, draft: Draft, long: LongMessage, asked: Question, limit: int, *, quoted: bool = False
) -> Draft:
    """The draft `made` with one long message of `draft` in at most `limit` tokens, cached. `asked`: the question.
    `quoted`: as in `_in_place`; of a JSON value, of which a part in its place would be a second one, a note stays."""
    question = _asked_then(draft.blocks, long.block, asked)
    always = "|".join(" ".join(map(str, sorted(text.always))) for text in long.texts)
    key = digest(
        long.message.raw,
        str(limit),
        str(draft.room),
        str(long.message.tokens),
        repr(question.clauses),
        always,
        str(quoted),
    )
    raw = MADE.get(key)
    if raw is None:
        scores = rank_passages(long.texts, question)
        shortened = _noted if quoted else shortened_for(question, draft.meter)
        alone = _fitted(draft, [long], scores, limit, shortened)
        raw = alone.blocks[long.block].messages[long.place].raw
        MADE.put(key, raw, len(raw))
    if raw == long.message.raw:
        return made
    return _changed(made, {(long.block, long.place): replace(long.message, raw=raw, why=EXCERPTED)})


def _noted(text: str, limit: int) -> str:
    return left_out(text)


def _asked_then(blocks: Sequence[Block], place: int, asked: Question) -> Question:
    """The question about a text in the block at `place`: as it was asked by the user message directly after it, else
    by the messages up to it. Instructions are followed by the first user message. `asked`: that of the last one."""
    first = blocks[place].messages[0].kind is Kind.INSTRUCTION
    behind = blocks[place + 1 :] if first else blocks[place + 1 : place + 1 + BEHIND]
    for number, block in enumerate(behind, place + 1):
        if block.has_results or (not first and block.messages[0].calls):
            break
        if block.user is not None:
            place = number
            break
    return asked if place == asked.place else question_of(blocks[: place + 1]) or Question(())
