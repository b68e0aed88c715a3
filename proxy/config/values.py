"""How the text of a setting becomes a value; each parser raises ValueError with what is wrong and what is allowed.

It reads no environment, and never repeats a text that may hold a password or a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.model.plan import Mode

Parser = Callable[[str], Any]

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
# Decimal and binary units, as in Kubernetes' quantities: 10MB is 10,000,000 bytes and 64MiB 67,108,864.
BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})\s*([a-z]*)", re.ASCII | re.IGNORECASE)
WHOLE = re.compile(r"\d{1,18}|\d{1,3}([_,]\d{3}){1,5}", re.ASCII)
CACHE_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.ASCII | re.IGNORECASE)


def shown(text: str) -> str:
    """A wrong value as an error repeats it: quoted and short."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def optional(parse: Parser) -> Parser:
    """A parser for which nothing given is None."""
    return lambda text: parse(text) if text else None


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers; `200_000` and `200,000` are 200000."""
    allowed = f"a whole number from {least}" + (" on" if most is None else f" to {most}")

    def parse(text: str) -> int:
        value = int(re.sub("[_,]", "", text)) if WHOLE.fullmatch(text) else -1
        if value < least or (most is not None and value > most):
            raise ValueError(f"is {shown(text)}, must be {allowed}")
        return value

    return parse


def quantity(units: Mapping[str, float], allowed: str, least: float) -> Callable[[str], float]:
    """A parser of a number and a unit that come to `least` or more."""

    def parse(text: str) -> float:
        match = QUANTITY.fullmatch(text)
        unit = units.get(match[2].lower()) if match else None
        if match is None or unit is None or float(match[1]) * unit < least:
            raise ValueError(f"is {shown(text)}, must be {allowed}")
        return float(match[1]) * unit

    return parse


timeout = quantity(SECONDS, "seconds over 0, such as 5, 0.5, 250ms or 10m", least=0.001)
patience = quantity(SECONDS, "seconds, such as 0, 30 or 2m", least=0)
_bytes = quantity(BYTES, "a size such as 67108864, 10MB or 64MiB", least=1)


rate = quantity(BYTES, "bytes a second, such as 0, 240 or 1kB", least=0)


def size(text: str) -> int:
    """Bytes: `67108864`, `10MB`, `64MiB`."""
    return int(_bytes(text))


def boolean(text: str) -> bool:
    """Yes or no, in the words that environments use."""
    if text.lower() not in TRUE | FALSE:
        raise ValueError(f"is {shown(text)}, must be true or false")
    return text.lower() in TRUE


def choice(*allowed: str) -> Callable[[str], str]:
    """A parser of one of some words."""

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"is {shown(text)}, must be one of {', '.join(allowed)}")
        return text.lower()

    return parse


def mode(text: str) -> Mode:
    """What may be done to a request."""
    return Mode(choice(*Mode)(text))


def names(text: str) -> tuple[str, ...]:
    """Names between commas, in their order, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def word(text: str) -> str:
    """A ladder's name, which is also the name of its file."""
    if not re.fullmatch(r"\w[\w.-]*", text, re.ASCII):
        raise ValueError(f"is {shown(text)}, must be a ladder's name: letters, digits, '.', '_' and '-'")
    return text


def model(text: str) -> str:
    """A model's name, or nothing."""
    if not text.isprintable() or re.search(r"\s", text):
        raise ValueError(f"is {shown(text)}, must be a model's name, without blanks")
    return text


def host(text: str) -> str:
    """A name or an address to listen on."""
    if re.search(r"[\s/@]", text):
        raise ValueError("must be a name or an address, such as 127.0.0.1 or 0.0.0.0")
    return text.strip("[]")


def upstream(text: str) -> str:
    """The URL under which the provider's paths begin, without its last slash."""
    allowed = "must be a URL such as https://api.openai.com/v1"
    if "@" in text.partition("//")[2].partition("/")[0] or ("@" in text and "//" not in text):
        raise ValueError(f"holds a user or a password, {allowed}: a key belongs in PLIMSOLL_API_KEY")
    if not re.fullmatch(r"https?://[^\s?#\\]+", text, re.ASCII | re.IGNORECASE):
        raise ValueError(f"is no plain http or https URL, {allowed}")
    try:
        if not urlsplit(text).hostname or urlsplit(text).port == 0:
            raise ValueError
    except ValueError:
        raise ValueError(f"has no host or a wrong port, {allowed}") from None
    return text.rstrip("/")


def cache(text: str) -> str:
    """The URL of a cache. Which schemes there are is known to the cache alone."""
    if not CACHE_URL.fullmatch(text):
        raise ValueError("is no URL, must be one such as redis://localhost:6379/0")
    return text


def secret(text: str) -> bytes:
    """A secret's bytes, whatever they are."""
    return text.encode("utf-8", "surrogateescape")


def key(text: str) -> str:
    """A key that can stand in a header."""
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("holds blanks or characters that are not printable ASCII: no header can carry it")
    return text
