"""Quotes dropped history and lorebook entries relevant to the last user message, in one message before it (seed 002).

It uses only free room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from proxy.fit import excerpts
from proxy.fit.dropping import unquoted
from proxy.fit.lore import LOREBOOKS, Entry, is_called
from proxy.fit.relevance.history.embedding_scores import likeness
from proxy.fit.relevance.history.turns import rank_turns
from proxy.fit.relevance.text.bm25 import acquire_index, release_index
from proxy.fit.relevance.text.question import Question, question_of
from proxy.fit.relevance.text.reading import read_message, read_text
from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Facts, Want
from proxy.model.structs import replace

HISTORY = "history"
HEADING = (
    "[Background that bears on the next message: entries of lorebooks, and what was said earlier in this conversation "
    "and is left out above, word for word:]"
)
WHY = "recalled for the last user message"
RECALLED = "recalled"  # prefix of the reason of a dropped message that is quoted
TURNS = (Kind.USER, Kind.ASSISTANT)
NEAR = 2  # newest turns that are searched for keys, with the last user message: SillyTavern's default depth
RELEVANT = 0.5  # of the best entry's relevance: the least that activates a `searched` entry without a key
JOINT = 1  # token for the line break before a passage
CONSTANT, NAMED = 4.0, 2.0  # scores above every relevance: of constant entries, and of entries with a matching key


@dataclass(frozen=True, slots=True)
class Params:
    """`budget`: the most tokens of the recalled passages. `total`: the most tokens of the whole prompt with them (the
    tokens of the recent history are `budget` of `prune_history`). `sources`: where passages come from.

    `embeddings`: the model whose embeddings contribute to the relevance of old turns; empty: none. Lorebook entries use
    no embeddings: the best turns are recalled whatever their similarity, but entries only if they are relevant, and
    similarity alone does not show that.
    """

    budget: int = 50_000
    total: int = 200_000
    sources: tuple[str, ...] = (HISTORY, LOREBOOKS)
    embeddings: str = ""

    def __post_init__(self) -> None:
        if self.budget < 1 or self.total < 1:
            raise ValueError("budget and total must be at least 1 token")
        if strange := set(self.sources) - {HISTORY, LOREBOOKS}:
            raise ValueError(f"sources: {', '.join(sorted(strange))} is not among {HISTORY}, {LOREBOOKS}")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that may be recalled. `place`: its position among all passages. `cost`: tokens. `indices`: the indices of
    the client's messages that it quotes."""

    place: int
    text: str
    score: float
    cost: int
    order: float = 0
    indices: tuple[int, ...] = ()


def rag_budget(budget: int, total: int, recent_used: int) -> int:
    """Seed 002: the tokens for recalled passages, given the tokens of the recent part."""
    return max(0, min(budget, total - recent_used))


def apply(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft with one message of passages before the last user message.

    Returns the same draft if nothing is relevant, if there is no room, or if the message exists already. Returns a
    `Want` if embeddings are missing.
    """
    draft = draft.made()
    entries: Sequence[Entry] = facts.knowledge.get(LOREBOOKS, ()) if LOREBOOKS in params.sources else ()
    gone = _gone(draft) if HISTORY in params.sources else set()
    asked = _last_user(draft.blocks)
    room = min(rag_budget(params.budget, params.total, draft.prompt), _spare(draft))
    if not (entries or gone) or asked is None or room <= 0 or any(m.why == WHY for m in draft.messages):
        return draft
    shown = _texts(draft.messages)
    question = question_of((facts.original or draft).blocks) or Question(())
    found = [*_from_lorebooks(draft, asked, question, entries, shown)] if entries else []
    if gone and facts.original is not None:
        blocks = [block for place, block in enumerate(facts.original.blocks) if place != question.place]
        dropped = [block if all(m.index in gone for m in block.messages) else None for block in blocks]
        alike = likeness(dropped, question, params.embeddings, facts)
        if isinstance(alike, Want):
            return alike
        found += _from_history(question, blocks, alike, gone, shown)
    made = _with(draft, asked, _best(found, room - draft.meter.text(HEADING)), room)
    return made if made is draft else unquoted(made, {i: (p.score, p.cost) for p in found for i in p.indices})


def _last_user(blocks: Sequence[Block]) -> int | None:
    """The place of the client's last user message; None if there is none."""
    places = [place for place, block in enumerate(blocks) if block.user is not None and block.user.index >= 0]
    return places[-1] if places else None


def _spare(draft: Draft) -> int:
    """Tokens by which the prompt may grow and still fit beside the reply.

    The margin grows with the prompt, so one token is kept for rounding.
    """
    return min(draft.room - draft.prompt, math.floor(-draft.excess / (1 + draft.meter.margin.share)) - 1)


def _gone(draft: Draft) -> set[int]:
    """The indices of the client's messages that are neither sent nor quoted."""
    return {drop.index for drop in draft.drops if not drop.why.startswith(RECALLED)}


def _from_history(
    question: Question, blocks: Sequence[Block], alike: Sequence[float] | None, gone: set[int], shown: set[str]
) -> Iterator[Passage]:
    """The dropped blocks that are relevant to the question, as passages."""
    turns = [tuple(map(read_message, b.messages)) for b in blocks]
    for place, score in enumerate(rank_turns(turns, question, alike=alike)):
        messages = blocks[place].messages
        if score <= 0 or not all(m.index in gone for m in messages) or _texts(messages) <= shown:
            continue
        if text := excerpts.said(blocks[place]):
            yield Passage(place, text, score, blocks[place].tokens, indices=tuple(m.index for m in messages))


def _texts(messages: Iterable[Message]) -> set[str]:
    return {m.text() for m in messages}


def _from_lorebooks(
    draft: Draft, asked: int, question: Question, entries: Sequence[Entry], shown: set[str]
) -> Iterator[Passage]:
    """The entries whose keys occur in the newest messages, and the entries most relevant to the question."""
    said = "\n".join(_near(draft.blocks[: asked + 1])).casefold()
    for place, (entry, worth) in enumerate(zip(entries, _relevance(entries, question), strict=True)):
        score = CONSTANT if entry.constant else NAMED if is_called(entry, said) else 0.0
        if (not score and not (entry.searched and worth >= RELEVANT)) or any(entry.content in text for text in shown):
            continue
        text = entry.text
        yield Passage(place - len(entries), text, score + worth, draft.meter.text(text) + JOINT, entry.order)


def _near(blocks: Sequence[Block]) -> list[str]:
    """The texts of the client's newest turns; the question is the last."""
    turns = (_speaking(block) for block in reversed(blocks))
    said = (m for m in turns if m.kind in TURNS and m.index >= 0)
    return [m.own_text() for m in islice(said, NEAR)][::-1]


def _speaking(block: Block) -> Message:
    """The message of a block that counts as a turn: the user message, else the first."""
    return block.user or block.messages[0]


def _relevance(entries: Sequence[Entry], question: Question) -> list[float]:
    """The relevance of each entry to the question: 1 for the best, 0 for no match."""
    index = acquire_index([(read_text(entry.text),) for entry in entries])
    scores = index.scores(question.query(index), meaning=True)
    release_index(index)
    best = max(scores, default=0.0) or 1.0
    return [score / best for score in scores]


def _best(found: Sequence[Passage], room: int) -> list[Passage]:
    """The passages that fit into `room` tokens, best first, without duplicates."""
    chosen: dict[str, Passage] = {}
    for passage in sorted(found, key=lambda p: (-p.score, -p.order, p.place)):
        if passage.text not in chosen and passage.cost <= room:
            chosen[passage.text] = passage
            room -= passage.cost
    return list(chosen.values())


def _with(draft: Draft, asked: int, chosen: Sequence[Passage], room: int) -> Draft:
    """The draft with a counted message of these passages, at most `room` tokens: entries first, then turns in order."""
    passages = [*(p for p in chosen if not p.indices), *sorted((p for p in chosen if p.indices), key=lambda p: p.place)]
    lore = sum(not p.indices for p in passages)
    places = [p.place if p.indices else i - lore - 1 for i, p in enumerate(passages)]  # a gap between entries and turns
    heading = HEADING if lore else excerpts.HEADING
    quoted = [excerpts.Excerpt(place, p.text, p.score) for place, p in zip(places, passages, strict=True)]
    block, held = excerpts.fitting(draft, quoted, room, heading)
    if block is None:
        return draft
    block = replace(block, messages=tuple(replace(m, why=WHY) for m in block.messages))
    made = draft.with_blocks([*draft.blocks[:asked], block, *draft.blocks[asked:]])
    why = {i: f"{RECALLED}: relevance {passages[k].score:.2f}" for k in held for i in passages[k].indices}
    return replace(made, drops=tuple(replace(d, why=why[d.index]) if d.index in why else d for d in draft.drops))
