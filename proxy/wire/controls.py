"""The control headers: x-plimsoll-* request headers, which are addressed to the proxy and never forwarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.errors import bad_header
from proxy.model.caller_rule import CallerRule
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported, Terms
from proxy.wire.headers import Header, NameTest

PREFIX = b"x-plimsoll-"
UPSTREAM = PREFIX + b"upstream"
AS = PREFIX + b"caller"  # for /inspect alone: the name of the caller under whose rule a request is planned
T = TypeVar("T", bound=StrEnum)
MESSAGE_KEY = "plimsoll"  # the key of a message's JSON in which a client may say {"pin": true}; never forwarded


class Controls(msgspec.Struct, frozen=True):
    """The values of a request's control headers; None or empty for those that it does not have. Where the request's
    caller has a `rule`, the rule's values stand in their place; `overruled` names the headers that it did not heed, and
    `asked` are those of the client itself.

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
    rule: CallerRule | None = None
    overruled: tuple[str, ...] = ()
    asked: Controls | None = None

    @property
    def caller(self) -> str:
        """The name of the caller whose rule holds; empty without one."""
        return "" if self.rule is None else self.rule.name

    @property
    def sent_by(self) -> str:
        """The name of the caller whose rule names the upstream; empty where no rule does."""
        return "" if self.rule is None or self.rule.upstream is None else self.rule.name

    @property
    def asks(self) -> bool:
        """Whether the client itself asks for anything: what a rule says alone makes no request special."""
        return self is not NOTHING_ASKED and self.asked is not NOTHING_ASKED

    @property
    def own(self) -> Controls:
        """What the client itself asks for."""
        return self if self.asked is None else self.asked

    def under(self, rule: CallerRule) -> Controls:
        """The same under the rule of the request's caller: a header may make its window smaller, and changes nothing
        else of what the rule says."""
        ours: dict[str, Any] = {name: said for name in RULED if (said := getattr(rule, name)) is not None}
        asked: dict[str, Any] = {name: said for name in RULED if (said := getattr(self, name)) is not None}
        smaller: dict[str, Any] = {
            name: min(ours[name], asked[name]) for name in SMALLER if name in ours and name in asked
        }
        now = {**asked, **ours, **smaller}
        overruled = tuple(sorted(name.replace("_", "-") for name, said in asked.items() if now[name] != said))
        return replace(self, **now, rule=rule, overruled=overruled, asked=self)

    def terms(self, usual: Terms) -> Terms:
        """What holds for a request with these controls; `usual` is what holds without them."""
        if self.usage is None and self.effective is None and self.on_full is None:
            return usual
        effective, on_full = self.effective or usual.effective, self.on_full or usual.on_full
        return Terms(self.usage or usual.usage, effective, on_full)


NOTHING_ASKED = Controls()
# What a caller's rule and control headers can both say; of figures the smaller one holds.
RULED = tuple(name for name in Controls.__struct_fields__ if name in CallerRule.__struct_fields__)
SMALLER = tuple(name for name in ("window", "effective") if name in RULED)
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
