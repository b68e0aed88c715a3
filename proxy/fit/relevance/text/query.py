"""What a tool result was asked for: its words, what it quotes, and whether it is English."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from proxy.fit.relevance.text.heuristics import ABOUT_TROUBLE
from proxy.fit.relevance.text.splitting import times_of, tokens
from proxy.fit.relevance.text.words import FEW, KNOWN_ENGLISH, STOP, is_english, stem, summed, words_of
from proxy.model.bounded import SMALL, Bounded

TEXTS, TEXTS_BYTES = 128, 8 << 20  # remembered as they were read
EACH = 8  # bytes that a reading takes for a character of its text, at most

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

    @property
    def about_trouble(self) -> bool:
        """Whether it asks for what went wrong."""
        return any(text.about_trouble for text in self._each)

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
        self.about_trouble = bool(ABOUT_TROUBLE.search(text))

    @cached_property
    def stems(self) -> dict[str, int]:
        """What its words are found by in English, without stop words."""
        return _stems_of(self.words)


READ: Bounded[str, _Text] = Bounded(TEXTS, TEXTS_BYTES)


def _text(text: str) -> _Text:
    found = READ.get(text)
    return READ.put(text, _Text(text), EACH * len(text) + SMALL) if found is None else found


def _read(text: str) -> dict[str, int]:
    return words_of(times_of(tokens(text)).items())
