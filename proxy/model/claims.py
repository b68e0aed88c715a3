"""Claims: what of a conversation the work needs next, and why. The values that `fit.claims` makes and steps read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class Reason(StrEnum):
    """Why something is claimed, the strongest first; as `/inspect`, the page and the log say it."""

    ASKED_AGAIN = "asked again"
    DEFINITION = "definition"
    CHANGED = "changes what was said"
    NAMED = "named"
    ORDER = "order"
    TYPED = "typed by the user"


class ResultClaim(msgspec.Struct, frozen=True, gc=False):
    """A result that must stay, or parts of it.

    `index`: the message that has it, in the client's list. `since`: the message that claims it. `definitions`: names of
    what must stay whole in it; `ids`: what its lines or rows must contain to stay; neither: all of it must stay.
    `tokens`: what the claimed parts cost, about. `turn`: the message of the user that claims it; -1 where a call does.
    `until`: the message from which on a newer result is claimed instead.
    """

    call: str
    index: int
    since: int
    reason: Reason
    tokens: int
    definitions: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    turn: int = -1
    until: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of the result must stay."""
        return not (self.definitions or self.ids)


class MessageClaim(msgspec.Struct, frozen=True, gc=False):
    """A message whose own text must stay. `answered`: it stays because of the one behind it, so its end is enough.
    `spans`: these lines of its own text are enough, as (start, end) in characters; empty: all of it must stay."""

    index: int
    since: int
    reason: Reason
    tokens: int
    answered: bool = False
    spans: tuple[tuple[int, int], ...] = ()


class Standing(msgspec.Struct, frozen=True, gc=False):
    """The claims that hold at one point of a conversation, within their shares of the room: `results` by the id of the
    call, `messages` by their index in the client's list."""

    results: Mapping[str, ResultClaim] = msgspec.field(default_factory=dict)
    messages: Mapping[int, MessageClaim] = msgspec.field(default_factory=dict)


NOTHING = Standing()


class Back(msgspec.Struct, frozen=True, gc=False):
    """A result that refers to an earlier one, as the ids of their calls."""

    stub: str
    target: str


class Holder(msgspec.Struct, frozen=True, gc=False):
    """A result that has the text of an earlier one: the message `index` in the client's list, the id of its call, and
    the message's JSON `raw` as it was when that was found."""

    index: int
    call: str
    raw: bytes


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """Lines of the text of a result that a stub of ours stands for, because later results have them, or, where they are
    `older`, newer ones in their place.

    `index`, `call`: of the result. `raw`: the message's JSON with the stub. `stub`: the line that stands there now.
    `what`: how it calls the lines, `where`: and the results of `holders`. `lines`: what stood there.
    """

    index: int
    call: str
    raw: bytes
    stub: str
    what: str
    where: str
    lines: tuple[str, ...]
    holders: tuple[Holder, ...]
    older: bool = False


class Claims(Protocol):
    """All claims of a conversation. Pure: of the same conversation always the same."""

    def standing(self, room: int, upto: int | None = None) -> Standing:
        """What holds for a prompt of at most `room` tokens; `upto`: as it was when that message of the client's list
        was the newest (None: now)."""

    def order_lines(self, index: int) -> tuple[tuple[int, int], ...]:
        """The lines with orders of that message's own text, as (start, end) in characters, if they are enough of it."""

    def changes(self) -> frozenset[int]:
        """The indices of the short messages with signs that something is otherwise now."""

    def backs(self) -> tuple[Back, ...]:
        """The results that refer to earlier ones, in order."""

    def made(self, room: int) -> tuple[ResultClaim, ...]:
        """The claims of results within `room` tokens, in the order in which they were made, each as it was made."""
