"""Where the question of a tool result stands: in the messages around its call, and in the call itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import LONG_NUMBER, Asked
from proxy.fit.relevance.text.words import unescaped
from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.lenient_json import Json

# Characters read of each (measured: more adds noise). A question stands at the beginning or the end of what a user
# pastes, so both are read.
USER_HEAD, USER_TAIL, ARGUMENTS, SPOKEN = 1200, 300, 600, 800


@dataclass(frozen=True)
class Said:
    """A user message, read once for all results that it asks for."""

    message: Message

    @cached_property
    def text(self) -> str:
        """Its text, as far as a question may stand there."""
        return ends(self.message.own_text())

    @cached_property
    def mark(self) -> int:
        """A digest of it."""
        return digest(self.message.raw)


@dataclass(frozen=True)
class Source:
    """Where the question of a block's results stands: the user message before it, the messages that call, and the user
    message that directly follows the round which the results ended."""

    calls: tuple[Message, ...]
    user: Said | None = None
    following: Said | None = None

    @cached_property
    def mark(self) -> int:
        """A digest of these three."""
        users = ["" if said is None else str(said.mark) for said in (self.user, self.following)]
        return digest(*users, *[message.raw for message in self.calls])

    def asked(self, call: str) -> Asked:
        """The question as text, for the result of one call."""
        said, arguments = _spoken(self.calls, call)
        asked = [each.text for each in (self.following, self.user) if each is not None]
        texts = (*asked, said[:SPOKEN])
        return Asked("\n".join(texts), arguments[:ARGUMENTS], texts)


def sources(blocks: Sequence[Block], *, following: bool = False) -> list[Source | None]:
    """For each block with results, its question; None for the others. With `following`, what the user asks directly
    after a round counts too: then a result is chosen anew once, when that question comes."""
    found: list[Source | None] = []
    user = None
    for place, block in enumerate(blocks):
        own = block.user
        if block.has_results:
            after = _following(blocks, place) if following else None
            calls = tuple(m for m in block.messages if not m.answers)
            found.append(Source(calls or block.messages[:1], user, after))
        else:
            found.append(None)
        if own is not None:
            user = Said(own)
    return found


def _following(blocks: Sequence[Block], place: int) -> Said | None:
    """The user message after a round, where nothing but an answer in words stands between."""
    own = blocks[place].user
    if own is not None:
        return Said(own)
    for block in blocks[place + 1 : place + 3]:
        first = block.messages[0]
        if first.kind is Kind.USER:
            return Said(first)
        if first.kind is not Kind.ASSISTANT or block.has_results:
            return None
    return None


def ends(text: str) -> str:
    """Where a question stands in a long text: at its beginning and at its end."""
    return text if len(text) <= USER_HEAD + USER_TAIL else f"{text[:USER_HEAD]}\n{text[-USER_TAIL:]}"


def _spoken(messages: Sequence[Message], ident: str) -> tuple[str, str]:
    """What the model said when it called, and what it called with."""
    parts = [part for message in messages for part in message.parts()]
    calls = [p for p in parts if p.kind is PartKind.CALL and p.editable and p.call == ident]
    return "".join(p.text for p in parts if p.kind in TEXTS), "\n".join(map(_values, calls))


def _values(call: Part) -> str:
    """What a call passed: its values, without the names of its parameters and without small numbers."""
    try:
        return "\n".join(leaves(decoded(call.text)))
    except msgspec.DecodeError:
        return unescaped(call.text)


def leaves(value: Json, depth: int = 8) -> Iterator[str]:
    """The strings and the large numbers in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and abs(value) >= 10 ** (LONG_NUMBER - 1):
        yield str(value)
    elif isinstance(value, (dict, list)) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item, depth - 1)
