"""What was read of the results of a run, remembered by its beginnings: a further turn reads the new results alone.

It only saves time: of equal beginnings the same is read. It holds no text of a result; of calls it holds their paths
and arguments, of turns the names that they claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proxy.fit.claims.again import Seen
from proxy.fit.claims.calls import Call, Result, Texts
from proxy.fit.claims.turns import Turns
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block

MOST, MOST_BYTES = 60_000, 8 << 20  # blocks with results, of some hundred long runs
MOST_TURNS, TURNS_BYTES = 20_000, 8 << 20
LAST_BLOCKS = 4  # whose claims are remembered: a client may change its last messages before it sends them again
ENTRY, RESULT, CLAIM = 300, 200, 300  # bytes in memory


class Read(msgspec.Struct, frozen=True, gc=False):
    """What was read of a block at the end of a beginning. `results`: of each result its call, the place in the block of
    the message that has it, and what its text says. `tokens`: what the texts that these refer to, or return again, take
    in tokens; 0 for those that do neither."""

    results: tuple[tuple[Call, int, Seen], ...]
    tokens: tuple[int, ...]

    def results_in(self, block: Block, place: int) -> Iterator[Result]:
        """The results of the block, as `results_of` yields them."""
        texts = {at: Texts(block.messages[at]) for _, at, _ in self.results}
        for call, at, _ in self.results:
            yield Result(call, place, at, block.messages[at].index, texts[at])


READS: Bounded[int, Read] = Bounded(MOST, MOST_BYTES)
TURNS: Bounded[int, Turns] = Bounded(MOST_TURNS, TURNS_BYTES)  # what turns claim up to the end of a beginning


def remember_read(number: int, results: Sequence[tuple[Result, Seen, int]]) -> None:
    """Remembers what was read of the results of a block: what the text of each says, and its tokens (see `Read`)."""
    read = Read(tuple([(r.call, r.at, seen) for r, seen, _ in results]), tuple([tokens for _, _, tokens in results]))
    calls = sum([len(r.call.same) + len(r.call.text) for r, _, _ in results])
    READS.put(number, read, ENTRY + RESULT * len(results) + calls)


def remember_turns(number: int, turns: Turns) -> None:
    """Remembers what turns claim up to the end of a block."""
    TURNS.put(number, turns, ENTRY + CLAIM * turns.size)


def beginnings(blocks: Sequence[Block], *depends: object) -> list[int]:
    """A cache key for each beginning of a conversation: a hash of its blocks, and of what else the value depends on."""
    number = hash(depends)
    found = []
    for block in blocks:
        messages = block.messages
        number = hash((number, len(messages), *[(m.raw, m.index, m.role) for m in messages]))
        found.append(number)
    return found
