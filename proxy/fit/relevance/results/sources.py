"""Finds the query for a tool result: in the messages around its call, and in the call itself. It scores nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import LONG_NUMBER, ResultQuery
from proxy.fit.relevance.text.question import content_words, ends
from proxy.fit.relevance.text.words import unescaped
from proxy.model.claims import ResultClaim
from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.definitions import NO_DEFINITIONS, ToolArguments
from proxy.model.lenient_json import Json

FOLLOW_UP = 1  # content words of a user message at most, from which it is a follow-up of the one before
MAX_FOLLOWED = 50  # user messages that a query is taken from: "go on" may be said a thousand times
NONE: Mapping[str, ResultClaim] = MappingProxyType({})
ARGUMENTS, SPOKEN = 600, 800  # characters used of each (measured: more adds noise)


@dataclass(frozen=True)
class UserMessage:
    """A user message and the one `before` it, analysed once for all results that follow it."""

    message: Message
    before: UserMessage | None = None

    @cached_property
    def text(self) -> str:
        """The parts of its text in which a question may be; of a follow-up also of the user message before it, which
        may be one, too."""
        texts = [self.own]
        said: UserMessage = self
        while said.before is not None and said.follows and len(texts) < MAX_FOLLOWED:
            said = said.before
            texts.append(said.own)
        return "\n".join(texts)

    @cached_property
    def own(self) -> str:
        """The parts of its own text in which a question may be."""
        return ends(self.message.own_text())

    @cached_property
    def follows(self) -> bool:
        """Whether it has too few words of content to ask anything by itself."""
        return len(content_words(self.own)) <= FOLLOW_UP

    @cached_property
    def mark(self) -> int:
        """A digest of what the text is taken from."""
        return digest(self.message.raw, self.text)


@dataclass(frozen=True)
class Source:
    """The messages from which the query for a block's results is taken: the user message before the block, the messages
    with the calls, and the user message that directly follows the round. `claimed`: what of its results must stay, by
    the id of the call. `tools`: see `Definitions.arguments`."""

    calls: tuple[Message, ...]
    user: UserMessage | None = None
    following: UserMessage | None = None
    claimed: Mapping[str, ResultClaim] = field(default_factory=dict)
    tools: Callable[[], ToolArguments] = NO_DEFINITIONS.arguments

    @cached_property
    def mark(self) -> int:
        """A digest of these messages, of the claims, and of the arguments that their tools have."""
        users = ["" if said is None else str(said.mark) for said in (self.user, self.following)]
        claims = [" ".join((call, *claim.definitions, *claim.ids)) for call, claim in sorted(self.claimed.items())]
        tools = self.tools()
        declared = [" ".join(tools.get(name, ())) for name in {c.name: None for m in self.calls for c in m.calls}]
        return digest(*users, *[message.raw for message in self.calls], *claims, *declared)

    def declared(self, call: str) -> tuple[str, ...]:
        """The names of the arguments that the tool of one call has."""
        return next((self.tools().get(part.name, ()) for part in self._called.get(call, ())), ())

    def query(self, call: str) -> ResultQuery:
        """The query for the result of one call."""
        found = self._queries.get(call)
        if found is None:
            arguments = "\n".join(map(_values, self._called.get(call, ())))
            claim = self.claimed.get(call)
            definitions, ids = (claim.definitions, claim.ids) if claim is not None else ((), ())
            prose = "\n".join(self._texts)
            found = ResultQuery(prose, arguments[:ARGUMENTS], self._texts, definitions, ids)
            self._queries[call] = found
        return found

    def arguments(self, call: str) -> str:
        """The arguments of one call, as JSON; empty if they cannot be read."""
        return "".join([part.text for part in self._called.get(call, ())])

    @cached_property
    def _parts(self) -> list[Part]:
        """The parts of the messages with the calls, decoded once: a round may have thousands of calls."""
        return [part for message in self.calls for part in message.parts()]

    @cached_property
    def _called(self) -> Mapping[str, Sequence[Part]]:
        """The calls by their ids."""
        found: dict[str, list[Part]] = {}
        for part in self._parts:
            if part.kind is PartKind.CALL and part.editable:
                found.setdefault(part.call, []).append(part)
        return found

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        """What the users asked, and what the model wrote with the calls."""
        asked = [each.text for each in (self.following, self.user) if each is not None]
        return (*asked, "".join([part.text for part in self._parts if part.kind in TEXTS])[:SPOKEN])

    @cached_property
    def _queries(self) -> dict[str, ResultQuery]:
        """The queries that were made, by the id of the call."""
        return {}


def sources(
    blocks: Sequence[Block],
    *,
    following: bool = False,
    tools: Callable[[], ToolArguments] = NO_DEFINITIONS.arguments,
    claimed: Mapping[str, ResultClaim] = NONE,
) -> list[Source | None]:
    """The source of each block with results, None for the others. With `following` the user message directly after a
    round is included: a result is then shortened differently once, when that message arrives. `tools`: see
    `Definitions.arguments`. `claimed`: what must stay of results, by the id of the call."""
    found: list[Source | None] = []
    user = None
    for place, block in enumerate(blocks):
        own = block.user
        if block.has_results:
            after = _following(blocks, place, user) if following else None
            calls = tuple(m for m in block.messages if not m.answers)
            own_claims = {call: claimed[call] for m in block.messages for call in m.answers if call in claimed}
            found.append(Source(calls or block.messages[:1], user, after, own_claims, tools))
        else:
            found.append(None)
        if own is not None:
            user = UserMessage(own, user)
    return found


def _following(blocks: Sequence[Block], place: int, before: UserMessage | None) -> UserMessage | None:
    """The user message after a round, if nothing but one text answer is between them."""
    own = blocks[place].user
    if own is not None:
        return UserMessage(own, before)
    for block in blocks[place + 1 : place + 3]:
        first = block.messages[0]
        if first.kind is Kind.USER:
            return UserMessage(first, before)
        if first.kind is not Kind.ASSISTANT or block.has_results:
            return None
    return None


def _values(call: Part) -> str:
    """The values of a call's arguments, without parameter names and small numbers."""
    try:
        return "\n".join(leaves(decoded(call.text)))
    except msgspec.DecodeError:
        return unescaped(call.text)


def leaves(value: Json, depth: int = 8) -> Iterator[str]:
    """Yields the strings and the large numbers in a value, at most `depth` levels deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and abs(value) >= 10 ** (LONG_NUMBER - 1):
        yield str(value)
    elif isinstance(value, (dict, list)) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item, depth - 1)
