"""The upstream of the scripted day: counts prompts exactly, caches their prefixes as OpenAI does, and keeps a ledger.

    python -m tests.bench.budget_upstream PORT

It is the oracle of `tests.bench.budget_day`: what somebody spent is what stands here. It runs no model: an answer says
which facts the request has, so a client knows whether a model could have answered. Its prompt cache holds, by key,
prefixes of messages; what of a prompt stands there is read from 1,024 tokens on, in steps of 128, and never forgotten.
With `forgets`, that share of requests reads nothing all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
import uvloop

from proxy.tokens.meter import prompt_tokens

FACT = re.compile(rb"The [a-z]+ of [A-Z][a-z]+ is ([A-Z]{2}[0-9]{4})\.")
LEAST, STEP = 1_024, 128  # tokens of a cached prefix
BASE = 3  # tokens that begin the reply, once in a prompt
SAME, OTHER = 3, 1  # tokens of the head of the next message that are the same, where its role is, and where it is not
SHORTEST, LONGEST = 40, 120  # tokens of an answer
TALKATIVE = b"Write as much as you may."  # a last message after which an answer is as long as it may be
SECONDS = 0.05  # that an answer takes

_Fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Raws = msgspec.json.Decoder(list[msgspec.Raw])


class Told(msgspec.Struct):
    """What is read of a message."""

    role: str
    tool_calls: list[Any] = []


class Row(msgspec.Struct, array_like=True):
    """A request in the ledger. `began`, `ended`: seconds of one clock. `could`: the tokens that the cache held of it;
    `cached`: those that were read. `digest`: of the body as it came."""

    number: int
    key: str
    began: float
    ended: float
    prompt: int
    could: int
    cached: int
    completion: int
    digest: str

    @property
    def spent(self) -> int:
        """Tokens that are billed in full."""
        return self.prompt - self.cached + self.completion


@dataclass(slots=True)
class Book:
    """The ledger and the caches: by key, of each prefix the roles that came after it."""

    forgets: float = 0.0
    rows: list[Row] = field(default_factory=list)
    caches: dict[str, dict[bytes, set[str]]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def enter(self, key: str, body: bytes) -> Row:
        """A request that has come."""
        fields = _Fields.decode(body)
        raws = [bytes(raw) for raw in _Raws.decode(fields["messages"])]
        roles = [msgspec.json.decode(raw, type=Told).role for raw in raws]
        tools = bytes(fields.get("tools", b""))
        sums = prefix_tokens(tools, tuple(raws))
        could = self._cached(key, list(chained(tools, raws)), roles, sums)
        digest = blake2b(body, digest_size=16)
        chance = int.from_bytes(digest.digest()[:4]) / 2**32
        limit = msgspec.json.decode(fields["max_tokens"], type=int)
        said = limit if TALKATIVE in raws[-1] else min(limit, SHORTEST + digest.digest()[4] % (LONGEST - SHORTEST))
        cached = 0 if chance < self.forgets else could
        now = time.monotonic()
        row = Row(next(self.numbers), key, now, now, sums[-1] + BASE, could, cached, said, digest.hexdigest())
        self.rows.append(row)
        return row

    def _cached(self, key: str, digests: Sequence[bytes], roles: Sequence[str], sums: Sequence[int]) -> int:
        """The tokens of a prompt that the cache holds; all of it is in the cache from now on."""
        known, found = self.caches.setdefault(key, {}), 0
        after = [*roles[1:], "assistant"]
        for digest, role, total in zip(digests, after, sums, strict=True):
            if digest in known:
                found = total + (SAME if role in known[digest] else OTHER)
            known.setdefault(digest, set()).add(role)
        return 0 if found < LEAST else LEAST + (found - LEAST) // STEP * STEP

    def taken(self) -> list[Row]:
        """The ledger, which begins anew with the caches."""
        rows, self.rows = self.rows, []
        self.caches.clear()
        return rows


def chained(tools: bytes, raws: Sequence[bytes]) -> Iterator[bytes]:
    """A digest of each prefix."""
    digest = blake2b(tools, digest_size=16)
    for raw in raws:
        digest.update(b"%d:" % len(raw) + raw)
        yield digest.copy().digest()


def prefix_tokens(tools: bytes, raws: tuple[bytes, ...]) -> list[int]:
    """The tokens of a prompt up to the end of each message, without those that begin the reply. The first message is
    the instructions."""
    sums: list[int] = []
    before, block = _fixed(tools, raws[0]), 0
    for place, raw in enumerate(raws):
        if _role(raw) != "tool":
            before, block = (sums[-1] if sums else before), place
        sums.append(before + _tokens(raws[block : place + 1]))
    return sums


@lru_cache(1 << 16)
def _role(raw: bytes) -> str:
    return msgspec.json.decode(raw, type=Told).role


@lru_cache(1 << 16)
def _tokens(block: tuple[bytes, ...]) -> int:
    """The tokens of a message, or of one with calls and of its results."""
    return prompt_tokens("gpt-4o", {}, [[(_role(raw), raw) for raw in block]]) - BASE


@lru_cache(1 << 10)
def _fixed(tools: bytes, system: bytes) -> int:
    """The tokens of the tools after these instructions."""
    fields = {"tools": tools} if tools else {}
    return prompt_tokens("gpt-4o", fields, [[("system", system)]]) - _tokens((system,)) - BASE


def answer(row: Row, body: bytes) -> bytes:
    """The answer to a request, with the codes of all facts in it."""
    usage = {
        "prompt_tokens": row.prompt,
        "completion_tokens": row.completion,
        "total_tokens": row.prompt + row.completion,
        "prompt_tokens_details": {"cached_tokens": row.cached},
    }
    message = {"role": "assistant", "content": "It is as the files say."}
    told = {
        "id": f"chatcmpl-{row.number}",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
        "codes": sorted({code.decode() for code in FACT.findall(body)}),
    }
    return msgspec.json.encode(told)


async def serve(book: Book, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection. `GET /day?forgets=0.1` gives the ledger and begins another day."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            target = head.split(b" ", 2)[1]
            if target.startswith(b"/day"):
                told = msgspec.json.encode(book.taken())
                book.forgets = float(target.partition(b"forgets=")[2] or 0)
            elif head.startswith(b"POST "):
                key = re.search(rb"(?i)\r\nauthorization: *Bearer (\S+)", head)
                row = book.enter(key[1].decode() if key else "", body)
                await asyncio.sleep(SECONDS)
                row.ended = time.monotonic()
                told = answer(row, body)
            else:
                told = b'{"object":"list","data":[{"id":"gpt-4o","object":"model"}]}'
            kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            writer.write(kind + b"content-length: %d\r\n\r\n" % len(told) + told)
            await writer.drain()
    writer.close()


async def main(port: int) -> None:
    """Serves until it is killed."""
    book = Book()
    server = await asyncio.start_server(lambda r, w: serve(book, r, w), "127.0.0.1", port, limit=1 << 24, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
