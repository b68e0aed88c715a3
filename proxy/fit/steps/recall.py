"""Quotes what bears on the last user message, in one message before it: what was dropped from the history, and entries
of lorebooks (seed 002). It spends only room that is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from proxy.fit import excerpts
from proxy.fit.lore import LOREBOOKS, Entry, is_called
from proxy.fit.relevance.history.embedding_scores import likeness
from proxy.fit.relevance.history.turns import rank_turns
from proxy.fit.relevance.results.sources import ends
from proxy.fit.relevance.text.bm25 import acquire_index, release_index
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
RECALLED = "recalled"  # how the reasons begin of what was dropped and is quoted
TURNS = (Kind.USER, Kind.ASSISTANT)
NEAR = 2  # turns that are searched for keys, the last user message among them: SillyTavern's default depth
RELEVANT = 0.5  # of the best entry's relevance: from there on relevance alone calls for an entry that may be searched
JOINT = 1  # token for the line break before a passage
CONSTANT, NAMED = 4.0, 2.0  # scores over every relevance: entries that are called for always, and by their keys


@dataclass(frozen=True, slots=True)
class Params:
    """`budget`: tokens that what is recalled may take. `total`: tokens that the whole prompt may take with it (what
    the recent history may take is `budget` of `prune_history`). `sources`: what it is recalled from. `embeddings`: the
    model whose embeddings have a share in what old turns bear on; empty: none. Entries have none: of turns the best are
    wanted however near they are, of entries only those that bear on the question, and nearness alone cannot tell."""

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
    """A text that may be recalled, with its place among all of them and what it is worth. `cost` in tokens; `indices`
    of the client's messages that it quotes."""

    place: int
    text: str
    score: float
    cost: int
    order: float = 0
    indices: tuple[int, ...] = ()


def rag_budget(budget: int, total: int, recent_used: int) -> int:
    """Seed 002: what may be recalled beside the tokens that the recent part takes."""
    return max(0, min(budget, total - recent_used))


def apply(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft with one message of passages before the last user message; unchanged where nothing bears on it, where
    there is no room, or where the message is there already. Or the embeddings that it lacks to choose them."""
    draft = draft.made()
    entries: Sequence[Entry] = facts.knowledge.get(LOREBOOKS, ()) if LOREBOOKS in params.sources else ()
    gone = _gone(draft) if HISTORY in params.sources else set()
    asked = _question(draft.blocks)
    room = min(rag_budget(params.budget, params.total, draft.prompt), _spare(draft))
    if not (entries or gone) or asked is None or room <= 0 or any(m.why == WHY for m in draft.messages):
        return draft
    shown = _texts(draft.messages)
    found = [*_from_lorebooks(draft, asked, entries, shown)] if entries else []
    question = draft.blocks[asked].user
    if gone and facts.original is not None and question is not None:
        blocks = [b for b in facts.original.blocks if b.user is None or b.user.index != question.index]
        alike = likeness(blocks, question.own_text(), params.embeddings, facts)
        if isinstance(alike, Want):
            return alike
        found += _from_history(question, blocks, alike, gone, shown)
    return _with(draft, asked, _best(found, room - draft.meter.text(HEADING)), room)


def _question(blocks: Sequence[Block]) -> int | None:
    """The place of the client's last user message."""
    for place in range(len(blocks) - 1, -1, -1):
        user = blocks[place].user
        if user is not None and user.index >= 0:
            return place
    return None


def _spare(draft: Draft) -> int:
    """Tokens by which the prompt may grow: it still leaves the reply its room, and fits. One stays for rounding: the
    margin grows with the prompt."""
    return min(draft.room - draft.prompt, math.floor(-draft.excess / (1 + draft.meter.margin.share)) - 1)


def _gone(draft: Draft) -> set[int]:
    """The client's messages that are no longer sent, and not quoted either."""
    return {drop.index for drop in draft.drops if not drop.why.startswith(RECALLED)}


def _from_history(
    question: Message, blocks: Sequence[Block], alike: Sequence[float] | None, gone: set[int], shown: set[str]
) -> Iterator[Passage]:
    """Whole blocks that were dropped, as far as they bear on the question."""
    turns = [tuple(map(read_message, b.messages)) for b in blocks]
    for place, score in enumerate(rank_turns(turns, ends(question.own_text()), alike=alike)):
        messages = blocks[place].messages
        if score <= 0 or not all(m.index in gone for m in messages) or _texts(messages) <= shown:
            continue
        if text := excerpts.said(blocks[place]):
            yield Passage(place, text, score, blocks[place].tokens, indices=tuple(m.index for m in messages))


def _texts(messages: Iterable[Message]) -> set[str]:
    return {m.text() for m in messages}


def _from_lorebooks(draft: Draft, asked: int, entries: Sequence[Entry], shown: set[str]) -> Iterator[Passage]:
    """Entries that the newest messages call for by their keys, and those that bear most on the question."""
    near = _near(draft.blocks[: asked + 1])
    said = "\n".join(near).casefold()
    for place, (entry, worth) in enumerate(zip(entries, _relevance(entries, near[-1]), strict=True)):
        score = CONSTANT if entry.constant else NAMED if is_called(entry, said) else 0.0
        if (not score and not (entry.searched and worth >= RELEVANT)) or any(entry.content in text for text in shown):
            continue
        text = entry.text
        yield Passage(place - len(entries), text, score + worth, draft.meter.text(text) + JOINT, entry.order)


def _near(blocks: Sequence[Block]) -> list[str]:
    """What the client's newest turns say, the question last."""
    turns = (_speaking(block) for block in reversed(blocks))
    said = (m for m in turns if m.kind in TURNS and m.index >= 0)
    return [m.own_text() for m in islice(said, NEAR)][::-1]


def _speaking(block: Block) -> Message:
    """The message of a block in which somebody speaks: the user's, else the first."""
    return block.user or block.messages[0]


def _relevance(entries: Sequence[Entry], question: str) -> list[float]:
    """How far each entry bears on the question: 1 for the best, 0 for one that does not at all."""
    index = acquire_index([(read_text(entry.text),) for entry in entries])
    scores = index.scores(index.query(read_text(ends(question))), meaning=True)
    release_index(index)
    best = max(scores, default=0.0) or 1.0
    return [score / best for score in scores]


def _best(found: Sequence[Passage], room: int) -> list[Passage]:
    """The passages that fit into `room` tokens, best first; none of them twice."""
    chosen: dict[str, Passage] = {}
    for passage in sorted(found, key=lambda p: (-p.score, -p.order, p.place)):
        if passage.text not in chosen and passage.cost <= room:
            chosen[passage.text] = passage
            room -= passage.cost
    return list(chosen.values())


def _with(draft: Draft, asked: int, chosen: Sequence[Passage], room: int) -> Draft:
    """The draft with these passages, in at most `room` tokens, counted: entries first, then turns in their order."""
    told = [*(p for p in chosen if not p.indices), *sorted((p for p in chosen if p.indices), key=lambda p: p.place)]
    lore = sum(not p.indices for p in told)
    places = [p.place if p.indices else i - lore - 1 for i, p in enumerate(told)]  # a gap between entries and turns
    heading = HEADING if lore else excerpts.HEADING
    quoted = [(place, p.text) for place, p in zip(places, told, strict=True)]
    block, held = excerpts.fitting(draft, quoted, [p.score for p in told], room, heading)
    if block is None:
        return draft
    block = replace(block, messages=tuple(replace(m, why=WHY) for m in block.messages))
    made = draft.with_blocks([*draft.blocks[:asked], block, *draft.blocks[asked:]])
    why = {i: f"{RECALLED}: relevance {told[k].score:.2f}" for k in held for i in told[k].indices}
    return replace(made, drops=tuple(replace(d, why=why[d.index]) if d.index in why else d for d in draft.drops))
