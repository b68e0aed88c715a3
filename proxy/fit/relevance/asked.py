"""What a tool result was asked for: the words that stood before it, and the question that follows its round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.memo import digest
from proxy.fit.relevance.words import (
    FEW,
    KNOWN_ENGLISH,
    STOP,
    is_english,
    stem,
    summed,
    times_of,
    tokens,
    unescaped,
    words_of,
)
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
        return _together([text.words for text in self._each], self._called)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """What the prose quotes: to be found to the letter, but for capitals."""
        kinds = zip(*(text.literals for text in self._each), strict=True)
        return tuple(dict.fromkeys(literal for kind in kinds for found in kind for literal in found))

    def keys(self, sample: str = "") -> tuple[Mapping[str, int], bool]:
        """What it is matched by and what each weighs: its words, or where it is English their stems without stop words;
        and whether it is. A sample of what is searched tells the language where the prose is too short to."""
        length = sum(text.length for text in self._each)
        english = sum(text.english for text in self._each) >= KNOWN_ENGLISH * max(1, length)
        if english or (length < FEW and is_english(_read(sample))):
            return self._stems, True
        return self.words, False

    @cached_property
    def _stems(self) -> dict[str, int]:
        return _together([text.stems for text in self._each], _stems_of(self._called))

    @cached_property
    def _called(self) -> dict[str, int]:
        """The words of the arguments, each once."""
        return dict.fromkeys(_read(self.arguments), 1)

    @cached_property
    def _each(self) -> list[_Text]:
        return [_text(text) for text in self.texts or (self.prose,)]


def _together(counts: Sequence[Mapping[str, int]], more: Mapping[str, int]) -> dict[str, int]:
    """The sums of counts."""
    first, *others = counts
    found = dict(first)
    for other in (*others, more):
        for word, times in other.items():
            found[word] = found.get(word, 0) + times
    return found


def _stems_of(words: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word, times in words.items():
        if word not in STOP:
            key = stem(word)
            found[key] = found.get(key, 0) + times
    return found


class _Text:
    """What a text says, and what it quotes: between quotation marks, as an identifier, as a long number."""

    def __init__(self, text: str) -> None:
        times = times_of(tokens(text))
        found, self.length, self.english, names = summed(times)
        self.words = words_of(times.items())
        quoted = ["".join(groups).casefold() for groups in QUOTED.findall(text)]
        numbers = [token.casefold() for token in found if sum(map(str.isdigit, token)) >= LONG_NUMBER]
        self.literals = (quoted, [name.casefold() for name in names], numbers)

    @cached_property
    def stems(self) -> dict[str, int]:
        """What its words are found by in English, without stop words."""
        return _stems_of(self.words)


_text = lru_cache(maxsize=TEXTS)(_Text)


def _read(text: str) -> dict[str, int]:
    return words_of(times_of(tokens(text)).items())


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
