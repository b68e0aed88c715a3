"""What a client asks of Plimsoll itself: the x-plimsoll-* request headers, which are never forwarded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.errors import bad_header
from proxy.model.plan import Mode

PREFIX = b"x-plimsoll-"
MESSAGE_KEY = "plimsoll"  # the key of a message's JSON in which a client may say {"pin": true}; never forwarded


@dataclass(frozen=True, slots=True)
class Controls:
    """The client's wishes: None or empty where it said nothing. `window` in tokens, `pins` message indices,
    `lorebooks` their names."""

    mode: Mode | None = None
    ladder: str | None = None
    window: int | None = None
    pins: frozenset[int] = frozenset()
    lorebooks: tuple[str, ...] = ()


NOTHING_ASKED = Controls()


def controls(headers: Iterable[tuple[bytes, bytes]]) -> Controls:
    """The control headers read. Raises `ClientError` where a value means nothing."""
    asked = {name: value.decode("latin-1").strip() for name, value in headers if name.startswith(PREFIX)}
    if not asked:
        return NOTHING_ASKED
    return Controls(
        mode=_mode(asked.get(b"x-plimsoll-mode")),
        ladder=asked.get(b"x-plimsoll-ladder") or None,
        window=_tokens(asked.get(b"x-plimsoll-window")),
        pins=_pins(asked.get(b"x-plimsoll-pin")),
        lorebooks=_names(asked.get(b"x-plimsoll-lorebook")),
    )


def _mode(value: str | None) -> Mode | None:
    if value is None:
        return None
    if value not in set(Mode):
        raise bad_header("x-plimsoll-mode", f"must be one of {', '.join(Mode)}")
    return Mode(value)


def _tokens(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or not value.isascii() or not 0 < len(value) < 12 or int(value) < 1:
        raise bad_header("x-plimsoll-window", "must be a number of tokens, at least 1")
    return int(value)


def _pins(value: str | None) -> frozenset[int]:
    if not value:
        return frozenset()
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise bad_header("x-plimsoll-pin", "must be message numbers from 0, separated by commas")
    return frozenset(map(int, parts))


def _names(value: str | None) -> tuple[str, ...]:
    """Names between commas: of files, so in UTF-8 where that is what the bytes are."""
    try:
        value = (value or "").encode("latin-1").decode()
    except UnicodeDecodeError:
        value = value or ""
    return tuple(name.strip() for name in value.split(",") if name.strip())
