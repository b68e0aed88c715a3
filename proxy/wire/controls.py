"""The control headers: x-plimsoll-* request headers, which are addressed to the proxy and never forwarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from proxy.errors import bad_header
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported, Terms
from proxy.wire.headers import Header, NameTest

PREFIX = b"x-plimsoll-"
UPSTREAM = PREFIX + b"upstream"
T = TypeVar("T", bound=StrEnum)
MESSAGE_KEY = "plimsoll"  # the key of a message's JSON in which a client may say {"pin": true}; never forwarded


class Controls(msgspec.Struct, frozen=True):
    """The values of a request's control headers; None or empty for those that it does not have.

    `window` is in tokens, `pins` are indices of messages, `lorebooks` are names, `upstream` is the name of one. The
    last three are `Terms`.
    """

    mode: Mode | None = None
    ladder: str | None = None
    window: int | None = None
    pins: frozenset[int] = frozenset()
    lorebooks: tuple[str, ...] = ()
    upstream: str | None = None
    usage: Reported | None = None
    effective: int | None = None
    on_full: OnFull | None = None

    def terms(self, usual: Terms) -> Terms:
        """What holds for a request with these controls; `usual` is what holds without them."""
        if self.usage is None and self.effective is None and self.on_full is None:
            return usual
        effective, on_full = self.effective or usual.effective, self.on_full or usual.on_full
        return Terms(self.usage or usual.usage, effective, on_full)


NOTHING_ASKED = Controls()
_IS_CONTROL = NameTest(lambda name: name.startswith(PREFIX))


def controls(headers: Sequence[Header]) -> Controls:
    """The controls in these headers. Raises `ClientError` for an invalid value."""
    for header in headers:
        if _IS_CONTROL[header[0]]:
            return _read({name: value.decode("latin-1").strip() for name, value in headers if _IS_CONTROL[name]})
    return NOTHING_ASKED


def _read(values: Mapping[bytes, str]) -> Controls:
    return Controls(
        mode=_one_of(Mode, "x-plimsoll-mode", values.get(b"x-plimsoll-mode")),
        ladder=values.get(b"x-plimsoll-ladder") or None,
        window=_tokens("x-plimsoll-window", values.get(b"x-plimsoll-window")),
        pins=_pins(values.get(b"x-plimsoll-pin")),
        lorebooks=_names(values.get(b"x-plimsoll-lorebook")),
        upstream=values.get(UPSTREAM) or None,
        usage=_one_of(Reported, "x-plimsoll-usage", values.get(b"x-plimsoll-usage")),
        effective=_tokens("x-plimsoll-effective", values.get(b"x-plimsoll-effective")),
        on_full=_one_of(OnFull, "x-plimsoll-on-full", values.get(b"x-plimsoll-on-full")),
    )


def _one_of(kind: type[T], name: str, value: str | None) -> T | None:
    if value is None:
        return None
    if value not in set(kind):
        raise bad_header(name, f"must be one of {', '.join(kind)}")
    return kind(value)


def _tokens(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or not value.isascii() or not 0 < len(value) < 12 or int(value) < 1:
        raise bad_header(name, "must be a number of tokens, at least 1")
    return int(value)


def _pins(value: str | None) -> frozenset[int]:
    if not value:
        return frozenset()
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise bad_header("x-plimsoll-pin", "must be message numbers from 0, separated by commas")
    return frozenset(map(int, parts))


def _names(value: str | None) -> tuple[str, ...]:
    """Names separated by commas. They are names of files, so bytes that are valid UTF-8 are read as UTF-8."""
    try:
        value = (value or "").encode("latin-1").decode()
    except UnicodeDecodeError:
        value = value or ""
    return tuple(name.strip() for name in value.split(",") if name.strip())
