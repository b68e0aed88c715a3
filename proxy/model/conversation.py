"""A conversation in the terms that every API shares: messages, their parts, blocks, and the prompt that a client sent.

The JSON of a message belongs to its API. Steps read and change it through the `MessageFormat` that the message carries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec
from msgspec.structs import replace

from proxy.model.definitions import NO_DEFINITIONS, Definitions

CHAT = "chat"  # the name of the Chat Completions API
NO_ID = ("",)  # what a result answers that names no call: before tools, a result followed its call at once


class Kind(StrEnum):
    """Who speaks in a message. A message that carries results and a user's own text is the user's."""

    INSTRUCTION = "instruction"
    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"
    OTHER = "other"


class PartKind(StrEnum):
    """What a part of a message is."""

    TEXT = "text"
    CALL = "call"
    RESULT = "result"
    REASONING = "reasoning"
    MEDIA = "media"
    OPAQUE = "opaque"
    INPUT = "input"  # a text that is worth nothing without its middle: it may only be cut at an end
    TOKENS = "tokens"  # ids of tokens, with commas between them, as the model reads them


TEXTS = frozenset({PartKind.TEXT, PartKind.RESULT})
ENDS = frozenset({PartKind.INPUT, PartKind.TOKENS})  # an end of them may be cut, although they are not editable
# Values of `Message.keep`: the end that must stay, or neither, where nothing but a rule allows a cut, and at which end.
HEAD, TAIL, RULED = "head", "tail", "ruled"


class NotEditable(Exception):
    """A step changes what its API cannot change: our own bug. The text has no content."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A piece of a message that a step can read or change.

    `text` is a text, a result's text, or the arguments of a call; of an opaque part it is what can be searched.
    `call` is the id of the call, or of the call that a result answers. `name` is the function's name, else the API's
    name of the part's type where that is not plain text. `place` is where it stands in its message; only the API reads
    it. `whole`: it is all of the message's content, so that the message costs hardly more than its text. `editable`:
    a step may change its text; what is not editable is not ranked either. `removable`: media that a step may leave out,
    or replace by a text.
    """

    kind: PartKind
    text: str = ""
    call: str = ""
    name: str = ""
    place: tuple[str | int, ...] = ()
    whole: bool = False
    editable: bool = True
    removable: bool = False


Edits = Sequence[tuple[Part, str]]  # parts, each with its new text


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """An image or a document in a message: a removable part. `source`: its content as a data URL, else its URL or its
    id. `document`: it is no image. `name`: of its file, where the client gave one."""

    part: Part
    source: str
    document: bool = False
    name: str = ""


class MessageFormat(Protocol):
    """How an API writes messages: pure functions, and the only ones that know its JSON keys."""

    def runs(self, messages: Sequence[Message]) -> list[tuple[Message, ...]]:
        """The messages in runs, each of which must stay together or go as one."""

    def parts(self, message: Message) -> tuple[Part, ...]:
        """The parts of a message, in order. Of JSON that cannot be decoded: one opaque part. Never raises."""

    def edit(self, message: Message, edits: Edits) -> bytes:
        """The message's JSON with other texts in parts that `parts` returned. All other keys keep their bytes."""

    def attachments(self, message: Message) -> tuple[Attachment, ...]:
        """The images and documents among its removable parts, in order: recordings are what somebody said, and stay.
        Never raises."""

    def without_media(self, message: Message, edits: Edits) -> bytes:
        """The message's JSON with a text in place of media, which `parts` returned as removable; without those whose
        text is empty. All else keeps its bytes. Raises `NotEditable` where nothing would be left."""

    def with_results(self, message: Message, calls: Collection[str], text: str) -> bytes:
        """The message's JSON with a text in place of everything that the results of these calls consist of."""

    def join(self, message: Message, messages: Sequence[Message]) -> bytes | None:
        """The message's JSON with the contents of all these messages in their order, itself one of them; None where
        one of them cannot be joined."""

    def misplaced(self, messages: Sequence[Message]) -> Collection[int]:
        """The places of messages that the API accepts only beside others, which are no longer there."""

    def without_reasoning(self, message: Message) -> bytes | None:
        """The message's JSON without its reasoning, empty if nothing else is in it; None if it has none."""

    def detached(self, before: Sequence[Message], after: Sequence[Message]) -> Mapping[int, bytes]:
        """The JSON of messages of `after` without what refers to messages of `before` that are gone, by place; empty
        for one that must go, too."""

    def write(self, text: str) -> bytes:
        """The JSON of a message of our own. The user speaks in it: what we write must not rank as instructions."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One tool call of an assistant message: the id that its result must name, and the function's name."""

    id: str
    name: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as it would be sent: `raw` is its JSON, untouched unless a step wrote it anew in its `format`.

    `role` is the name under which reports and transcripts show who speaks. `index` is its place in the client's list
    (-1: a message of our own), `answers` the ids of the calls whose results it carries, `name` the speaker's name where
    the client gave one, `tokens` its share of the prompt, `why` the reason a step gave for what it did to it.

    `hidden`: the model's tokens of its encrypted content, by its length, in a prompt that is `opaque`. `pinned`: the
    API requires it. `compacts`: it stands for all messages before it. `keep`: of what may only be cut at an end, which
    one must stay (`HEAD`, `TAIL`, `RULED`); empty for a message that may be shortened anywhere. `again`: of one whose
    results were shortened, the same with a note that says who did, if demanded in no more tokens.
    """

    raw: bytes
    role: str
    kind: Kind
    format: MessageFormat
    index: int = -1
    calls: tuple[Call, ...] = ()
    answers: tuple[str, ...] = ()
    name: str = ""
    tokens: int = 0
    why: str = ""
    hidden: int = 0
    pinned: bool = False
    compacts: bool = False
    keep: str = ""
    again: Callable[[Message, bool], Message] | None = None

    def parts(self) -> tuple[Part, ...]:
        """Its parts in order. The JSON is decoded at every call."""
        return self.format.parts(self)

    def text(self) -> str:
        """All its text, that of results included."""
        return "".join([part.text for part in self.parts() if part.kind in TEXTS])

    def own_text(self) -> str:
        """Its text without that of results."""
        return "".join([part.text for part in self.parts() if part.kind is PartKind.TEXT])

    def edit(self, edits: Edits, why: str) -> Message:
        """The message with other texts in some of its parts; the same message where no text differs. Its tokens are
        not counted anew. Raises `NotEditable` for a part whose text no step may change."""
        changed = [(part, text) for part, text in edits if text != part.text]
        for part, _ in changed:
            if not part.editable and part.kind not in ENDS:
                raise NotEditable(f"a part of the kind {part.kind} is not editable")
        return replace(self, raw=self.format.edit(self, changed), why=why) if changed else self

    def without_media(self, edits: Edits, why: str) -> Message:
        """The message with a text in place of some of its media; without those whose text is empty. Its tokens are not
        counted anew. Raises `NotEditable` for a part that is not removable, and where nothing would be left."""
        if not all(part.removable for part, _ in edits):
            raise NotEditable("a part is no media, or none that its API can leave out")
        return replace(self, raw=self.format.without_media(self, edits), why=why) if edits else self


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The messages in runs: one with calls and those that directly follow and answer it are one run, others stand
    alone. For the `MessageFormat` of an API in which calls stand in one message."""
    found: list[tuple[Message, ...]] = []
    waiting: frozenset[str] = frozenset()
    start = 0
    for place, message in enumerate(messages):
        answering = message.kind is Kind.RESULT or message.answers
        if answering and waiting and not (message.answers and waiting.isdisjoint(message.answers)):
            continue  # one without an id answers the calls that it follows
        if place:
            found.append(tuple(messages[start:place]))
        start = place
        waiting = frozenset([call.id for call in message.calls])
    return [*found, tuple(messages[start:])] if messages else found


def nowhere_misplaced(messages: Sequence[Message]) -> Collection[int]:
    """No place. For the `MessageFormat` of an API whose runs may stand anywhere."""
    return ()


def never_reasoning(message: Message) -> bytes | None:
    """None. For the `MessageFormat` of an API whose messages have no reasoning."""
    return None


def no_attachments(message: Message) -> tuple[Attachment, ...]:
    """None. For the `MessageFormat` of an API whose messages have no media that can be left out."""
    return ()


def never_media(message: Message, edits: Edits) -> bytes:
    """The message. For the `MessageFormat` of an API whose messages have no media that can be left out."""
    return message.raw


def never_detached(before: Sequence[Message], after: Sequence[Message]) -> Mapping[int, bytes]:
    """Nothing. For the `MessageFormat` of an API whose messages do not refer to others."""
    return {}


class Block(msgspec.Struct, frozen=True, gc=False):
    """The smallest run of messages that may go without breaking the protocol (section 1).

    `later` makes the block that is to stand in its place, in so many tokens as a rule, at least in `least`: a step
    decided that, but other steps may yet drop it, or have more room for it, and few of those that are to be shortened
    stay. Until then it counts as `most` tokens. `claimed`: the messages that claim parts of it, in order, each with the
    least from there on.
    """

    messages: tuple[Message, ...]
    pinned: bool = False
    later: Callable[[int], Block] | None = None
    most: int = 0
    least: int = 0
    claimed: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """What the block adds to the prompt; about, where it is not made yet."""
        if self.later is not None:
            return self.most
        found = 0
        for message in self.messages:  # a plan asks for it ten times a block: `sum` takes three times as long
            found += message.tokens
        return found

    @property
    def has_results(self) -> bool:
        """Whether it contains tool results."""
        for message in self.messages:
            if message.answers:
                return True
        return False

    @property
    def user(self) -> Message | None:
        """The message in which the user speaks; None where there is none."""
        for message in self.messages:
            if message.kind is Kind.USER:
                return message
        return None

    def made(self) -> Block:
        """The block as it will be sent."""
        return self if self.later is None else self.later(self.claimed[-1][1] if self.claimed else self.least)

    @property
    def whole(self) -> int:
        """What the block adds to the prompt if it is not shortened later."""
        return self.tokens if self.later is None else sum([message.tokens for message in self.messages])

    def within(self, room: int) -> Block:
        """The block made for a room of so many tokens: whole where it holds it, but in no fewer than `least`."""
        if self.later is None:
            return self
        return Block(self.messages, self.pinned) if room >= self.whole else self.later(max(room, self.least))


class Costs(StrEnum):
    """What a count can prove of a prompt's tokens."""

    PROVABLE = "provable"
    SEALED = "sealed"  # texts in it are encrypted by the provider: their lengths tell about what they cost
    UNPROVABLE = "unprovable"  # parts in it have a cost that no count can prove

    @classmethod
    def of(cls, unprovable: bool, sealed: bool = False) -> Costs:
        """From whether there are parts of either kind."""
        return cls.UNPROVABLE if unprovable else cls.SEALED if sealed else cls.PROVABLE


class ReplyLimit(msgspec.Struct, frozen=True, gc=False):
    """The reply limit that the client set in a `field` (None: it set none), and the `least` that its own options allow
    (a thinking budget)."""

    limit: int | None = None
    field: str = "max_tokens"
    least: int = 0


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What of a prompt its upstream has stored. `bound`: the request refers to it, so that no other upstream can serve
    it. `continues`: the id of what it goes on from, `appends` that its reply becomes a part of that, `tokens` how many
    that has (0: not known here)."""

    bound: bool = False
    continues: str = ""
    appends: bool = False
    tokens: int = 0


class Form(msgspec.Struct, frozen=True, gc=False):
    """How the messages of a prompt belong together. `texts`: they are no conversation, so that none may be added or
    left out. `apart`: each of them has the window to itself. `embeds`: they become vectors, and there is no reply.
    `compaction`: a summary of them is asked for, so that no next step needs anything of them in particular."""

    texts: bool = False
    apart: bool = False
    embeds: bool = False
    compaction: bool = False


NO_LIMIT, NO_REPLY = ReplyLimit(), ReplyLimit(0)
NOT_STORED, BOUND = Stored(), Stored(bound=True)
CONVERSATION, TEXT, EMBEDDED = Form(), Form(texts=True), Form(texts=True, apart=True, embeds=True)


class Prompt(msgspec.Struct, frozen=True):
    """What a client asked, understood: `head` is every top-level field, raw, in its order.

    `needs` is what a model must be able to do; `pins` further message indices the client pinned. How many answers it
    asks for does not matter: they share the prompt, but each has the window to itself. `api` is the name of its API,
    which decides how its JSON is counted. `managed`: the upstream itself shortens the prompt where it is long, so
    nothing is cut before it refuses. `placed`: the path of the request names its model. `definitions`: the tools
    that it defines, which are read when somebody asks.
    """

    model: str
    messages: tuple[Message, ...]
    head: Mapping[str, bytes] = {}
    reply: ReplyLimit = NO_LIMIT
    needs: frozenset[str] = frozenset()
    stream: bool = False
    pins: frozenset[int] = frozenset()
    costs: Costs = Costs.PROVABLE
    api: str = CHAT
    managed: bool = False
    stored: Stored = NOT_STORED
    form: Form = CONVERSATION
    placed: bool = False
    definitions: Definitions = NO_DEFINITIONS

    @property
    def opaque(self) -> bool:
        """Whether parts are in it whose cost no count can prove."""
        return self.costs is not Costs.PROVABLE
