"""Parsers of setting values. Each raises `ValueError` with the problem and the allowed values.

The module reads no environment, and never repeats a text that may contain a password or a key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from proxy.model.plan import Mode

Parser = Callable[[str], Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
# Decimal and binary units, as in Kubernetes' quantities: 10MB is 10,000,000 bytes and 64MiB 67,108,864.
BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
TOKENS = {"": 1, "k": 10**3, "m": 10**6}
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})\s*([a-z]*)", re.ASCII | re.IGNORECASE)
WHOLE = re.compile(r"\d{1,18}|\d{1,3}([_,]\d{3}){1,5}", re.ASCII)
CACHE_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.ASCII | re.IGNORECASE)


def quoted(text: str) -> str:
    """An invalid value for an error message: quoted, at most 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def optional(parse: Parser) -> Parser:
    """A parser that returns None for an empty text."""
    return lambda text: parse(text) if text else None


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers in a range; `200_000` and `200,000` are 200000."""
    allowed = "a whole number " + (f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}")

    def parse(text: str) -> int:
        value = int(re.sub("[_,]", "", text)) if WHOLE.fullmatch(text) else -1
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError(f"is {quoted(text)}, must be {allowed}")
        return value

    return parse


def quantity(units: Mapping[str, float], allowed: str, minimum: float) -> Callable[[str], float]:
    """A parser of a number with one of these units (by factor). `allowed` describes them for the error message."""

    def parse(text: str) -> float:
        match = QUANTITY.fullmatch(text)
        unit = units.get(match[2].lower()) if match else None
        if match is None or unit is None or float(match[1]) * unit < minimum:
            raise ValueError(f"is {quoted(text)}, must be {allowed}")
        return float(match[1]) * unit

    return parse


timeout = quantity(SECONDS, "seconds above 0, such as 5, 0.5, 250ms or 10m", minimum=0.001)
duration = quantity(SECONDS, "seconds, such as 0, 30 or 2m", minimum=0)
_bytes = quantity(BYTES, "a size such as 67108864, 10MB or 64MiB", minimum=1)
rate = quantity(BYTES, "bytes per second, such as 0, 240 or 1kB", minimum=0)


def size(text: str) -> int:
    """A size in bytes: `67108864`, `10MB`, `64MiB`."""
    return int(_bytes(text))


_tokens = quantity(TOKENS, "a number of tokens such as 32000, 32k or 1M", minimum=1)


def tokens(text: str) -> int:
    """A number of tokens: `32000`, `32_000`, `32k` (a thousand each), `1M`."""
    return int((WHOLE.fullmatch(text) and whole(0)(text)) or _tokens(text))


def budget(text: str) -> int:
    """A number of tokens that may be none: `0`, `20_000_000`, `20M`."""
    return 0 if text == "0" else tokens(text)


def boolean(text: str) -> bool:
    """A boolean: true, yes, on, 1, or false, no, off, 0."""
    if text.lower() not in TRUE | FALSE:
        raise ValueError(f"is {quoted(text)}, must be true or false")
    return text.lower() in TRUE


def choice(*allowed: str) -> Callable[[str], str]:
    """A parser that accepts these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"is {quoted(text)}, must be one of {', '.join(allowed)}")
        return text.lower()

    return parse


def one_of(kind: type[StrEnum]) -> Parser:
    """A parser of a value of an enumeration, in any case."""
    allowed = choice(*kind)
    return lambda text: kind(allowed(text))


mode = one_of(Mode)


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list of names, in order, without duplicates."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def host_names(text: str) -> tuple[str, ...]:
    """A comma-separated list of host names without ports, in lower case."""
    found = names(text.lower())
    for name in found:
        if not re.fullmatch(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", name):
            raise ValueError(f"has {quoted(name)}, must be host names without ports, such as plimsoll.example.com")
    return found


def origins(text: str) -> tuple[str, ...]:
    """A comma-separated list of origins (RFC 6454): a scheme, a host and perhaps a port, in lower case."""
    found = tuple(name.removesuffix("/") for name in names(text.lower()))
    for name in found:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", name):
            raise ValueError(f"has {quoted(name)}, must be origins such as https://chat.example.com")
    return found


def networks(text: str) -> tuple[Network, ...]:
    """A comma-separated list of addresses and networks: `10.0.0.0/8, 2001:db8::1`."""
    try:
        return tuple(ipaddress.ip_network(name, strict=False) for name in names(text))
    except ValueError:
        raise ValueError(f"is {quoted(text)}, must be addresses or networks such as 10.0.0.0/8") from None


def ladder_name(text: str) -> str:
    """The name of a ladder, which is also its file's name."""
    if not re.fullmatch(r"\w[\w.-]*", text, re.ASCII):
        raise ValueError(f"is {quoted(text)}, must be a ladder's name: letters, digits, '.', '_' and '-'")
    return text


def header_name(text: str) -> str:
    """The name of a header, in lower case (RFC 9110, 5.1)."""
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", text):
        raise ValueError(f"is {quoted(text)}, must be the name of a header")
    return text.lower()


def model(text: str) -> str:
    """A model's name; may be empty."""
    if not text.isprintable() or re.search(r"\s", text):
        raise ValueError(f"is {quoted(text)}, must be a model's name without spaces")
    return text


def line(text: str) -> str:
    """A text of at most 500 characters without line breaks; may be empty."""
    if not text.isprintable() or len(text) > 500:
        raise ValueError(f"is {quoted(text)}, must be one line of at most 500 characters")
    return text


def host(text: str) -> str:
    """A host name or address to listen on."""
    if re.search(r"[\s/@]", text):
        raise ValueError("must be a host name or an address, such as 127.0.0.1 or 0.0.0.0")
    return text.strip("[]")


def url(example: str, keys: str) -> Callable[[str], str]:
    """A parser of plain http and https URLs; the setting `keys` is where a key belongs."""
    allowed = f"must be a URL such as {example}"

    def parse(text: str) -> str:
        if "@" in text.partition("//")[2].partition("/")[0] or ("@" in text and "//" not in text):
            raise ValueError(f"contains a user or a password, {allowed}: a key belongs in {keys}")
        if not re.fullmatch(r"https?://[^\s?#\\]+", text, re.ASCII | re.IGNORECASE):
            raise ValueError(f"is not a plain http or https URL, {allowed}")
        try:
            if not urlsplit(text).hostname or urlsplit(text).port == 0:
                raise ValueError
        except ValueError:
            raise ValueError(f"has no host or an invalid port, {allowed}") from None
        return text

    return parse


_upstream = url("https://api.openai.com/v1", "PLIMSOLL_API_KEY")


def upstream(text: str) -> str:
    """A provider's base URL, without a trailing slash."""
    return _upstream(text).rstrip("/")


def cache(text: str) -> str:
    """The URL of a cache. `proxy.cache` checks its scheme."""
    if not CACHE_URL.fullmatch(text):
        raise ValueError("is not a URL such as redis://localhost:6379/0")
    return text


def secret(text: str) -> bytes:
    """A secret, as any bytes."""
    return text.encode("utf-8", "surrogateescape")


def key(text: str) -> str:
    """A key that is valid in a header."""
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("contains spaces or characters that are not printable ASCII, which no header may contain")
    return text


def token(text: str) -> str:
    """A token that is valid in a header and cannot be guessed."""
    if len(key(text)) < 16:
        raise ValueError("is too short, must have at least 16 characters")
    return text
