"""What is known of a message or a text once it was read: its words, its identifiers, who said it and when."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress

from proxy.fit.relevance.text.dates import Day, first_day
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.splitting import count_tokens, tokens
from proxy.fit.relevance.text.words import KNOWN_ENGLISH, STOP, STOP_TOKENS, summarised, unescaped, words_of
from proxy.model import oversized_json
from proxy.model.bounded import Bounded
from proxy.model.conversation import TEXTS, Message, Part, PartKind
from proxy.model.structs import replace

Key = bytes | str | int
OWN_KEY = 1024  # up to this length what is read is its own key; of what is longer a digest is, so that no image is held
MOST, LIMIT = 50_000, 24 << 20  # readings, and their bytes: about 12 conversations of 75k tokens
ARGUMENTS = 2000  # characters of a call's arguments that are read (measured: all show a thousandth more)
HEAD = 120  # characters at the beginning of a message in which its speaker and its date are looked for

# "[2023-05-08] Caroline: Hey", "(10:02 am on 8 May, 2023) Grad G: yes", "Marketing: no"
HEADING = re.compile(
    r"\s*+(?:[\[(](?P<when>[^\])\n]{1,60})[\])])?\s*+(?:(?P<who>[^\W\d_][\w .'’-]{0,39}?) ?(?::(?=\s|$)|：))?"
)


@dataclass(frozen=True)
class Reading:
    """`tokens` and how often each stands there (`times`), in order of first appearance, without stop words where the
    text is known to be English; `length` is how many words it has in all, `english` how many of them only English uses
    so often. `names` are its identifiers."""

    key: Key
    tokens: tuple[str, ...] = field(compare=False)
    times: tuple[int, ...] = field(compare=False)
    length: int = field(compare=False)
    english: int = field(compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)
    speaker: str = field(default="", compare=False)
    day: Day | None = field(default=None, compare=False)

    @property
    def is_english(self) -> bool:
        """Whether it is known to be English."""
        return self.english >= KNOWN_ENGLISH * max(1, self.length)

    @property
    def words(self) -> tuple[str, ...]:
        """What the tokens are found by, in the same order, without stop words where it is English."""
        return self._said[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """How often each word stands there."""
        return self._said[1]

    @cached_property
    def _said(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        words = words_of(zip(self.tokens, self.times, strict=True))
        if self.is_english:
            for word in STOP & words.keys():
                del words[word]
        return tuple(words), tuple(words.values())


READ: Bounded[Key, Reading] = Bounded(MOST, LIMIT)


def read_text(text: str) -> Reading:
    """The reading of a bare text."""
    key = _key(text, "text")
    found = READ.get(key)
    return found if found is not None else _kept(reading(key, text))


def read_message(message: Message, head: int | None = None) -> Reading:
    """The reading of a message: its text (with `head`, only so many characters of it), and the names and arguments of
    its calls."""
    key = _key(message.raw) if head is None else digest(str(head), message.raw)
    found = READ.get(key)
    return found if found is not None else _kept(_reading_of(key, message, head))


def _key(read: bytes | str, kind: str = "") -> Key:
    return read if len(read) <= OWN_KEY else digest(kind, read)


def _kept(made: Reading) -> Reading:
    length = 0 if isinstance(made.key, int) else len(made.key)
    return READ.put(made.key, made, 32 * len(made.tokens) + 16 * len(made.names) + 2 * length + 512)


def _reading_of(key: Key, message: Message, head: int | None) -> Reading:
    if len(message.raw) > oversized_json.OUTSIZE:
        message = replace(
            message, raw=oversized_json.without(message.raw, oversized_json.cuts(message.raw, oversized_json.OUTSIZE))
        )
    parts = message.parts()
    text = "".join([part.text for part in parts if part.kind in TEXTS or part.kind is PartKind.OPAQUE])[:head]
    plain = unescaped(text) if text[:1] in ("{", "[") else text
    calls = "\n".join(called(part) for part in parts if part.kind is PartKind.CALL and part.editable)
    return reading(key, f"{plain}\n{calls}" if calls else plain, message.name)


def called(call: Part) -> str:
    """The name and the arguments of a call as text."""
    return f"{call.name} {unescaped(call.text[:ARGUMENTS])}"


def reading(key: Key, text: str, name: str = "") -> Reading:
    """Reads a text; who wrote it may be known from elsewhere."""
    times = count_tokens(tokens(text))
    found, length, english, names = summarised(times)
    counts = tuple(times.values())
    if english >= KNOWN_ENGLISH * max(1, length):  # no query in English asks for these, and they are half the words
        telling = [token not in STOP_TOKENS for token in found]
        found, counts = tuple(compress(found, telling)), tuple(compress(counts, telling))
    head = HEADING.match(text[:HEAD])
    who, when = (head["who"], head["when"]) if head else (None, None)
    return Reading(
        key=key,
        tokens=found,
        times=counts,
        length=length,
        english=english,
        names=names,
        speaker=(name or who or "").casefold(),
        day=first_day(when) if when else None,
    )
