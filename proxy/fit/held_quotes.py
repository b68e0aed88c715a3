"""Chooses the dropped turns whose quotes stay from one cut of a chat to the next, so that its prompts begin alike.

People stay with a subject: half of what is quoted for a question was quoted for the one before it. So at a cut the
turns that bear on what was asked last, taken as one question, are quoted in a message of their own, which stays where
it was put; later turns, and what else a question needs, come behind it. Where few of these turns are among those that a
question would get anyway, it gets no such message: what it needs counts for more than a prompt that begins as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from proxy.fit.long_texts import EXCERPTED
from proxy.fit.relevance.history.turns import choose_turns, rank_turns
from proxy.fit.relevance.text.question import Question, question_in, read_in_part
from proxy.fit.relevance.text.reading import speakers_of
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block

SHARE = 0.3  # of the room, for these quotes (measured)
SAME = 0.3  # share of them, in tokens, that a question would get anyway, from which it gets all (measured)
SAME_OF_MANY = 0.6  # the same among more than two speakers, where turns near the best count by their place alone
LATEST = 3  # user messages up to the cut that choose them, as one question (measured)
CUTS, CUTS_BYTES, PLACE = 1_000, 4 << 20, 40  # cached


class Held(msgspec.Struct, frozen=True, gc=False):
    """`places`: of the quoted turns, in order; `at`: the block before which they stand; `speakers`: of the transcript
    that the turns are, who are quoted without a role."""

    places: tuple[int, ...]
    at: int
    speakers: frozenset[str]

    def again(self, chosen: Collection[int], blocks: Sequence[Block]) -> bool:
        """Whether enough of these quotes are among the blocks that a question chooses."""
        same = sum(blocks[place].tokens for place in self.places if place in chosen)
        least = SAME if len(self.speakers) <= 2 else SAME_OF_MANY
        return bool(self.places) and same >= least * sum(blocks[place].tokens for place in self.places)


NOTHING = Held((), 0, frozenset())
CHOSEN: Bounded[int, Held] = Bounded(CUTS, CUTS_BYTES)


def held_quotes(blocks: Sequence[Block], kept: Mapping[int, int], cut: int, room: int) -> Held:
    """The turns that are quoted in `SHARE` of the room from the cut on that was made when the block `cut` came; nothing
    before the first cut (-1). `kept`: the blocks that are not dropped. It depends only on the blocks up to the question
    at the cut, so it is the same until the next cut. Cached."""
    users = [place for place, block in enumerate(blocks) if block.user is not None and block.user.index >= 0]
    asked = next((place for place in users if place >= cut), -1)
    if cut < 0 or asked < 0:
        return NOTHING
    before = ((place, blocks[place]) for place in range(min(cut, asked)) if place not in kept)
    dropped = [place for place, block in before if block.messages[0].why != EXCERPTED]  # that is so for one question
    key = hash((room, asked, *dropped, *[m.raw for block in blocks[: asked + 1] for m in block.messages]))
    found = CHOSEN.get(key)
    if found is None:
        found = _chosen(blocks[: asked + 1], dropped, [place for place in users if place <= asked], int(SHARE * room))
        CHOSEN.put(key, found, PLACE * (1 + len(found.places)))
    return found


def _chosen(blocks: Sequence[Block], dropped: Sequence[int], users: Sequence[int], room: int) -> Held:
    turns = [tuple(map(read_in_part, block.messages)) for block in blocks[:-1]]
    texts = [user.own_text() for place in users[-LATEST:] if (user := blocks[place].user) is not None]
    asked = Question(tuple(clause for text in texts for clause in question_in(text).clauses))
    ranked = rank_turns(turns, asked, meaning=False)
    scores = [ranked[place] for place in dropped]
    chosen = choose_turns(scores, [blocks[place].tokens for place in dropped], room, exchange=0)
    speakers = speakers_of([turn[0].speaker for turn in turns])
    return Held(tuple(dropped[k] for k in sorted(chosen)), len(blocks) - 1, frozenset(speakers))
