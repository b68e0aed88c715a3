"""Analyses a message or a text for ranking: its tokens, identifiers, speaker and date. Results are cached."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from msgspec.structs import replace

from proxy.fit.relevance.text.dates import PartialDate, first_date
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.splitting import count_tokens, tokens
from proxy.fit.relevance.text.words import KNOWN_ENGLISH, STOP, STOP_TOKENS, summarised, unescaped, words_of
from proxy.model import oversized_json
from proxy.model.bounded import Bounded
from proxy.model.conversation import TEXTS, Message, Part, PartKind

Key = bytes | str | int
OWN_KEY = 1024  # a text up to this length is its own cache key; a longer one is replaced by a digest, to save memory
MAX_READINGS, MAX_BYTES = 50_000, 24 << 20  # cached: about 12 conversations of 75k tokens
ARGUMENTS = 2000  # characters of a call's arguments that are used (measured: all gain a thousandth)
HEAD = 120  # characters at the beginning of a message that are searched for its speaker and date

# "[2023-05-08] Caroline: Hey", "(10:02 am on 8 May, 2023) Grad G: yes", "Marketing: no", "The Chair (Ms. A. Moss): yes"
HEADING = re.compile(
    r"\s*+(?:[\[(](?P<when>[^\])\n]{1,60})[\])])?\s*+"
    r"(?:(?P<who>[^\W\d_][\w .'’-]{0,39}?(?: \([^()\n:]{1,60}\))?) ?(?::(?=\s|$)|：))?"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The analysis of a text. `tokens` and their occurrences (`times`) are in order of first appearance, without stop
    words if the text is English. `length` is the number of all words, `english` the number of English function words
    among them. `names` are the identifiers."""

    key: Key
    tokens: tuple[str, ...] = field(compare=False)
    times: tuple[int, ...] = field(compare=False)
    length: int = field(compare=False)
    english: int = field(compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)
    speaker: str = field(default="", compare=False)
    day: PartialDate | None = field(default=None, compare=False)

    @property
    def is_english(self) -> bool:
        """Whether the text is certainly English."""
        return self.english >= KNOWN_ENGLISH * max(1, self.length)

    @property
    def words(self) -> dict[str, int]:
        """The words by which the tokens are matched and their occurrences, in the same order, without stop words if the
        text is English. Computed at each call: an index needs them once, and of a text of pairs of characters they take
        more memory than the text."""
        words = words_of(zip(self.tokens, self.times, strict=True))
        if self.is_english:
            for word in STOP & words.keys():
                del words[word]
        return words


READ: Bounded[Key, Reading] = Bounded(MAX_READINGS, MAX_BYTES)


def read_text(text: str) -> Reading:
    """The reading of a text."""
    key = _key(text, "bare text")
    found = READ.get(key)
    return found if found is not None else _cached(reading(key, text))


def read_message(message: Message, head: int | None = None) -> Reading:
    """The reading of a message: of its text (at most `head` characters, if given) and of the names and arguments of its
    calls."""
    key: Key = message.raw
    if head is not None:
        key = digest(str(head), message.raw)
    elif len(message.raw) > OWN_KEY:
        key = digest("", message.raw)
    found = READ.get(key)
    return found if found is not None else _cached(_reading_of(key, message, head))


def _key(text: str, kind: str) -> Key:
    return text if len(text) <= OWN_KEY else digest(kind, text)


def _cached(made: Reading) -> Reading:
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
    calls = "\n".join(call_text(part) for part in parts if part.kind is PartKind.CALL and part.editable)
    return reading(key, f"{plain}\n{calls}" if calls else plain, message.name)


def speaker_of(text: str, name: str = "") -> str:
    """The speaker of a message in lower case: the name that the API gives, else that before a colon; may be empty."""
    return (name or _heading(text)[1]).casefold()


def _heading(text: str) -> tuple[str, str]:
    """The date and the speaker before a text, as written; each may be empty."""
    head = HEADING.match(text[:HEAD])
    return (head["when"] or "", head["who"] or "") if head else ("", "")


def speakers_of(names: Sequence[str]) -> set[str]:
    """The speakers: names in front of several turns, if most turns have one (otherwise `Note:` would be a speaker)."""
    counts = Counter(filter(None, names))
    known = {name for name, times in counts.items() if times > 1}
    return known if 2 * sum(counts[name] for name in known) > len(names) else set()


def call_text(call: Part) -> str:
    """The name and the beginning of the arguments of a call."""
    return f"{call.name} {unescaped(call.text[:ARGUMENTS])}"


def reading(key: Key, text: str, name: str = "") -> Reading:
    """Analyses a text. `name` is the speaker if the API gives one; otherwise the text's heading is used."""
    times = count_tokens(tokens(text))
    found, length, english, names = summarised(times)
    counts = tuple(times.values())
    if english >= KNOWN_ENGLISH * max(1, length):  # English queries have no stop words, and these are half the words
        significant = [token not in STOP_TOKENS for token in found]
        found, counts = tuple(compress(found, significant)), tuple(compress(counts, significant))
    when, who = _heading(text)
    return Reading(
        key=key,
        tokens=found,
        times=counts,
        length=length,
        english=english,
        names=names,
        speaker=(name or who).casefold(),
        day=first_date(when) if when else None,
    )
