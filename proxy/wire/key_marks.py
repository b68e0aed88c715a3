"""Says of most bodies, quickly, that there is nothing in them that `keys.without_keys` would hide.

It searches the bytes for marks. It may say yes of a body without keys, and never no of one with keys: a test compares
it with the walk. A mark is at most `MAX_MARK` bytes long, but for the user in a URL; none needs what stands before it,
which may be the `n` of an escaped line end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.wire.key_names import ENDINGS, HEADERS, IN_QUERY_ENDINGS, MAX_NAME, NAMES, STEMS, folded
from proxy.wire.key_texts import PRIVATE_KEY, SCHEMES, SHAPES, USER, is_words

MAX_MARK = 1024
# Escapes of letters and signs: whatever is written so is read.
PLAIN = (b"\\u00", b"\\/", PRIVATE_KEY.encode())
_STEMS = tuple(stem.encode() for stem in STEMS)
_BLANK = r"(?: |\t|\\{1,64}t)"  # also a tab in JSON in JSON
_AFTER_STEM = re.compile(rf"([a-z0-9_. -]{{0,64}}+)(?:{_BLANK}{{0,8}}[:=]|\\{{0,64}}[\"'`])".encode())
_AFTER_FLAG = re.compile(rb"([a-z0-9_.-]{0,64}+) ")
_OF_NAMES = b"abcdefghijklmnopqrstuvwxyz0123456789_.-"
_ENDINGS = (*ENDINGS, *NAMES, HEADERS)
_USER_FLAG = re.compile(rb"-u(?:ser)?[ =]")
_BEFORE_PARAMETER = (b"?", b"&", b";", b"-", b"")
_IN_QUERY = tuple(f"{end}=".encode() for end in IN_QUERY_ENDINGS)
_SCHEMES = tuple(scheme.encode() for scheme in SCHEMES)
_CREDENTIAL = re.compile(rf"{_BLANK}{{1,8}}([A-Za-z0-9._~+/=-]{{6,}})".encode())
_SHAPES = tuple(
    (start.encode(), re.compile(shape.split(r"\.")[0].replace(",}", "}").encode())) for start, shape in SHAPES
)
_URL = re.compile(rf"://{USER}+@".encode())
_BEFORE_URL = re.compile(rf"{USER}*".encode())


def may_have_key(body: bytes, start: int = 0) -> bool:
    """Whether `without_keys` may change a body. `start`: what is before it has no mark, and the rest alone is read."""
    if start:
        body = body[_start_of_marks(body, start) :]
    for mark in PLAIN:
        if mark in body:
            return True
    for first, shape in _SHAPES:
        if first in body and shape.search(body) is not None:
            return True
    if b"@" in body and _URL.search(body) is not None:
        return True
    lower = body.lower()
    for stem in _STEMS:
        if stem in lower and _has_name(lower, stem):
            return True
    return _has_parameter(lower) or _USER_FLAG.search(lower) is not None or _has_credential(body, lower)


def _start_of_marks(body: bytes, start: int) -> int:
    """Where a mark that ends behind `start` begins at the earliest."""
    at = max(0, start - MAX_MARK)
    url = body.rfind(b"://", 0, at + 2)
    return url if url >= 0 and _BEFORE_URL.fullmatch(body, url + 3, max(at, url + 3)) is not None else at


def _has_name(lower: bytes, stem: bytes) -> bool:
    """Whether the name of a key has this stem in a body in lower case."""
    for at in _places(lower, stem):
        before, end = lower[max(0, at - MAX_NAME) : at], at + len(stem)
        if _is_key(before, stem, _AFTER_STEM.match(lower, end)):
            return True
        if b"-" in before[len(before.rstrip(_OF_NAMES)) :] and _is_key(before, stem, _AFTER_FLAG.match(lower, end)):
            return True
    return False


def _is_key(before: bytes, stem: bytes, after: re.Match[bytes] | None) -> bool:
    return after is not None and folded((before + stem + after[1]).decode("latin-1")).endswith(_ENDINGS)


def _has_parameter(lower: bytes) -> bool:
    for end in _IN_QUERY:
        for at in _places(lower, end):
            if lower[max(0, at - 1) : at] in _BEFORE_PARAMETER:
                return True
    return False


def _has_credential(body: bytes, lower: bytes) -> bool:
    for scheme in _SCHEMES:
        for at in _places(lower, scheme):
            found = _CREDENTIAL.match(body, at + len(scheme))
            if found is not None and not is_words(found[1].decode()):
                return True
    return False


def _places(body: bytes, word: bytes) -> Iterator[int]:
    at = body.find(word)
    while at >= 0:
        yield at
        at = body.find(word, at + 1)
