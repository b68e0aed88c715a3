"""A planned prompt in pieces, for the model of prompt caches: digests and tokens of its prefixes.

What stands before the messages (tools, schemas) is the first piece. A message is cut into pieces of `GRAIN` bytes, so
that two long messages with the same beginning share it; the tokens of a message are spread evenly over its bytes. Marks
of what is to be cached are no part of a prompt: their places are kept, their bytes are not.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from xxhash import xxh3_64

from proxy.apis import apis
from proxy.fit.prompt_cache import Pieces
from proxy.model.conversation import Kind, Message, Prompt
from proxy.model.lenient_json import BROKEN
from proxy.model.plan import Draft
from proxy.wire.cache_marks import KEY, MARK, without_marks
from proxy.wire.openai import breakpoints

OPTIONS = "prompt_cache_options"  # of OpenAI: with the mode "explicit", only marks of the client are breakpoints
BLOCKS_OF = {api.name: api.cache_blocks for api in apis()}
GRAIN = 512  # bytes: about 128 tokens, the step of OpenAI's cache


def pieces_of(prompt: Prompt, head: bytes, draft: Draft) -> Pieces:
    """The pieces of a draft. `head`: the bytes that the cost besides the messages depends on."""
    if draft.definitions.changed:
        head = b"\0".join((head, *draft.definitions.fields.values()))
    hashed = xxh3_64(without_marks(head))
    digests, tokens, marks = array("Q", [hashed.intdigest()]), array("Q", [draft.fixed]), array("Q")
    if MARK in head:
        marks.append(0)
    newest, implicit = -1, b'"explicit"' not in prompt.head.get(OPTIONS, b"")
    blocks_of = BLOCKS_OF[prompt.api] if MARK in head or any(MARK in m.raw for m in draft.messages) else None
    for message in draft.messages:
        before, done = tokens[-1], 0
        blocks = [message.raw] if blocks_of is None else _blocks(message, blocks_of)
        whole = max(1, sum(map(len, blocks)))
        hashed.update(message.role.encode())
        for block in blocks:
            for size, digest in _prefixes(hashed, without_marks(block)):
                digests.append(digest)
                tokens.append(before + message.tokens * min(done + size, whole) // whole)
            done += len(block)
            if MARK in block:
                marks.append(len(digests) - 1)
        tokens[-1] = before + message.tokens
        if breakpoints.MARK in message.raw:
            marks.append(len(digests) - 1)
        if message.kind in (Kind.USER, Kind.RESULT) and implicit:
            newest = len(digests) - 1
    if KEY in prompt.head and marks[-1:] != array("Q", [len(digests) - 1]):
        marks.append(len(digests) - 1)
    return Pieces(digests, tokens, marks, newest)


def _blocks(message: Message, blocks_of: Callable[[Message], Sequence[bytes]]) -> list[bytes]:
    """The blocks of a message; itself where they cannot be read."""
    try:
        return [bytes(block) for block in blocks_of(message)] or [message.raw]
    except BROKEN:
        return [message.raw]


def _prefixes(hashed: xxh3_64, raw: bytes) -> Iterator[tuple[int, int]]:
    """The ends of the pieces of some bytes, each with the digest of all up to it."""
    for start in range(0, max(1, len(raw)), GRAIN):
        piece = raw[start : start + GRAIN]
        hashed.update(piece)
        yield start + len(piece), hashed.intdigest()
