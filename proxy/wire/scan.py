"""A first look at a chat request: what it asks for, and what its bytes prove of its length; contents are left unread.

Of a conversation that grew, a `KnownPrefix` of messages that was read before is not read again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import msgspec
from xxhash import xxh3_64

from proxy.model import oversized_json
from proxy.model.names import name_of
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan, ScanState

RESULTS = ("tool", "function")
INSTRUCTIONS = ("system", "developer")
QUOTED = {role: b'"%s"' % role.encode() for role in (*INSTRUCTIONS, "user", "assistant", *RESULTS)}
# Parts and fields whose cost no count of bytes bounds: an image by URL, a file by id, hidden search context, ...
UNPROVABLE_PARTS = (b'"image', b'_image"', b'"video', b'_video"', b'audio"', b'"file', b'_file"', b'"document')
SEARCHES = ("web_search_options", "search_parameters", "plugins", "enable_search")  # what they find is in the prompt
UNPROVABLE_HEAD = (*SEARCHES, "prediction", "audio", "modalities")
# The fields that decide what a prompt costs besides its messages.
COSTLY = attrgetter("tools", "functions", "response_format", "tool_choice", "function_call", *UNPROVABLE_HEAD)
REFERS = b'"$ref"'  # a schema that refers to its own parts is written out in full: it may grow without bound
# Where more may be counted than there are bytes: a call's arguments are parsed and written again (five bytes of 1e15,
# become nine tokens), and results of parallel calls as ASCII JSON with blanks (two bytes of a letter become six).
WRITTEN, ESCAPED = 2, 3
LIST = ord("[")
MOST = 10**15  # larger numbers overflow what we reckon with
LATEST = 64  # marks that are kept: a conversation that grew by more messages in one turn is counted anew
NULL = msgspec.Raw(b"null")
HIGH, LOW = rb"[dD][89abAB][0-9a-fA-F]{2}", rb"[dD][c-fC-F][0-9a-fA-F]{2}"  # behind \\u: the halves of a pair
ESCAPES = rb"(?:(?<=(?<!\\)..)|(?<=(?<!\\)\\\\..))"  # behind its \\u: no escaped backslash, or behind one
HALF = re.compile(rb"\\u%b(?:%b(?!\\u%b)|(?<!\\u%b\\u)%b)" % (ESCAPES, HIGH, LOW, HIGH, LOW), re.DOTALL)
MENDED = 1 << 21  # bytes of a body that are looked through for such: a search holds the interpreter's lock
KEY = b'"messages"'
BLANKS = b" \t\r\n"


class NotUnderstood(ValueError):
    """The body is no chat request that we can plan with; its text says why and holds nothing of the body."""


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = NULL
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw = NULL
    tool_call_id: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    refusal: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Top(msgspec.Struct, gc=False):
    model: str
    messages: list[_Message]
    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None
    n: int | None = None
    stream: bool | None = None
    tools: msgspec.Raw = NULL
    functions: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    function_call: msgspec.Raw = NULL
    web_search_options: msgspec.Raw = NULL
    search_parameters: msgspec.Raw = NULL
    plugins: msgspec.Raw = NULL
    enable_search: msgspec.Raw = NULL
    prediction: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    modalities: msgspec.Raw = NULL


_TOP = msgspec.json.Decoder(_Top)
_ARRAY = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
CHEAP = COSTLY(_Top("", []))  # of a request that has none of them, as most are
CHEAP_HEAD = b"\0".join(CHEAP)
UNSEEN = ScanState()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """A first look, in one pass and with contents left unread. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens: a byte-level tokenizer never makes more tokens than there are bytes, and
    the frame that a message costs is shorter than its JSON; only what is rewritten may grow (`WRITTEN`, `ESCAPED`).
    Instructions that stand first behind other messages are no part of what the first message costs: no marks then.

    `known` is a stretch that the body begins with, byte for byte: whoever gives it has compared them.
    """
    text = body if known is None else _without(body, known)
    if known is not None and text is None:
        return scan(body)
    assert text is not None
    try:
        top = _TOP.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if known is not None:
            return scan(body)  # so that the reason speaks of the body that the client sent
        raise NotUnderstood(reason(error) if text.strip() else "it is empty") from None
    asks = [ask for said in (top.max_completion_tokens, top.max_tokens) if said is not None if (ask := limit_of(said))]
    if top.n is not None:
        checked(top.n)
    seen = UNSEEN if known is None else known.seen
    if top.messages:
        seen = _looked(top.messages, seen)
    costly = COSTLY(top)
    cheap = costly == CHEAP
    bounded = not seen.opaque and not seen.heard and (cheap or not _unprovable(top))
    return Scan(
        name_of(top.model),
        max(asks) if asks else None,
        bool(top.stream),
        len(body) + seen.surplus if bounded else None,
        CHEAP_HEAD if cheap else b"\0".join(costly),
        None if seen.opaque or seen.late else partial(_marks, body, top.messages, known),
        seen,
        known,
        text,
    )


def _looked(messages: Sequence[_Message], before: ScanState) -> ScanState:
    count, opaque, heard, surplus = before.count, before.opaque, before.heard, before.surplus
    late, parallel, keyed = before.late, before.parallel, before.keyed
    led = before.led if count else messages[0].role in INSTRUCTIONS
    for place, m in enumerate(messages, count):  # one pass: a long conversation has thousands
        content = m.content
        if memoryview(content)[0] == LIST and not opaque:
            opaque = oversized_json.holds(content, UNPROVABLE_PARTS)
        if m.tool_calls:
            parallel = len(m.tool_calls) > 1
            surplus += (WRITTEN - 1) * sum(map(_size, m.tool_calls))
        elif parallel and m.role in RESULTS:
            surplus += (ESCAPED - 1) * _size(content)
        if m.function_call is not NULL:
            surplus += (WRITTEN - 1) * _size(m.function_call)
        if m.audio is not NULL and bytes(m.audio) != b"null":
            heard = True
        if m.plimsoll is not NULL:
            keyed = True
        if place and m.role in INSTRUCTIONS and not led:
            late = True
    return ScanState(count + len(messages), opaque, heard, surplus, late, parallel, keyed, led)


def _marks(body: bytes, messages: Sequence[_Message], known: KnownPrefix | None, seed: int) -> PrefixDigest | None:
    """Digests of messages, each of all that counts in it and in those before it: JSON values one after another cannot
    be mistaken for others. None where there are no messages."""
    if known is not None and known.marks.seed != seed:
        again = scan(body).marks
        return None if again is None else again(seed)
    before = None if known is None else known.marks
    running = xxh3_64(seed=seed) if before is None else before.state.copy()
    update, digest = running.update, running.intdigest
    first, count = (None, 0) if before is None else (before.first, before.count)
    latest = [] if before is None else [*before.latest]
    kept_from = len(messages) - LATEST
    for place, m in enumerate(messages):
        update(QUOTED.get(m.role) or msgspec.json.encode(m.role))  # a made-up role must not pass for other messages
        update(m.content)
        if m.tool_calls is not None or m.tool_call_id is not NULL or m.name is not NULL:
            for raw in m.tool_calls or ():
                update(raw)
            update(b"|")
            update(m.tool_call_id)
            update(m.name)
        if m.function_call is not NULL or m.refusal is not NULL:
            update(b"||")
            update(m.function_call)
            update(m.refusal)
        if place >= kept_from:
            latest.append(digest())
        elif first is None:
            first = digest()
    if not latest:
        return None
    if len(latest) > LATEST:
        latest = latest[-LATEST:]
    return PrefixDigest(seed, latest[0] if first is None else first, count + len(messages), latest, running)


def known_prefix_of(body: bytes, seen: Scan, marks: PrefixDigest) -> KnownPrefix | None:
    """All messages of a body as a stretch that a later one may begin with; None where nothing is new in it, or where
    it cannot be said for certain where they stand."""
    text, known = seen.text, seen.known
    if seen.seen.keyed or (known is not None and known.marks.count == marks.count and known.marks.seed == marks.seed):
        return None
    head = _ARRAY.decode(text)
    raw = bytes(head["messages"])
    at = text.find(KEY) + len(KEY)
    while text[at : at + 1] in (b":", b" ", b"\t", b"\r", b"\n"):
        at += 1
    if not text.startswith(raw, at):
        return None  # the first such key stands somewhere else
    end = at + len(raw[:-1].rstrip(BLANKS))
    lead = bytes(_LIST.decode(raw)[0]) if seen.seen.led and known is None else b""
    if known is None:
        return KnownPrefix(at + 1, end, lead, seen.seen, marks)
    return KnownPrefix(known.start, end + len(body) - len(text), known.lead, seen.seen, marks)


def _without(body: bytes, known: KnownPrefix) -> bytes | None:
    """The body without its messages that are known; None where it does not go on as it must."""
    at, end = known.end, len(body)
    while at < end and body[at] in BLANKS:
        at += 1
    if body[at : at + 1] == b",":
        at += 1
    elif body[at : at + 1] != b"]":
        return None
    if body.find(KEY, at) >= 0:
        return None  # of two fields of one name the last counts
    return body[: known.start] + body[at:]


def _size(raw: msgspec.Raw) -> int:
    return memoryview(raw).nbytes


def _unprovable(top: _Top) -> bool:
    """Whether something stands beside its messages whose cost its bytes do not bound."""
    for value in (top.web_search_options, top.prediction, top.audio, top.modalities):
        if value is not NULL and bytes(value) != b"null":
            return True
    return any(
        schema is not NULL and REFERS in bytes(schema) for schema in (top.tools, top.functions, top.response_format)
    )


def checked(count: int) -> None:
    """Sees that a number of answers can be. Raises `NotUnderstood`."""
    if not 1 <= count <= MOST:
        raise NotUnderstood("n is less than 1, or no number of anything")


def limit_of(said: float | None) -> int | None:
    """The reply limit that a client's figure means. Under 1 it means none: several clients say -1 for that, and 0.
    Raises `NotUnderstood` for what is no whole number, or beyond all windows."""
    if said is None:
        return None
    if said != said // 1 or said > MOST:
        raise NotUnderstood("a limit is no whole number, or no number of anything")
    return int(said) if said >= 1 else None


def mended(body: bytes) -> bytes | None:
    """The body with the sign for a character that is none in place of every half of a pair that stands alone, as
    tokenizers read it; None where it has none, or is very long. JavaScript's strings, cut in the middle of an emoji,
    make such JSON."""
    found = HALF.sub(rb"\\ufffd", body) if len(body) <= MENDED else body
    return None if found == body else found


ENDED = "Input data was truncated"  # msgspec's own words


def reason(error: Exception) -> str:
    """What a decoder says of where it stopped, without anything of the text."""
    if isinstance(error, (UnicodeDecodeError, RecursionError)):
        return "it is no JSON that we understand"
    return "its JSON ends too early, as if it was cut off" if str(error) == ENDED else str(error)
