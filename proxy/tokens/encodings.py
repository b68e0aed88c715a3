"""Encodings: exact token counts of texts, offline. No other module imports tiktoken or tokenizers.

It never opens a connection, unlike tiktoken's own loader.
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

FILE = "file:"  # prefix of the names of users' own tokenizers
PIECE = 1 << 15  # characters encoded at once: 2 ms, and far below the 1,000,000 spaces that make tiktoken panic
MAX_KEY_LENGTH = 256  # characters; a longer text is cached under its digest
CACHED_SHORT, CACHED_LONG = 1 << 14, 1 << 13  # entries; 7 MB together
SEED = int.from_bytes(os.urandom(8))  # per process, so that no client can construct two texts with the same digest
MAX_EXTENSION = 16  # characters by which a cut may be extended: few tokens are longer
MAX_DISTANCE = 1 << 11  # characters to the next split point beyond which a cut is not extended, to bound the time

# Split points: positions where the patterns of both encodings always split, whatever the context, so that the counts of
# the parts add up to the count of the whole. They are: before a space that follows a non-space; after a newline, before
# anything but white space and "/"; between a letter or digit and a character that no word or number contains. Letters
# are listed, because two regular expression libraries may differ in what they regard as a letter.
LETTER = "A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
SPLIT_POINT = re.compile(
    rf"(?<=\S)(?= )|(?<=\n)(?=[^\s/])|(?<=[{LETTER}0-9])(?=[\s,.;:!?\"(){{}}\[\]<>=\uff0c\u3002\u3001])"
    rf"|(?<=[{LETTER}])(?=[0-9])|(?<=[0-9])(?=[{LETTER}])"
)


class Encoding:
    """One vocabulary. Special-token text is ordinary text; a lone surrogate counts as U+FFFD. Thread-safe.

    Recent counts are cached: of short lines, which recur, and of longer texts, which are counted alone and then in
    their message.
    """

    def __init__(self, name: str, encode: Callable[[str], list[int]], decode: Callable[[list[int]], bytes]) -> None:
        self.name = name
        self._encode = encode
        self._decode = decode
        self._count_short = lru_cache(maxsize=CACHED_SHORT)(self._count)
        self._long: Bounded[bytes, int] = Bounded(CACHED_LONG)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if len(text) <= MAX_KEY_LENGTH:
            return self._count_short(text)
        key = xxh3_128_digest(text.encode("utf-8", "surrogatepass"), SEED)
        found = self._long.get(key)
        if found is None:
            found = self._long.put(key, self._count(text))
        return found

    def _count(self, text: str) -> int:
        """Counts in pieces; tiktoken releases the GIL for each."""
        if len(text) <= PIECE:
            return len(self._encode(text))
        return sum(len(self._encode(text[start:end])) for start, end in pieces(text))

    def vocabulary(self, ranks: int) -> Iterator[str]:
        """The texts of the first tokens, without those that are no whole characters."""
        for rank in range(ranks):
            try:
                yield self._decode([rank]).decode()
            except (ValueError, LookupError, OverflowError):
                continue

    def cut(self, text: str, tokens: int, tail: bool = False) -> str:
        """The longest head (or tail) of a text of at most `tokens` tokens, to the character."""
        target = tokens
        while target > 0:
            kept = self._tail(text, target) if tail else self._head(text, target)
            over = self.count(kept) - tokens
            if over <= 0:
                return kept
            target -= over
        return ""

    def _head(self, text: str, tokens: int) -> str:
        for start, end in pieces(text):
            ranks = self._encode(text[start:end])
            if len(ranks) > tokens:
                middle = start + self._characters(ranks[:tokens])
                whole = last_split(text, start, middle)
                room = tokens - self.count(text[start:whole])
                return text[: self._furthest(range(middle + 1, end), whole, text, room) or middle]
            tokens -= len(ranks)
        return text

    def _tail(self, text: str, tokens: int) -> str:
        for start, end in reversed(list(pieces(text))):
            ranks = self._encode(text[start:end])
            if len(ranks) > tokens:
                middle = end - self._characters(ranks[len(ranks) - tokens :])
                whole = first_split(text, middle, end)
                room = tokens - self.count(text[whole:end])
                return text[self._furthest(range(middle - 1, start, -1), whole, text, room) or middle :]
            tokens -= len(ranks)
        return text

    def _characters(self, ranks: list[int]) -> int:
        """How many whole characters these tokens decode to; a character split at either end does not count."""
        return len(self._decode(ranks).decode("utf-8", "ignore"))

    def _furthest(self, places: range, whole: int, text: str, room: int) -> int:
        """The furthest of these positions so that the text between it and `whole`, a split point, costs at most `room`
        tokens; 0 if there is none."""
        best = 0
        for place in places[:MAX_EXTENSION]:
            between = text[min(place, whole) : max(place, whole)]
            if len(between) > MAX_DISTANCE:
                break
            if len(self._encode(between)) <= room:
                best = place
        return best


def pieces(text: str, size: int = PIECE) -> Iterator[tuple[int, int]]:
    """Splits a long text: the bounds of consecutive pieces of at most `size` characters.

    The counts of the pieces add up to the count of the text, except where a piece has no split point, such as 40,000
    spaces.
    """
    start = 0
    while len(text) - start > size:
        end = last_split(text, start, start + size)
        if end == start:
            end = start + size
        yield start, end
        start = end
    yield start, len(text)


def last_split(text: str, start: int, end: int) -> int:
    """The last split point after `start`, up to `end`; `start` if there is none."""
    reach = 128
    while True:
        low = max(start, end - reach)
        place = start
        for match in SPLIT_POINT.finditer(text, low, min(end + 1, len(text))):
            if start < match.start() <= end:
                place = match.start()
        if place > start or low == start:
            return place
        reach *= 16


def first_split(text: str, start: int, end: int) -> int:
    """The first split point after `start`, up to `end`; `end` if there is none."""
    match = SPLIT_POINT.search(text, start + 1, min(end + 1, len(text)))
    return match.start() if match is not None and match.start() <= end else end


_lock = threading.Lock()
_loaded: dict[str, Encoding] = {}


def loaded(name: str) -> bool:
    """Whether an encoding is loaded already."""
    return name in _loaded


def encoding(name: str) -> Encoding:
    """The encoding with this name, loaded at first use.

    Raises `EncodingUnavailable`, or `ValueError` for an invalid tokenizer.json.
    """
    found = _loaded.get(name)
    if found is None:
        with _lock:
            found = _loaded.get(name) or _load(name)
            _loaded[name] = found
    return found


def own(path: str) -> str:
    """The encoding's name of a user's tokenizer.json."""
    return FILE + path


def _load(name: str) -> Encoding:
    if name.startswith(FILE):
        return _load_file(name.removeprefix(FILE))
    source = source_of(name)
    ranks = ranks_of(source)
    built = tiktoken.Encoding(name, pat_str=source.pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # frees 25 MB: tiktoken keeps this copy only for pickling
    return Encoding(name, built.encode_ordinary, built.decode_bytes)


def _load_file(path: str) -> Encoding:
    """A user's tokenizer.json. Its name is a digest of the file, so that two files never share counts. Raises
    `ValueError`."""
    try:
        from tokenizers import Tokenizer  # optional, and needed only here
    except ImportError:
        raise ValueError("needs the package tokenizers, which is not installed") from None
    try:
        raw = Path(path).read_bytes()
        made = Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises nothing more specific
        raise ValueError(f"{path} is not a valid tokenizer.json: {error}") from None
    made.no_truncation()
    made.no_padding()
    made.encode_special_tokens = True  # in a text, special tokens are ordinary text

    def encode(text: str) -> list[int]:
        try:
            return made.encode(text, add_special_tokens=False).ids
        except TypeError:  # a lone surrogate
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return made.encode(whole, add_special_tokens=False).ids

    def decode(ranks: list[int]) -> bytes:
        return made.decode(ranks, skip_special_tokens=False).encode()

    return Encoding(FILE + sha256(raw).hexdigest(), encode, decode)
