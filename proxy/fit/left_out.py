"""Images and documents in messages, and the texts that stand in their place. It does not choose which are left out.

A text says what was left out. That of one of which the request has a later copy says where: it is checked at the end of
`plan`, when it is known what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded
from proxy.model.conversation import TEXTS, Attachment, Block, Message, Part
from proxy.model.image_size import size_of
from proxy.model.plan import Draft
from proxy.model.structs import replace

NAME = "media_notes"  # of the note in a plan
WHY = "old images or documents left out"
OUT = "[A proxy left out {what} here.]"
SAME = "[A proxy left out {what} here: it is the same as in {where}.]"
SAYS_SAME = re.compile(r"\[A proxy left out ([^\[\]]+) here: it is the same as in ([^\[\]]+)\.\]")
SAME_MARK = b" here: it is the same as in "
BASE64 = ";base64,"
BASE64_RATIO = 4 / 3  # characters for a byte
NAMED, QUOTED = 60, 40  # characters of a file's name, and of the beginning of a message
NO_QUOTES = str.maketrans(dict.fromkeys('[]"\r\n\t', " "))
MOST, MOST_BYTES = 20_000, 16 << 20  # messages with media, as they were read and as they were written
ENTRY, MEDIUM = 400, 300  # bytes in memory


class Medium(msgspec.Struct, frozen=True, gc=False):
    """An image or a document of a message. `key`: a digest of its content, 0 where that is not known. `what`: how texts
    name it. `where`: how they name the place in which it stands."""

    key: int
    what: str
    where: str

    @property
    def left_out(self) -> str:
        """The text that stands in its place."""
        return OUT.format(what=self.what)

    def same_as(self, copy: Medium) -> str:
        """The text that stands in its place where the request has a copy of it."""
        return SAME.format(what=self.what, where=copy.where)


READ: Bounded[tuple[int, int, int], tuple[Medium, ...]] = Bounded(MOST, MOST_BYTES)
WRITTEN: Bounded[tuple[tuple[int, int, int], tuple[str, ...]], bytes] = Bounded(MOST, MOST_BYTES)


def media_of(message: Message) -> tuple[Medium, ...]:
    """The images and documents of a message, in order."""
    key = _key(message)
    found = READ.get(key)
    if found is None:
        attached = message.format.attachments(message)
        found = _described(message, attached) if attached else ()
        READ.put(key, found, ENTRY + MEDIUM * len(found))
    return found


def written(message: Message, texts: Sequence[str]) -> Message:
    """The message with texts in place of its images and documents, in their order; those whose text is empty stay. Its
    tokens are not counted anew."""
    key = (_key(message), tuple(texts))
    raw = WRITTEN.get(key)
    if raw is None:
        attached = message.format.attachments(message)
        edits = [(one.part, text) for one, text in zip(attached, texts, strict=True) if text]
        raw = message.without_media(edits, WHY).raw
        WRITTEN.put(key, raw, ENTRY + len(raw) + sum(map(len, texts)))
    return replace(message, raw=raw, why=WHY)


def noted(first: Draft, draft: Draft) -> Draft:
    """The draft, in which no text names a copy that is not sent: where it is gone, the text says only what was left
    out. `first`: what the client sent."""
    if not any(SAME_MARK in message.raw for message in draft.messages):
        return draft
    theirs = {m.index: media_of(m) for m in first.messages}
    later: dict[int, set[str]] = {}  # by the content: where it stands behind the present message
    blocks: list[Block] = []
    for block in reversed(draft.blocks):
        messages: list[Message] = []
        for message in reversed(block.messages):
            had, has = theirs.get(message.index, ()), media_of(message)
            for medium in has:
                later.setdefault(medium.key, set()).add(medium.where)
            if len(has) < len(had) and SAME_MARK in message.raw:
                message = _with_known(message, set().union(*[later.get(one.key, ()) for one in had if one.key]))
            messages.append(message)
        same = all(a is b for a, b in zip(reversed(messages), block.messages, strict=True))
        blocks.append(block if same else replace(block, messages=draft.recount(messages[::-1])))
    blocks.reverse()
    same = all(a is b for a, b in zip(blocks, draft.blocks, strict=True))
    return draft if same else draft.with_blocks(blocks)


def _with_known(message: Message, known: set[str]) -> Message:
    """The message, in which texts name only these places."""

    def checked(found: re.Match[str]) -> str:
        return found[0] if found[2] in known else OUT.format(what=found[1])

    texts = [part for part in message.parts() if part.kind in TEXTS and part.editable]
    return message.edit([(part, SAYS_SAME.sub(checked, part.text)) for part in texts], WHY)


def _key(message: Message) -> tuple[int, int, int]:
    """The key of a message in this process, in which the hash of its bytes cannot be foreseen."""
    return hash(message.raw), len(message.raw), hash(message.format)


def _described(message: Message, attached: Sequence[Attachment]) -> tuple[Medium, ...]:
    own = _quoted(message.own_text())
    return tuple([_medium(one, own) for one in attached])


def _medium(attachment: Attachment, own: str) -> Medium:
    key = digest(attachment.source) if attachment.source else 0
    return Medium(key, _what(attachment), _where(attachment.part, own))


def _what(attachment: Attachment) -> str:
    """What it is: the size of an image in pixels, the name and the size of a document; as far as the body shows it."""
    source = attachment.source
    if not attachment.document:
        size = size_of(source)
        return "an image" if size is None else f"an image of {size[0]} x {size[1]}"
    name = _cut(attachment.name, NAMED)
    start = source.find(BASE64, 0, 200)
    size_in_bytes = int((len(source) - start - len(BASE64)) / BASE64_RATIO) if start >= 0 else 0
    found = f'the document "{name}"' if name else "a document"
    return f"{found} of {size_in_bytes:,} bytes" if size_in_bytes else found


def _where(part: Part, own: str) -> str:
    if part.call:
        return f"the result of call {part.call.translate(NO_QUOTES)}"
    return f'the later message "{own}"' if own else "a later message"


def _quoted(text: str) -> str:
    return _cut(text[: 4 * QUOTED], QUOTED)


def _cut(text: str, most: int) -> str:
    """A text in one line of at most so many characters, without quotation marks and brackets."""
    line = " ".join(text.translate(NO_QUOTES).split())
    return line if len(line) <= most else line[: most - 1] + "…"


Left = Mapping[tuple[int, int], Sequence[str]]  # by the places of a block and of a message in it: texts for its media


def without(draft: Draft, left: Left) -> Draft:
    """The draft with these texts in place of media. The same draft where that saves nothing."""
    blocks = list(draft.blocks)
    for place in {place for place, _ in left}:
        block = blocks[place]
        messages = [written(m, left[place, at]) if (place, at) in left else m for at, m in enumerate(block.messages)]
        made = replace(block, messages=draft.recount(messages))
        blocks[place] = made if made.tokens < block.tokens else block
    same = all(a is b for a, b in zip(blocks, draft.blocks, strict=True))
    return draft if same else draft.with_blocks(blocks)
