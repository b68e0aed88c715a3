"""The query by which a tool result is ranked: its words, its literals, and whether it is English. It scores nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from proxy.fit.relevance.text import severity
from proxy.fit.relevance.text.splitting import count_tokens, tokens
from proxy.fit.relevance.text.words import KNOWN_ENGLISH, SHORT_TEXT, STOP, is_english, stem, summarised, words_of
from proxy.model.bounded import SMALL, Bounded

MAX_TEXTS, MAX_TEXTS_BYTES = 128, 8 << 20  # cached analyses of texts
BYTES_PER_CHARACTER = 8  # the most memory that an analysis takes for a character of its text

# Literals are matched exactly: text in quotation marks, identifiers and long numbers.
# A shorter text counts if it is a number: "7".
TEXT = r"([^{0}\n]{{3,80}}|\d{{1,2}})"
QUOTED = re.compile(
    "|".join(
        f"{start}{TEXT.format(end)}{end}{after}"
        for start, end, after in (
            ('"', '"', ""),
            ("“", "”", ""),
            ("`", "`", ""),
            (r"(?<!\w)'", "'", r"(?!\w)"),
            ("«", "»", ""),
        )
    )
)
LONG_NUMBER = 4  # digits from which a number identifies something; a shorter one is a limit, a page or an amount


@dataclass(frozen=True)
class ResultQuery:
    """`prose`: what the user and the model wrote. `arguments`: the values that the tool was called with. `texts`: the
    parts of the prose, if known, so that a user's message is analysed once for all results that follow it.
    `definitions`: the names of those that must stay whole; `ids`: what lines and rows contain that must stay."""

    prose: str
    arguments: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)
    definitions: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @cached_property
    def words(self) -> dict[str, int]:
        """Words and weights: occurrences in the prose; 1 for a word of the arguments, which may be a whole file."""
        return _merged([text.words for text in self._texts], self._argument_words)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The literals of the prose, in lower case: texts to be matched exactly, ignoring case."""
        kinds = zip(*(text.literals for text in self._texts), strict=True)
        said = (literal for kind in kinds for found in kind for literal in found)
        return tuple(dict.fromkeys((*map(str.casefold, self.ids), *said)))

    @property
    def about_errors(self) -> bool:
        """Whether the query asks for errors."""
        return any(text.about_errors for text in self._texts)

    def keys(self, sample: str = "") -> tuple[Mapping[str, int], bool]:
        """Terms and weights, and whether the query is English: stems without stop words if it is, else words. If the
        prose is too short to tell, a `sample` of the searched text decides."""
        length = sum(text.length for text in self._texts)
        english = sum(text.english for text in self._texts) >= KNOWN_ENGLISH * max(1, length)
        if english or (length < SHORT_TEXT and is_english(_words(sample))):
            return self._stems, True
        return self.words, False

    @cached_property
    def _stems(self) -> dict[str, int]:
        return _merged([text.stems for text in self._texts], _stems_of(self._argument_words))

    @cached_property
    def _argument_words(self) -> dict[str, int]:
        """The distinct words of the arguments."""
        return dict.fromkeys(_words(self.arguments), 1)

    @cached_property
    def _texts(self) -> list[_Analysis]:
        return [_analysis(text) for text in self.texts or (self.prose,)]


def _merged(counts: Sequence[Mapping[str, int]], more: Mapping[str, int]) -> dict[str, int]:
    """The sums of several counts."""
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


class _Analysis:
    """The analysis of one text: words, literals by kind (quoted, identifiers, long numbers) and language."""

    def __init__(self, text: str) -> None:
        times = count_tokens(tokens(text))
        found, self.length, self.english, names = summarised(times)
        self.words = words_of(times.items())
        quoted = ["".join(groups).casefold() for groups in QUOTED.findall(text)]
        numbers = [token.casefold() for token in found if sum(map(str.isdigit, token)) >= LONG_NUMBER]
        self.literals = (quoted, [name.casefold() for name in names], numbers)
        self.about_errors = bool(severity.ASKS.search(text))

    @cached_property
    def stems(self) -> dict[str, int]:
        """The stems of its words and their occurrences, without stop words: the terms if the text is English."""
        return _stems_of(self.words)


ANALYSED: Bounded[str, _Analysis] = Bounded(MAX_TEXTS, MAX_TEXTS_BYTES)


def _analysis(text: str) -> _Analysis:
    found = ANALYSED.get(text)
    return ANALYSED.put(text, _Analysis(text), BYTES_PER_CHARACTER * len(text) + SMALL) if found is None else found


def _words(text: str) -> dict[str, int]:
    return words_of(count_tokens(tokens(text)).items())
