"""What a tool result was asked for: the words that stood before it, and the question that follows its round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.bm25 import Query, query
from proxy.fit.relevance.memo import digest
from proxy.fit.relevance.words import FEW, counted, is_english, tokens, unescaped
from proxy.fit.shorten import content_of
from proxy.types import Block, Json, Message, text_of

# Characters read of each source (measured: more adds noise). A question stands at the beginning or the end of what a
# user pastes, so both are read.
USER_HEAD, USER_TAIL, ARGUMENTS, SPOKEN = 1200, 300, 600, 800
TEXTS = 64  # remembered as they were read, 50 KB each at most

# What a question quotes, it wants to the letter: between quotation marks, or an identifier, or a long number.
QUOTED = re.compile(
    r"\"([^\"\n]{3,80})\"|“([^”\n]{3,80})”|`([^`\n]{3,80})`|(?<!\w)'([^'\n]{3,80})'(?!\w)|«([^»\n]{3,80})»"
)
LONG_NUMBER = 4  # digits from which a number names something; a smaller one is a limit, a page or an amount


@dataclass(frozen=True)
class Asked:
    """`prose`: what people and the model said. `arguments`: what the tool was called with, the values only. `texts`:
    what the prose consists of, where that is known: what a user asked is then read once for all results that follow."""

    prose: str
    arguments: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def words(self) -> dict[str, int]:
        """All its words: of the prose how often each stands there; of the arguments, which may be a file, each once."""
        found = dict(self._said)
        for word in _read(self.arguments):
            found[word] = found.get(word, 0) + 1
        return found

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """What the prose quotes: to be found to the letter, but for capitals."""
        kinds = zip(*(text.literals for text in self._each), strict=True)
        return tuple(dict.fromkeys(literal for kind in kinds for found in kind for literal in found))

    def query(self, sample: str = "") -> Query:
        """Its words as a query. A sample of what is searched tells the language where the prose is too short to."""
        said = self._said
        return query(self.words, is_english(said) or (sum(said.values()) < FEW and is_english(_read(sample))))

    @cached_property
    def _each(self) -> list[_Text]:
        return [_text(text) for text in self.texts or (self.prose,)]

    @cached_property
    def _said(self) -> dict[str, int]:
        """The words of the prose and how often each stands there."""
        first, *others = self._each
        found = dict(first.words)
        for text in others:
            for word, times in text.words.items():
                found[word] = found.get(word, 0) + times
        return found


class _Text(NamedTuple):
    """What a text says, and what it quotes: between quotation marks, as an identifier, as a long number."""

    words: Mapping[str, int]
    literals: tuple[Sequence[str], Sequence[str], Sequence[str]]


@lru_cache(maxsize=TEXTS)
def _text(text: str) -> _Text:
    found = tokens(text)
    words, names = counted(found)
    quoted = ["".join(groups).casefold() for groups in QUOTED.findall(text)]
    numbers = [token.casefold() for token in found if sum(map(str.isdigit, token)) >= LONG_NUMBER]
    return _Text(words, (quoted, [name.casefold() for name in names], numbers))


def _read(text: str) -> dict[str, int]:
    return counted(tokens(text))[0]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the question of a block's results stands: the user message before it, the call, and the user message that
    directly follows the round which the results ended. `mark` is a digest of these three."""

    mark: int
    call: Message
    user: Message | None = None
    following: Message | None = None

    def asked(self, answers: str | None = None) -> Asked:
        """The question as text, for the result of one call or of all."""
        said, arguments = _spoken(self.call, answers)
        asked = [ends(text_of(content_of(m))) for m in (self.following, self.user) if m is not None]
        texts = (*asked, said[:SPOKEN])
        return Asked("\n".join(texts), arguments[:ARGUMENTS], texts)


def sources(blocks: Sequence[Block], *, following: bool = False) -> list[Source | None]:
    """For each block with results, its question; None for the others. With `following`, what the user asks directly
    after a round counts too: then a result is chosen anew once, when that question comes."""
    found: list[Source | None] = []
    user, mark = None, 0
    for place, block in enumerate(blocks):
        first = block.messages[0]
        if first.role == "user":
            user, mark = first, digest(first.raw)
        if not block.has_results:
            found.append(None)
            continue
        after = _following(blocks, place) if following else None
        found.append(Source(digest(str(mark), first.raw, b"" if after is None else after.raw), first, user, after))
    return found


def _following(blocks: Sequence[Block], place: int) -> Message | None:
    """The user message after a round, where nothing but an answer in words stands between."""
    for block in blocks[place + 1 : place + 3]:
        if block.messages[0].role == "user":
            return block.messages[0]
        if block.messages[0].role != "assistant" or block.has_results:
            return None
    return None


def ends(text: str) -> str:
    """Where a question stands in a long text: at its beginning and at its end."""
    return text if len(text) <= USER_HEAD + USER_TAIL else f"{text[:USER_HEAD]}\n{text[-USER_TAIL:]}"


def _spoken(message: Message, ident: str | None) -> tuple[str, str]:
    """What the model said when it called, and what it called with."""
    try:
        fields = message.fields()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "", ""
    calls: Sequence[Json] = fields.get("tool_calls") or ()
    mine = [c for c in calls if isinstance(c, dict) and (ident is None or c.get("id") == ident)]
    return text_of(fields.get("content")), "\n".join(map(_values, mine))


def _values(call: Json) -> str:
    """What a call passed: its values, without the names of its parameters and without small numbers."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    try:
        return "\n".join(leaves(decoded(arguments if isinstance(arguments, str) else "")))
    except msgspec.DecodeError:
        return unescaped(str(arguments))


def leaves(value: Json, depth: int = 8) -> Iterator[str]:
    """The strings and the large numbers in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and abs(value) >= 10 ** (LONG_NUMBER - 1):
        yield str(value)
    elif isinstance(value, (dict, list)) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item, depth - 1)
