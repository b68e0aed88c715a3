"""What the scans of all APIs share: digests of prefixes, numbers, and why a body was not understood.

Theory of operation. A conversation is sent whole at every turn: each body is the one before it and some more messages.
Two values avoid counting and reading the old messages again.

* `PrefixDigest`: digests of messages, each digest of a message and of all messages before it. A count of messages is
  remembered under the digest of the last one, so of a longer conversation only the new messages are counted. The seed
  covers all else that counts depend on (the model, the tools). The hash state is kept: later messages continue it.
* `KnownPrefix`: the place in a body, in bytes, at which its last message ended. A later body that begins with the same
  bytes is scanned without them: `without_prefix` cuts the known messages out, and the API decodes the remaining JSON.
  The state that the known messages left (`ScanState`, `PrefixDigest`) is continued.

The names of JSON keys are arguments: every API has its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from xxhash import xxh3_64

from proxy.model.lenient_json import UNREADABLE, raw_value
from proxy.model.outcome import TIERS
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan

MAX_NUMBER = 10**15  # a larger number is no count, and would overflow later arithmetic
LATEST = 64  # digests that are kept: a conversation that grew by more messages in one turn is counted anew
NULL = msgspec.Raw(b"null")
HIGH, LOW = rb"[dD][89abAB][0-9a-fA-F]{2}", rb"[dD][c-fC-F][0-9a-fA-F]{2}"  # behind \\u: the halves of a pair
ESCAPES = rb"(?:(?<=(?<!\\)..)|(?<=(?<!\\)\\\\..))"  # behind its \\u: no escaped backslash, or behind one
HALF = re.compile(rb"\\u%b(?:%b(?!\\u%b)|(?<!\\u%b\\u)%b)" % (ESCAPES, HIGH, LOW, HIGH, LOW), re.DOTALL)
MAX_REPAIRED = 1 << 21  # bytes of a body that is searched for lone halves: a search holds the interpreter's lock
WHITESPACE = b" \t\r\n"
CUT_OFF = "Input data was truncated"  # msgspec's own words

Update = Callable[[bytes | msgspec.Raw], object]  # of a hash
M = TypeVar("M")
R = TypeVar("R")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class NotUnderstood(ValueError):
    """The body is no request that can be planned. The text says why and contains nothing of the body."""


def reason(error: Exception) -> str:
    """Where and why a decoder stopped, without anything of the text."""
    if isinstance(error, (UnicodeDecodeError, RecursionError)):
        return "it is not valid JSON"
    return "its JSON ends too early, as if it was cut off" if str(error) == CUT_OFF else str(error)


def unreadable(error: Exception, body: bytes) -> NotUnderstood:
    """Why a body could not be decoded: one of `UNREADABLE` stopped the decoder."""
    return NotUnderstood(reason(error) if body.strip() else "it is empty")


def decoded_request(
    decoder: msgspec.json.Decoder[R], body: bytes, known: KnownPrefix | None, key: str
) -> tuple[R, bytes, KnownPrefix | None]:
    """The request in a body, the bytes that were decoded, and the prefix that these are without: `known`, or none if
    what follows it cannot be decoded alone. `key` is the field of the list of messages. Raises `NotUnderstood`."""
    if known is not None:
        text = without_prefix(body, known, key)
        if text is not None:
            try:
                return decoder.decode(text), text, known
            except UNREADABLE:
                pass  # the reason must be about the body that the client sent
    try:
        return decoder.decode(body), body, None
    except UNREADABLE as error:
        raise unreadable(error, body) from None


def asked_tier(raw: msgspec.Raw) -> str:
    """The tier of service that a request asks for, a value of `TIERS`; empty for any that has no price of its own."""
    name = raw_value(raw)
    return TIERS.get(name.lower(), "") if isinstance(name, str) else ""


def check_count(count: int) -> None:
    """Checks the number of choices that a request asks for. Raises `NotUnderstood`."""
    if not 1 <= count <= MAX_NUMBER:
        raise NotUnderstood("n is less than 1, or far too large")


def token_limit(value: float | None) -> int | None:
    """The reply limit in tokens that a client's number means, None for no limit.

    A number under 1 means no limit: several clients send -1 or 0 for that. Raises `NotUnderstood` for a number that is
    not whole or is larger than any window.
    """
    if value is None:
        return None
    if value != value // 1 or value > MAX_NUMBER:
        raise NotUnderstood("a limit is not a whole number, or far too large")
    return int(value) if value >= 1 else None


def prefix_digest(
    scan: Callable[[bytes], Scan],
    body: bytes,
    messages: Sequence[M],
    known: KnownPrefix | None,
    hash_message: Callable[[Update, M], None],
    seed: int,
) -> PrefixDigest | None:
    """The digests of the known messages and of `messages`, which follow them; None if there are no messages.

    `hash_message(update, message)` hashes all of a message that its count depends on. `body` and `scan` are for a
    digest under another seed than the known prefix has: then the whole body is scanned again.
    """
    if known is not None and known.marks.seed != seed:
        again = scan(body).marks
        return None if again is None else again(seed)
    before = None if known is None else known.marks
    state = xxh3_64(seed=seed) if before is None else before.state.copy()
    update, digest = state.update, state.intdigest
    first, count = (None, 0) if before is None else (before.first, before.count)
    latest = [] if before is None else [*before.latest]
    kept_from = len(messages) - LATEST
    for place, message in enumerate(messages):
        hash_message(update, message)
        if place >= kept_from:
            latest.append(digest())
        elif first is None:
            first = digest()
    if not latest:
        return None
    if len(latest) > LATEST:
        latest = latest[-LATEST:]
    return PrefixDigest(seed, latest[0] if first is None else first, count + len(messages), latest, state)


def known_prefix(body: bytes, scan: Scan, digest: PrefixDigest, key: str) -> KnownPrefix | None:
    """All messages of a scanned body as a prefix that a later body may begin with.

    `key` is the field of the list of messages. None if nothing in the body is new, or if it is not certain where the
    messages stand.
    """
    text, known = scan.text, scan.known
    if scan.seen.keyed or (known is not None and known.marks.count == digest.count and known.marks.seed == digest.seed):
        return None
    raw = bytes(_FIELDS.decode(text)[key])
    quoted = _quoted(key)
    at = text.find(quoted) + len(quoted)
    while text[at : at + 1] in (b":", b" ", b"\t", b"\r", b"\n"):
        at += 1
    if not text.startswith(raw, at):
        return None  # the first such key is somewhere else
    end = at + len(raw[:-1].rstrip(WHITESPACE))
    lead = bytes(_LIST.decode(raw)[0]) if scan.seen.led and known is None else b""
    if known is None:
        return KnownPrefix(at + 1, end, lead, scan.seen, digest)
    return KnownPrefix(known.start, end + len(body) - len(text), known.lead, scan.seen, digest)


def without_prefix(body: bytes, known: KnownPrefix, key: str) -> bytes | None:
    """The body without its known messages; None if it does not continue as a list under `key` must."""
    at, end = known.end, len(body)
    while at < end and body[at] in WHITESPACE:
        at += 1
    if body[at : at + 1] == b",":
        at += 1
    elif body[at : at + 1] != b"]":
        return None
    if body.find(_quoted(key), at) >= 0:
        return None  # of two fields of one name the last counts
    return body[: known.start] + body[at:]


def _quoted(key: str) -> bytes:
    return b'"%b"' % key.encode()


def without_lone_surrogates(body: bytes) -> bytes | None:
    """The body with U+FFFD for every escaped half of a surrogate pair that stands alone, as tokenizers read it.

    None if it has none, or is longer than `MAX_REPAIRED`. JavaScript strings that were cut inside an emoji make such
    JSON.
    """
    found = HALF.sub(rb"\\ufffd", body) if len(body) <= MAX_REPAIRED else body
    return None if found == body else found
