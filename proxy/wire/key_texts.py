"""Hides keys in texts that are no JSON: behind their names, in URLs and command lines, and what looks like a key.

It hides literals, not expressions: in `token = read_token()` nothing is a key. What it finds first with `str.find` is
found at a tenth of the time that an expression takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proxy.wire.key_names import MAX_NAME, STEMS, folded, is_key, is_key_in_query

HIDDEN = "***"

# Keys that are known by what they look like: of OpenAI and others, GitHub, AWS, Google, Slack; JSON Web Tokens. What
# they begin with, and all of one.
SHAPES = (
    ("sk-", r"sk-[A-Za-z0-9_-]{16,}"),
    ("ghp_", r"ghp_[A-Za-z0-9]{20,}"),
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    ("AKIA", r"AKIA[A-Z0-9]{16,}"),
    ("AIza", r"AIza[A-Za-z0-9_-]{30,}"),
    ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("eyJ", r"eyJ[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_.-]{12,}"),
)
_SHAPES = tuple((start, re.compile(rf"(?<![A-Za-z0-9_-]){shape}", re.ASCII)) for start, shape in SHAPES)
PRIVATE_KEY = "PRIVATE KEY-----"
_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)

USER = r"[A-Za-z0-9._~!$&()*+,;=:%@^|{}-]"  # a character of a user or a password in a URL
_URL = re.compile(rf"(:(?:\\{{0,64}}/){{2}})(?!git@){USER}+@", re.ASCII)
PARAMETER = r"[?&;]([A-Za-z0-9_.~-]{1,64})="
_PARAMETER = re.compile(rf"({PARAMETER})([^&;\s\"'<>\\#]+)", re.ASCII)

SCHEMES = ("bearer", "basic")
_CREDENTIAL = re.compile(r"[ \t]{1,8}([A-Za-z0-9._~+/=-]{6,})", re.ASCII)
WORDS = re.compile(r"[A-Za-z]?[a-z]*(?:[._~+/=-]+[A-Za-z]?[a-z]*)*", re.ASCII)
MAX_WORDS = 40  # characters behind "bearer" or "basic" that are words and no credential
USER_FLAG = "-u"
_USER_FLAG = re.compile(r"(-u(?:ser)?[ =]{1,4}[\"']?[^\s\"':]{1,128}:)(?!\d+\b)([^\s\"']+)", re.ASCII)

# What stands between the beginning of a key's name and its value.
_AFTER_STEM = re.compile(
    r"[A-Za-z0-9_.-]{0,64}+(?P<gap>(?:\\{0,64}[\"'`]\s{0,16}|[ \t]{0,8})"
    r"(?P<sign>=>|:=|=+|:)(?:(?<=:)\s{0,16}(?=[\"'`\\{[])|[ \t]{0,8})| {1,4})",
    re.ASCII,
)
_BEFORE_KEY = ("api ", "access ", "secret ", "private ", "auth ")
_OF_NAMES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_OPENING = re.compile(r"[bBfFrRuU]{0,2}(\\{0,64}[\"'`])", re.ASCII)
_VALUE = re.compile(r"[^\s\"'`,;&()\[\]{}<>\\|]+", re.ASCII)  # without quotes
_DIGIT = re.compile("[0-9]")
MAX_VALUE = 256  # characters of it that are looked at, whether it is a key
_CLOSING = re.compile(r"[\]}]")
_LINE = re.compile(r"[^\"'`\r\n\\]+")
_LISTED = re.compile(r"(\\{0,64}[\"'])(?:(?!\1)[^\r\n])*\1")
_NO_VALUES = frozenset(
    "str string bytes int integer number bool boolean any object none null nil true false undefined optional "
    "secretstr env os process self config settings".split()
)
_WHOLE_LINE = frozenset("authorization proxyauthorization cookie setcookie".split())  # headers of several words


Cut = tuple[int, int, str]  # from where to where, and what is put there


def hidden_in(text: str) -> str:
    """A text without keys."""
    if PRIVATE_KEY in text:
        text = _PEM.sub(HIDDEN, text)
    for start, shape in _SHAPES:
        if start in text:
            text = shape.sub(HIDDEN, text)
    if ":" not in text and "=" not in text and " " not in text and "\t" not in text:
        return text  # a word: nothing has a name
    if "@" in text:
        text = _URL.sub(rf"\1{HIDDEN}@", text)
    if "=" in text:
        text = _PARAMETER.sub(lambda found: found[1] + HIDDEN if is_key_in_query(found[2]) else found[0], text)
    text = _without_named(text)
    text = _without_credentials(text)
    return _USER_FLAG.sub(rf"\1{HIDDEN}", text) if USER_FLAG in text else text


def is_words(text: str) -> bool:
    """Whether what follows the name of a scheme are words of a sentence, and no credential."""
    return len(text) < MAX_WORDS and WORDS.fullmatch(text) is not None


def _without_credentials(text: str) -> str:
    """A text without what follows "Bearer" and "Basic"."""
    lower = _lower(text)
    cuts: list[Cut] = []
    for at, scheme in _places(lower, SCHEMES):
        found = _CREDENTIAL.match(text, at + len(scheme))
        if found is not None and not is_words(found[1]):
            cuts.append((found.start(1), found.end(1), HIDDEN))
    return _cut(text, cuts)


def _without_named(text: str) -> str:
    """A text without what follows names of keys."""
    lower = _lower(text)
    cuts: list[Cut] = []
    done = 0
    for at, stem in _places(lower, STEMS):
        after = _AFTER_STEM.match(text, at + len(stem)) if at >= done else None
        if after is None:
            continue
        name = text[_start_of_name(text, lower, done, at) : after.start("gap")]
        cut = _value(text, after, name) if is_key(name) else None
        if cut is not None:
            cuts.append(cut)
            done = cut[1]
    return _cut(text, cuts)


def _lower(text: str) -> str:
    """A text in lower case, with all characters at their places."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join([c.lower() if c.isascii() else c for c in text])


def _places(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Where words are in a text, in order."""
    found: list[tuple[int, str]] = []
    for word in words:
        at = text.find(word)
        while at >= 0:
            found.append((at, word))
            at = text.find(word, at + 1)
    found.sort()
    return found


def _cut(text: str, cuts: Sequence[Cut]) -> str:
    """A text with other texts in place of some."""
    if not cuts:
        return text
    made: list[str] = []
    done = 0
    for start, end, put in cuts:
        made += (text[done:start], put)
        done = end
    return "".join([*made, text[done:]])


def _start_of_name(text: str, lower: str, least: int, at: int) -> int:
    """Where the name begins that has a stem there: `API key` is one, too."""
    start, least = at, max(least, at - MAX_NAME)
    while start > least and text[start - 1] in _OF_NAMES:
        start -= 1
    if not lower.startswith("key", start):
        return start
    return max(least, start - max(len(word) if lower.endswith(word, 0, start) else 0 for word in _BEFORE_KEY))


def _value(text: str, after: re.Match[str], name: str) -> Cut | None:
    """Where the value behind a key's name stands, and what is put in its place; None if it is no key."""
    at, is_flag = after.end(), name.startswith("-")
    if after["sign"] is None and not is_flag:
        return None
    opening = _OPENING.match(text, at)
    if opening is not None:
        return opening.end(), _closing(text, opening[1], opening.end()), HIDDEN
    if text[at : at + 1] in ("[", "{"):
        closing = _CLOSING.search(text, at)
        end = len(text) if closing is None else closing.start()
        return at, end, _LISTED.sub(rf"\g<1>{HIDDEN}\1", text[at:end])
    word = _VALUE.match(text, at, at + MAX_VALUE)
    if word is None or word[0][0] in "$%<-" or word[0].strip(".:").partition(".")[0].lower() in _NO_VALUES:
        return None
    is_line = after["sign"] == ":" and folded(name) in _WHOLE_LINE
    line = _LINE.match(text, at) if is_line else None
    if line is not None:
        return at, line.end(), HIDDEN
    is_header, is_variable = after["sign"] == ":" and "-" in name, after["gap"] == "=" and name.upper() == name
    if is_flag or is_header or is_variable or _is_literal(text, word):
        whole = _VALUE.match(text, at)
        return at, word.end() if whole is None else whole.end(), HIDDEN
    return None


def _closing(text: str, quote: str, start: int) -> int:
    """Where a quoted text ends: at its quote, else at the end of the line, or of all if it may be JSON cut off."""
    at = text.find(quote, start)
    while at > 0 and text[at - 1] == "\\":
        at = text.find(quote, at + 1)
    if at >= 0:
        return at
    line = text.find("\n", start)
    return len(text) if quote[-1] == '"' or line < 0 else line


def _is_literal(text: str, word: re.Match[str]) -> bool:
    """Whether a value without quotes is one, and no expression of a program."""
    if text[word.end() : word.end() + 1] in ("(", "["):
        return False
    return len(word[0]) >= 6 and (_DIGIT.search(word[0]) is not None or word[0].isupper())
