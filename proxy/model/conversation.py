"""A conversation as every step sees it: messages, calls, blocks, and the prompt that a client sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.model.lenient_json import FIELDS, RAWS, Json
from proxy.model.structs import replace


class Call(msgspec.Struct, frozen=True, gc=False):
    """One tool call of an assistant message: the id that its result must name, and the function's name."""

    id: str
    name: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as it would be sent: `raw` is its JSON object, untouched unless a step wrote it anew.

    `index` is its place in the client's list (-1: a message of our own), `answers` the call id that a tool
    result belongs to, `tokens` its share of the prompt, `why` the reason a step gave for what it did to it.
    """

    raw: bytes
    role: str
    index: int = -1
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    tokens: int = 0
    why: str = ""

    def fields(self) -> dict[str, Json]:
        """The message parsed. Raises `msgspec.MsgspecError` where it is no JSON object."""
        return FIELDS.decode(self.raw)

    def text(self) -> str:
        """All its text: the content, text parts joined."""
        return text_of(self.fields().get("content"))

    def with_content(self, content: Json, why: str) -> Message:
        """The same message with another content; every other key keeps its bytes. Its tokens are not counted anew."""
        parts = RAWS.decode(self.raw)
        parts["content"] = msgspec.Raw(msgspec.json.encode(content))
        return replace(self, raw=msgspec.json.encode(parts), why=why)


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or its text parts joined; an image has none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))


class Block(msgspec.Struct, frozen=True, gc=False):
    """The smallest run of messages that may go without breaking the protocol (section 1).

    `later` makes the block that is to stand in its place, in `most` tokens as a rule: a step decided that, but other
    steps may yet drop it, and few of those that are to be shortened stay.
    """

    messages: tuple[Message, ...]
    pinned: bool = False
    later: Callable[[], Block] | None = None
    most: int = 0

    @property
    def tokens(self) -> int:
        """What the block adds to the prompt; about, where it is not made yet."""
        return sum(m.tokens for m in self.messages) if self.later is None else self.most

    @property
    def has_results(self) -> bool:
        """Whether tool results stand in it."""
        return any(m.answers is not None for m in self.messages)

    def made(self) -> Block:
        """The block as it will be sent."""
        return self if self.later is None else self.later()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a client asked, understood: `head` is every top-level field but the messages, raw, in its order.

    `ask` is the reply limit that the client set, in the field `ask_field`; `reply_floor` the least that this request's
    own options allow (a thinking budget); `needs` what a model must be able to do; `pins` further message indices the
    client pinned; `opaque` that parts are in it whose cost no count can prove. How many answers it asks for does not
    matter: they share the prompt, but each has the window to itself.
    """

    model: str
    messages: tuple[Message, ...]
    head: Mapping[str, bytes] = field(default_factory=dict)
    ask: int | None = None
    ask_field: str = "max_tokens"
    reply_floor: int = 0
    needs: frozenset[str] = frozenset()
    stream: bool = False
    pins: frozenset[int] = frozenset()
    opaque: bool = False
