"""Texts and lists of token ids, each a message: prompts of completions, inputs of embeddings (a `MessageFormat`).

The JSON of such a message is a string, or an array of numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from proxy.model import conversation
from proxy.model.conversation import Edits, Message, Part, PartKind
from proxy.model.lenient_json import BROKEN
from proxy.wire.scan import WHITESPACE, NotUnderstood

QUOTE, LIST = ord('"'), ord("[")
NUMBERS = b"-0123456789"
TAIL = 600  # characters at the end of a prompt that stay: a model goes on from there

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_IDS = msgspec.json.Decoder(list[int])

misplaced = conversation.nowhere_misplaced
attachments = conversation.no_attachments
without_media = conversation.never_media
without_reasoning = conversation.never_reasoning
detached = conversation.never_detached


def inputs_in(said: msgspec.Raw) -> list[msgspec.Raw]:
    """The texts and lists of ids in a field, which is one of them or a list of them.

    Raises `NotUnderstood` for anything else, and msgspec's errors for what is no JSON.
    """
    first = _first(said)
    if first == QUOTE:
        return [said]
    if first == LIST and _holds_numbers(said):
        return [said]
    items = _ITEMS.decode(said) if first == LIST else []
    if not items:
        raise NotUnderstood("it has no text and no token")
    if any(_first(item) not in (QUOTE, LIST) for item in items):
        raise NotUnderstood("an input is neither a text nor a list of tokens")
    return items


def is_list(said: msgspec.Raw) -> bool:
    """Whether a field of `inputs_in` is a list of inputs, not one of them."""
    return _first(said) == LIST and not _holds_numbers(said)


def count_ids(raw: bytes) -> int | None:
    """The number of ids in a message's JSON; None for a text. Raises msgspec's errors for a list of anything else."""
    return None if raw[0] == QUOTE else len(_IDS.decode(raw))


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Each message alone."""
    return [(message,) for message in messages]


def parts(message: Message) -> tuple[Part, ...]:
    """The text or the ids of a message. The end of a text that may be shortened anywhere is a part of its own, which
    stays. Of JSON that cannot be decoded: one opaque part. Never raises."""
    try:
        if message.raw[0] != QUOTE:
            ids = ",".join(map(str, _IDS.decode(message.raw)))
            return (Part(PartKind.TOKENS, ids, editable=False),)
        text = _TEXT.decode(message.raw)
    except BROKEN:
        return (Part(PartKind.OPAQUE, message.raw.decode("utf-8", "replace"), editable=False),)
    if message.keep:
        return (Part(PartKind.INPUT, text, editable=False),)
    if len(text) <= 2 * TAIL:
        return (Part(PartKind.TEXT, text, whole=True),)
    end = len(text) - TAIL
    return Part(PartKind.TEXT, text[:end], place=(0,)), Part(PartKind.TEXT, text[end:], place=(1,), editable=False)


def edit(message: Message, edits: Edits) -> bytes:
    """The message's JSON with another text, or with other ids."""
    changed = {part.place: text for part, text in edits}
    found = [changed.get(part.place, part.text) for part in message.parts()]
    if message.raw[0] != QUOTE:
        return b"[" + found[0].encode() + b"]"
    return msgspec.json.encode("".join(found))


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The message: it has no results."""
    return message.raw


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """None: they belong to different answers."""
    return None


def write(text: str) -> bytes:
    """The JSON of a text."""
    return msgspec.json.encode(text)


def together(messages: Collection[Message], *, listed: bool) -> bytes:
    """The field that contains these messages: one of them as it is, or a list of them."""
    raws = [message.raw for message in messages]
    return b"[" + b",".join(raws) + b"]" if listed else raws[0]


def _holds_numbers(said: msgspec.Raw) -> bool:
    """Whether a list begins with a number, so that it is one input. Its items are not decoded: each would take 100
    bytes."""
    view, at = memoryview(said), 1
    while at < view.nbytes and view[at] in WHITESPACE:
        at += 1
    return at < view.nbytes and view[at] in NUMBERS


def _first(raw: msgspec.Raw) -> int:
    view = memoryview(raw)
    return view[0] if view.nbytes else 0
