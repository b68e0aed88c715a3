"""A planned prompt in pieces, for the model of prompt caches: digests and tokens of its prefixes.

What stands before the messages (tools, schemas) is the first piece. A message is cut into pieces of `GRAIN` bytes, so
that two long messages with the same beginning share it; the tokens of a message are spread evenly over its bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from xxhash import xxh3_64

from proxy.apis.anthropic_messages.caching import KEY, MARK
from proxy.fit.prompt_cache import Pieces
from proxy.model.conversation import Message, Prompt
from proxy.model.plan import Draft

GRAIN = 512  # bytes: about 128 tokens, the step of OpenAI's cache


def pieces_of(prompt: Prompt, head: bytes, draft: Draft) -> Pieces:
    """The pieces of a draft. `head`: the bytes that the cost besides the messages depends on."""
    hashed = xxh3_64(head)
    digests, tokens, marks = array("Q", [hashed.intdigest()]), array("Q", [draft.fixed]), array("Q")
    if MARK in head or MARK in prompt.head.get("tools", b""):
        marks.append(0)
    for message in draft.messages:
        before = tokens[-1]
        for end, digest in _prefixes(hashed, message):
            digests.append(digest)
            tokens.append(before + message.tokens * end // max(1, len(message.raw)))
        tokens[-1] = before + message.tokens
        if MARK in message.raw:
            marks.append(len(digests) - 1)
    if KEY in prompt.head and marks[-1:] != array("Q", [len(digests) - 1]):
        marks.append(len(digests) - 1)
    return Pieces(digests, tokens, marks)


def _prefixes(hashed: xxh3_64, message: Message) -> Iterable[tuple[int, int]]:
    """The ends of a message's pieces, each with the digest of all up to it."""
    raw = memoryview(message.raw)
    hashed.update(message.role.encode())
    for start in range(0, max(1, len(raw)), GRAIN):
        piece = raw[start : start + GRAIN]
        hashed.update(piece)
        yield start + len(piece), hashed.intdigest()
