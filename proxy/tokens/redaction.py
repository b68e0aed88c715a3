"""Redacts the body of a request: every word is replaced by others of as many tokens, and the structure stays.

The same word of a caller becomes the same words everywhere, under one key: what repeats still repeats, so prefixes and
pairs of calls and results survive. Of another caller it becomes others: who sends words learns nothing of theirs. It is
no encryption: lengths, punctuation, and which texts are alike can still be seen. Many words have the same replacement,
so that none can be told back from it. It is a part of `tokens` because it needs encodings and the keys of every API:
what records knows neither.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.model.bounded import SMALL, Bounded
from proxy.model.image_size import BASE64_PREFIX, size_of
from proxy.tokens.encodings import Encoding
from proxy.tokens.redaction_vocabulary import (
    CHOICES,
    DATA,
    DESCRIPTIONS,
    FIELDS,
    ID_PREFIXES,
    IDS,
    MEDIA_TYPES,
    NUMBERS,
    VALUES,
)

MAX_CACHED = 1 << 16  # replacements of words, about 10 MB
MAX_TEXTS, MAX_TEXT_BYTES = 1 << 14, 16 << 20  # of whole texts: the turns of a conversation repeat them
MAX_UNIT = 64  # characters; the replacement of a longer run is not cached
WORDS = 1024  # replacements of one token; few, so that each stands for many words
FEWEST = 16  # with fewer, a replacement would tell its word
COMMON = "time year people way day man thing woman life child world school state family student group".split()
RANKS = 40_000  # of the vocabulary that are looked at: the first ones are the commonest
MAX_CORRECTIONS = 3
MIN_DATA = 40  # characters: shorter data is a text
MODEL = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)  # a name, as any provider has it; all else is a text
DATED = re.compile(r"_20\d{6}$")  # Anthropic dates the types of its tools

PUNCTUATION = r"!-/:-@\[-`{-~"
# All that may be a letter, an emoji or hidden. Dashes, quotes, arrows, lines of boxes and ticks are signs, which stay.
LETTERS = (
    r"[A-Za-z\u0080-\u00aa\u00ac-\u00b6\u00b8-\u00ba\u00bc-\u200f\u2028-\u218f\u2200-\u24ff\u2600-\u2712"
    r"\u2719-\U0010ffff]"
)
# What is replaced. Encodings take one sign before a word as a part of it, if no other sign is before that.
UNIT = re.compile(
    r"(?P<kept>\\\\|(?<=[:,\[]) ?(?:true|false|null)(?=\s*[,}\]]))"
    r"|(?P<unicode>\\u[0-9a-fA-F]{4})"
    rf"|(?P<escape>\\[nrtbf])(?P<escaped>{LETTERS}*)"
    rf"|(?P<before>(?<![ {PUNCTUATION}])[{PUNCTUATION}]|[ \t\v\f])?(?P<word>{LETTERS}+"
    rf"(?:'(?i:s|t|re|ve|m|ll|d)(?!{LETTERS}))?)"
    r"|(?P<number>[0-9]+)"
)
SPACE = re.compile(r"\s")
VOCABULARY_WORD = re.compile(r"[^\w\r\n]?[a-z]{3,10}|_[a-z]{3,10}", re.ASCII)


class Memory:
    """What the redactors of one encoding remember: words of one token by the sign before them, and replacements."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, list[str]] = {}
        self.pools: dict[str, list[str]] = {}
        self.texts: Bounded[tuple[str, bytes], str] = Bounded(MAX_TEXTS, MAX_TEXT_BYTES)
        self.units: Bounded[tuple[str, str, str, str], tuple[str, ...]] = Bounded(MAX_CACHED)


class Redactor:
    """Redacts bodies of one caller whose prompts are counted with one encoding. `key`: up to 64 bytes. `name`: what a
    model is called. Not thread-safe."""

    def __init__(
        self,
        key: bytes,
        encoding: Encoding,
        name: Callable[[str, str], str] | None = None,
        caller: str = "",
        memory: Memory | None = None,
    ) -> None:
        self._key, self._encoding, self._caller = key, encoding, caller
        self._name = name or (lambda model, caller: model)
        self._hash = blake2b(caller.encode() + b"\0" if caller else b"", key=key, digest_size=8)
        self._memory = memory or Memory()
        self._vocabulary, self._pools = self._memory.vocabulary, self._memory.pools
        self._texts, self._units = self._memory.texts, self._memory.units

    def of(self, caller: str) -> Redactor:
        """The same for bodies of another caller: its words are others. They share what is remembered."""
        return Redactor(self._key, self._encoding, self._name, caller, self._memory)

    def body(self, body: bytes) -> bytes:
        """A body without content. Raises ValueError if it is not JSON."""
        try:
            return msgspec.json.encode(self._value(msgspec.json.decode(body), "", top=True))
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise ValueError("the body cannot be read") from error

    def text(self, text: str) -> str:
        """A text of as many tokens in other words."""
        if len(text) <= MAX_UNIT:
            return self._redacted(text)
        key = (self._caller, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        made = self._texts.get(key)
        return self._texts.put(key, self._redacted(text), len(text) + SMALL) if made is None else made

    def _redacted(self, text: str) -> str:
        pieces = self._pieces(text)
        made = "".join(map("".join, pieces))
        for _ in range(MAX_CORRECTIONS):
            missing = self._encoding.count(text) - self._encoding.count(made)
            if not missing or not self._correct(pieces, missing):
                break
            made = "".join(map("".join, pieces))
        return made

    def _value(self, value: Any, field: str, top: bool = False) -> Any:
        if isinstance(value, str):
            return self._string(value, field)
        if isinstance(value, dict):
            return self._object(value, top)
        if isinstance(value, list):
            return [self._value(one, field) for one in value]
        if isinstance(value, bool) or value is None or field in NUMBERS:
            return value
        return self._number(value)

    def _object(self, fields: Mapping[str, Any], top: bool) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field, value in fields.items():
            name = self._field(field)
            while name in made:  # two names with the same replacement
                name += "_"
            is_model = top and field == "model" and isinstance(value, str) and MODEL.fullmatch(value)
            made[name] = self._name(value, self._caller) if is_model else self._value(value, field)
        return made

    def _field(self, name: str) -> str:
        return name if name in FIELDS else self.text(name)

    def _string(self, text: str, field: str) -> str:
        if field in CHOICES and DATED.sub("", text) in VALUES:
            return text
        if field in IDS:
            return self._id(text)
        if field == "required":  # names of fields
            return self._field(text)
        if field == "$ref" and text.startswith("#"):  # a path of them
            return "/".join(["#", *map(self._field, text.split("/")[1:])])
        if text.startswith("data:") or (field in DATA and len(text) >= MIN_DATA):
            return self._data(text)
        for scheme in ("https://", "http://"):
            if text.startswith(scheme):
                return scheme + self.text(text.removeprefix(scheme))
        if field in DESCRIPTIONS:
            return self.text(" " + text).removeprefix(" ")
        return self.text(text)

    def _id(self, text: str) -> str:
        """Another id, as long as this one, or longer if this is short."""
        prefix = next((prefix for prefix in ID_PREFIXES if text.startswith(prefix)), "")
        return prefix + self._filler(text, min(64, max(8, len(text) - len(prefix))))

    def _data(self, text: str) -> str:
        """Data of the same length; of an image, one of the same size."""
        head, mark, data = text.partition(BASE64_PREFIX)
        if not mark or not head.startswith("data:") or len(head) > 200:
            head = mark = ""
            data = text
        size = size_of(f"data:image/png{BASE64_PREFIX}{data}")
        start = "" if size is None else _png(*size)
        kind = head.removeprefix("data:") if head.removeprefix("data:") in MEDIA_TYPES else "application/octet-stream"
        return (f"data:{kind}{mark}" if mark else "") + start + self._filler(data, max(0, len(data) - len(start)))

    def _filler(self, text: str, length: int) -> str:
        digest = self._digest(text).hex()
        return (digest * (length // len(digest) + 1))[:length]

    def _number(self, number: float) -> Any:
        made = self._digits_in(repr(number))
        return int(made) if isinstance(number, int) else float(made)

    def _digits_in(self, text: str) -> str:
        return re.sub("[0-9]+", lambda found: self._digits(found[0]), text)

    def _digits(self, digits: str) -> str:
        """As many other digits. A zero at the start stays, and no other comes there: the text may be JSON."""
        made = "".join([str(byte % 10) for byte in self._stretched(digits)])
        made = ("0" if digits[0] == "0" else "123456789"[int(made[0]) % 9]) + made[1:]
        return made if made != digits or made == "0" else made[:-1] + str(1 + int(made[-1]) % 9)

    def _stretched(self, text: str) -> bytes:
        digest = self._digest(text)
        return (digest * (len(text) // len(digest) + 1))[: len(text)]

    def _digest(self, text: str) -> bytes:
        made = self._hash.copy()
        made.update(text.encode("utf-8", "surrogatepass"))
        return made.digest()

    def _pieces(self, text: str) -> list[tuple[str, ...]]:
        """The text in pieces: what stays, and in place of each word a tuple of words of one token each."""
        between = "_" if SPACE.search(text) is None else " "
        pieces: list[tuple[str, ...]] = []
        done = 0
        for found in UNIT.finditer(text):
            if found.start() > done:
                pieces.append((text[done : found.start()],))
            pieces.append(self._replaced(found, between))
            done = found.end()
        return [*pieces, (text[done:],)]

    def _replaced(self, found: re.Match[str], between: str) -> tuple[str, ...]:
        if found["word"] is not None:
            return self._unit(found["before"] or "", found["word"], between)
        if found["number"] is not None:
            return (self._digits(found["number"]),)
        if found["escape"] is not None:
            return self._escape(found["escape"], found["escaped"])
        return (found[0] if found["kept"] is not None else self._unicode(found["unicode"]),)

    def _unit(self, before: str, word: str, between: str) -> tuple[str, ...]:
        """Words of as many tokens, the first of them behind the sign `before`."""
        key = (self._caller, before, word, between)
        made = self._units.get(key) if len(word) <= MAX_UNIT else None
        if made is None:
            made = self._words(self._encoding.count(before + word), before, word, between)
            if len(word) <= MAX_UNIT:
                self._units.put(key, made)
        return made

    def _words(self, tokens: int, before: str, word: str, between: str) -> tuple[str, ...]:
        """Words of so many tokens in all, chosen by the hash of `word`."""
        digest = self._digest(word)
        behind = self._pool(before)
        if len(behind) >= FEWEST:
            made = [_chosen(behind, digest, 0, before + word)]
        else:  # the sign is a token of its own
            made = [before + _chosen(self._pool(""), digest, 0, word)]
            tokens -= 1
        rest = self._pool(between) if len(self._pool(between)) >= FEWEST else self._pool(" ")
        made += [_chosen(rest, digest, place, word) for place in range(1, tokens)]
        return tuple(made)

    def _escape(self, escape: str, word: str) -> tuple[str, ...]:
        """An escape of JSON in a text, and the word behind it: encodings take its letter as a part of the word."""
        if not word:
            return (escape,)
        tokens = self._encoding.count(escape + word) - self._encoding.count(escape)
        return (escape, *self._words(max(1, tokens), " ", word, " "))

    def _unicode(self, escape: str) -> str:
        """Another character; half of a pair of surrogates stays one."""
        digits = escape[2:].lower()
        made = "".join([_like(digit, byte) for digit, byte in zip(digits, self._digest(digits), strict=False)])
        if digits[0] == "d":
            return "\\u" + (digits[:2] if digits[1] >= "8" else "d0") + made[2:]
        return "\\u" + ("c" if made[0] == "d" else made[0]) + made[1:]

    def _correct(self, pieces: list[tuple[str, ...]], missing: int) -> bool:
        """Adds words to one of the pieces, or removes some; whether it could."""
        if missing > 0:
            place = next((place for place, piece in enumerate(pieces) if piece and piece[-1][-1:].isalpha()), None)
            if place is not None:
                pieces[place] = (*pieces[place], *[self._pool(" ")[0]] * missing)
            return place is not None
        spare = -missing
        for least in (1, 0):  # the rest of the words for one, then whole words behind a space
            for place, piece in enumerate(pieces):
                if least or (piece and piece[0][:1] == " " and piece[0][1:].isalpha()):
                    pieces[place] = piece[: max(least, len(piece) - spare)]
                    spare -= len(piece) - len(pieces[place])
        return spare < -missing

    def _pool(self, before: str) -> list[str]:
        """Words behind this sign that are one token together with it, whatever stands before and after them."""
        found = self._pools.get(before)
        if found is None:
            if not self._vocabulary:
                self._read_vocabulary()
            count = self._encoding.count
            found = [one for one in self._vocabulary.get(before, ()) if count(f"0{one}") == 2 == count(f"{one}.")]
            if not before:  # a word at the start of a text may stand behind a space where it is counted
                found = [one for one in found if count(f"0 {one}") == 2]
            if len(found) < FEWEST and before in ("", " "):  # the vocabulary of a tokenizer of the user's
                found = [before + word for word in COMMON]
            self._pools[before] = found = found[:WORDS]
        return found

    def _read_vocabulary(self) -> None:
        for text in self._encoding.vocabulary(RANKS):
            if VOCABULARY_WORD.fullmatch(text):
                before = "" if text[0].isalpha() else text[0]
                self._vocabulary.setdefault(before, []).append(text)


def _chosen(words: list[str], digest: bytes, place: int, but: str) -> str:
    """A word by a place in a hash, which repeats; never the one that is to be replaced."""
    number = digest[place % 8] << 8 | digest[(place + 1 + place // 8) % 8]
    found = words[number % len(words)]
    return found if found != but else words[(number + 1) % len(words)]


def _like(digit: str, byte: int) -> str:
    """Another hexadecimal digit: a decimal one for a decimal one."""
    return str(byte % 10) if digit.isdecimal() else "abcdef"[byte % 6]


def _png(width: int, height: int) -> str:
    """The beginning of an image of this size, in base64."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 6, 0, 0, 0) + bytes(4)
    return b64encode(head + bytes(3)).decode()


def redactors(
    key: bytes, encoding_of: Callable[[str], Encoding], name: Callable[[str, str], str]
) -> Callable[[bytes, str, str], bytes]:
    """Redacts a body of a caller with the encoding of its model's name. `name`: what a model is called in bodies of a
    caller. Raises ValueError as `Redactor.body`."""
    made: dict[str, Redactor] = {}

    def redact(body: bytes, model: str, caller: str) -> bytes:
        encoding = encoding_of(model)
        if encoding.name not in made:
            made[encoding.name] = Redactor(key, encoding, name)
        return made[encoding.name].of(caller).body(body)

    return redact
