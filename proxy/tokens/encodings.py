"""Encodings: how many tokens a text is, exactly and offline; no other module imports tiktoken or tokenizers.

It must not open a connection: tiktoken's own loader would.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import tiktoken
from xxhash import xxh3_128_digest

from proxy.model.bounded import Bounded
from proxy.tokens.ranks import ranks_of, source_of

FILE = "file:"  # how the names of users' own begin
PIECE = 1 << 15  # characters encoded at once: 2 ms, and far from the 1,000,000 blanks that make tiktoken panic
LINE = 256  # characters of a text that is remembered as it is; of a longer one a digest is
LINES, TEXTS = 1 << 14, 1 << 13  # of either so many: 7 MB at most
SEED = int.from_bytes(os.urandom(8))  # of this process: nobody outside can make two texts share a digest
REACH = 16  # characters by which a cut is tried to be longer: few tokens are longer
NEAR = 1 << 11  # characters to the next safe place beyond which that is not tried: words are shorter, and time is short

# Where both patterns always split, whatever stands further left or right; so the parts' counts add up to the whole's:
# before a blank that follows anything but white space (only white space or the start of a match may take it), after a
# newline before anything but white space and "/", and between a letter or digit and what neither word nor number takes
# in. Letters are named one by one, because two libraries need not agree on what a letter is.
LETTER = "A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
SAFE = re.compile(
    rf"(?<=\S)(?= )|(?<=\n)(?=[^\s/])|(?<=[{LETTER}0-9])(?=[\s,.;:!?\"(){{}}\[\]<>=\uff0c\u3002\u3001])"
    rf"|(?<=[{LETTER}])(?=[0-9])|(?<=[0-9])(?=[{LETTER}])"
)


class Encoding:
    """One vocabulary. Special-token text is ordinary text; a lone surrogate counts as U+FFFD. Safe in many threads.

    What was counted lately is remembered: lines, which recur, and longer texts, which are counted alone, then in their
    message."""

    def __init__(self, name: str, encode: Callable[[str], list[int]], decode: Callable[[list[int]], bytes]) -> None:
        self.name = name
        self._encode = encode
        self._decode = decode
        self._line = lru_cache(maxsize=LINES)(self._counted)
        self._lately: Bounded[bytes, int] = Bounded(TEXTS)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if len(text) <= LINE:
            return self._line(text)
        key = xxh3_128_digest(text.encode("utf-8", "surrogatepass"), SEED)
        found = self._lately.get(key)
        if found is None:
            found = self._lately.put(key, self._counted(text))
        return found

    def _counted(self, text: str) -> int:
        """Between pieces of `PIECE` characters other threads have their turn."""
        if len(text) <= PIECE:
            return len(self._encode(text))
        return sum(len(self._encode(text[start:end])) for start, end in pieces(text))

    def cut(self, text: str, tokens: int, tail: bool = False) -> str:
        """The longest head (or tail) of a text that costs at most so many tokens, to the character."""
        wanted = tokens
        while wanted > 0:
            kept = self._tail(text, wanted) if tail else self._head(text, wanted)
            over = self.count(kept) - tokens
            if over <= 0:
                return kept
            wanted -= over
        return ""

    def _head(self, text: str, tokens: int) -> str:
        for start, end in pieces(text):
            ranks = self._encode(text[start:end])
            if len(ranks) > tokens:
                middle = start + self._characters(ranks[:tokens])
                whole = last_safe(text, start, middle)
                room = tokens - self.count(text[start:whole])
                return text[: self._furthest(range(middle + 1, end), whole, text, room) or middle]
            tokens -= len(ranks)
        return text

    def _tail(self, text: str, tokens: int) -> str:
        for start, end in reversed(list(pieces(text))):
            ranks = self._encode(text[start:end])
            if len(ranks) > tokens:
                middle = end - self._characters(ranks[len(ranks) - tokens :])
                whole = first_safe(text, middle, end)
                room = tokens - self.count(text[whole:end])
                return text[self._furthest(range(middle - 1, start, -1), whole, text, room) or middle :]
            tokens -= len(ranks)
        return text

    def _characters(self, ranks: list[int]) -> int:
        """How many whole characters these tokens spell; one that is split at either end does not count."""
        return len(self._decode(ranks).decode("utf-8", "ignore"))

    def _furthest(self, places: range, whole: int, text: str, room: int) -> int:
        """The furthest of the nearest places to which a text from a safe place costs no more; 0 where none is."""
        best = 0
        for place in places[:REACH]:
            between = text[min(place, whole) : max(place, whole)]
            if len(between) > NEAR:
                break
            if len(self._encode(between)) <= room:
                best = place
        return best


def pieces(text: str, size: int = PIECE) -> Iterator[tuple[int, int]]:
    """Where to part a long text: bounds of runs of at most so many characters, in order.

    The counts of the parts add up to the whole's, but for a run that has no safe place at all, such as 40,000 blanks.
    """
    start = 0
    while len(text) - start > size:
        end = last_safe(text, start, start + size)
        if end == start:
            end = start + size
        yield start, end
        start = end
    yield start, len(text)


def last_safe(text: str, start: int, end: int) -> int:
    """The last place in a run where both patterns always split; its start where there is none."""
    reach = 128
    while True:
        low = max(start, end - reach)
        place = start
        for match in SAFE.finditer(text, low, min(end + 1, len(text))):
            if start < match.start() <= end:
                place = match.start()
        if place > start or low == start:
            return place
        reach *= 16


def first_safe(text: str, start: int, end: int) -> int:
    """The first place in a run, after its start, where both patterns always split; its end where there is none."""
    match = SAFE.search(text, start + 1, min(end + 1, len(text)))
    return match.start() if match is not None and match.start() <= end else end


_lock = threading.Lock()
_loaded: dict[str, Encoding] = {}


def loaded(name: str) -> bool:
    """Whether that encoding can be had without waiting."""
    return name in _loaded


def encoding(name: str) -> Encoding:
    """The encoding of that name, loaded at its first use. Raises `EncodingUnavailable`."""
    found = _loaded.get(name)
    if found is None:
        with _lock:
            found = _loaded.get(name) or _load(name)
            _loaded[name] = found
    return found


def own(path: str) -> str:
    """The name of the encoding that a user's own tokenizer.json is."""
    return FILE + path


def _load(name: str) -> Encoding:
    if name.startswith(FILE):
        return _load_file(name.removeprefix(FILE))
    source = source_of(name)
    ranks = ranks_of(source)
    built = tiktoken.Encoding(name, pat_str=source.pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # tiktoken has its own copy by now; it keeps this one, 25 MB, only to be pickled
    return Encoding(name, built.encode_ordinary, built.decode_bytes)


def _load_file(path: str) -> Encoding:
    """A tokenizer.json; its name tells its content, so that two files are never taken for one. Raises ValueError, which
    says what is wrong with it."""
    try:
        from tokenizers import Tokenizer  # here alone: nobody else needs it
    except ImportError:
        raise ValueError("needs the package tokenizers, which is not installed") from None
    try:
        raw = Path(path).read_bytes()
        made = Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{path} is no tokenizer.json that can be read: {error}") from None
    made.no_truncation()
    made.no_padding()
    made.encode_special_tokens = True  # in a text they are ordinary text

    def encode(text: str) -> list[int]:
        try:
            return made.encode(text, add_special_tokens=False).ids
        except TypeError:  # a lone surrogate
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return made.encode(whole, add_special_tokens=False).ids

    def decode(ranks: list[int]) -> bytes:
        return made.decode(ranks, skip_special_tokens=False).encode()

    return Encoding(FILE + sha256(raw).hexdigest(), encode, decode)
