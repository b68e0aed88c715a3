"""Long texts in messages: which there are, and messages with only some of their passages. It chooses no passage."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from proxy.fit.relevance.passages.context import context_places
from proxy.fit.relevance.passages.texts import Shortened, Span, Text, read
from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.ports import Meter
from proxy.model.structs import replace

EXCERPTED = "excerpt of a long text"
KINDS = (Kind.USER, Kind.ASSISTANT, Kind.INSTRUCTION)
PASTED = 400  # characters of a part from which it may be a pasted text


@dataclass(frozen=True, slots=True)
class LongMessage:
    """A message with long texts. `block`: the index of its block; `place`: its own in the block. `parts` have the
    `texts`, in the same order."""

    block: int
    place: int
    message: Message
    parts: tuple[Part, ...]
    texts: tuple[Text, ...]

    def keeping(self, chosen: Sequence[set[int]], shortened: Shortened) -> Message:
        """The message with only these passages of each text. Its tokens are not counted again."""
        each = zip(self.parts, self.texts, chosen, strict=True)
        edits = [(part, text.rendered(some, shortened)) for part, text, some in each]
        return self.message.edit(edits, EXCERPTED)


def long_places(blocks: Sequence[Block], least: float, pins: Collection[int]) -> Iterator[tuple[int, int]]:
    """(block, message) of the messages over `least` tokens that may change: the client did not pin them."""
    for number, block in enumerate(blocks):
        for place, message in enumerate(block.messages if block.later is None else ()):
            if message.tokens > least and message.index >= 0 and message.index not in pins and message.kind in KINDS:
                yield number, place


def long_message(
    blocks: Sequence[Block], at: tuple[int, int], meter: Meter, spans: Sequence[Span] = ()
) -> LongMessage | None:
    """The long texts of a message; None if its tokens are not those of a text. `spans` of its own text, which do not
    overlap, stay."""
    message = blocks[at[0]].messages[at[1]]
    parts = message.parts()
    rate = rate_of(message, parts, meter)
    found: list[tuple[Part, Text]] = []
    spans = sorted(spans)
    starts, ends = [low for low, _ in spans], [high for _, high in spans]
    start = 0
    for part in parts:
        if part.kind is not PartKind.TEXT:
            continue
        if len(part.text) >= PASTED and part.editable:
            inside = spans[bisect_left(ends, start) : bisect_right(starts, start + len(part.text))]
            found.append((part, read(part.text, rate, [(low - start, high - start) for low, high in inside])))
        start += len(part.text)
    if not found:
        return None
    return LongMessage(*at, message, tuple(part for part, _ in found), tuple(text for _, text in found))


def rate_of(message: Message, parts: Sequence[Part], meter: Meter) -> float:
    """Tokens per character of a message's texts, from its count where it has nothing else."""
    texts = "".join([part.text for part in parts if part.kind in TEXTS])
    plain = all(part.kind in TEXTS for part in parts)
    return (message.tokens if plain else meter.text(texts)) / max(1, len(texts))


def with_context_only(long: LongMessage, least: float, names: Collection[str]) -> LongMessage | None:
    """Instructions of which only what looks like retrieved context may go; None if nothing does."""
    texts = []
    for text in long.texts:
        loose = context_places(text, least / max(text.rate, 1e-9), names)
        texts.append(replace(text, always=frozenset(range(len(text.passages))) - loose))
    if all(len(text.always) == len(text.passages) for text in texts):
        return None
    return replace(long, texts=tuple(texts))
