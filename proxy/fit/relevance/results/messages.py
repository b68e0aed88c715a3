"""Shortens tool results, arguments of old calls and old answers inside messages, with a cache of the results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import msgspec
from msgspec.structs import replace

from proxy.fit.nested import decoded
from proxy.fit.relevance.results.read_on import NO_NAMES, ArgumentNames, read_on
from proxy.fit.relevance.results.results import shorten
from proxy.fit.relevance.results.sources import Source, leaves
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.shorten import head_and_tail, shorten_message, shortened
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Kind, Message, Part, PartKind
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter

MAX_CACHED, MAX_CACHED_BYTES = 20_000, 16 << 20  # shortened messages of a hundred long conversations
MAX_BRIEF, MAX_BRIEF_BYTES = 20_000, 12 << 20  # short forms of old blocks: those of some sixty long runs
ENTRY, MESSAGE = 256, 64  # bytes of a cache entry besides its messages, and of a message in it
LONG_ARGUMENT = 100  # tokens of a string in an old call's arguments; a file that was written then is on disk now
FRAME = 64  # the most tokens of a message besides its text
SHORT_CALL = 20_000  # bytes of arguments; in a longer call the tokens around them are next to nothing
ANSWER = 60  # tokens of an old answer that stays only to complete a round
ANSWER_WHY = "old answer"
RESULT_WHY, OLD_WHY, CALL_WHY = "tool result over its cap", "old tool result", "arguments of an old call"

Short = tuple[str, bytes]  # the reason why a message was shortened, and its JSON
SHORTENED: Bounded[int, Short] = Bounded(MAX_CACHED, MAX_CACHED_BYTES)
BRIEF: Bounded[Hashable, tuple[Short | None, ...]] = Bounded(MAX_BRIEF, MAX_BRIEF_BYTES)  # None: not shortened
AS_IS: Short = ("", b"")


def costs_of_results(message: Message, meter: Meter) -> list[tuple[str, int]]:
    """(call id, tokens) of each result in a message. If the result is the whole message, its tokens are the message's;
    otherwise those of its text."""
    if not message.answers:
        return []
    if message.kind is Kind.RESULT and len(message.answers) == 1:
        return [(message.answers[0], message.tokens)]
    found = parts_of_results(message)
    return [(call, meter.text("".join([part.text for part in found[call]]))) for call in found]


def parts_of_results(message: Message) -> dict[str, list[Part]]:
    """The parts of each result in a message, by the id of its call."""
    found: dict[str, list[Part]] = {call: [] for call in message.answers}
    for part in message.parts():
        if part.kind is PartKind.RESULT and part.call in found:
            found[part.call].append(part)
    return found


def shorten_results(
    message: Message,
    limits: Mapping[str, int],
    source: Source,
    meter: Meter,
    *,
    cap_chars: int | None = None,
    preview: int | None = None,
    names: ArgumentNames = NO_NAMES,
    why: str = RESULT_WHY,
    says_who: bool = False,
) -> Message:
    """The message with the results of these calls shortened, each to at most so many tokens of text, for the queries of
    `source`. The same message if there is nothing to shorten. `tokens` of the returned message is not updated.
    `says_who`: the first note says that a proxy has left something out; without, `Message.again` makes that.

    All of them at once: a message may have thousands, and its JSON is decoded and written once.
    """

    def edits(call: str, limit: int, parts: Sequence[Part]) -> list[tuple[Part, str]]:
        query, arguments = source.query(call), source.arguments(call)
        too_long = len(parts) == 1 and parts[0].whole and message.tokens > limit + FRAME

        def choose(text: str, room: int) -> str:
            again = read_on(arguments, text, names, source.declared(call), says_who=says_who and call == named)
            return shorten(
                text, room, query, meter, cap_chars=cap_chars, preview=preview, too_long=too_long, call=again
            )

        return shortened(parts, meter, limit, choose)

    def made() -> Message:
        parts = parts_of_results(message)
        return message.edit([edit for call, limit in limits.items() for edit in edits(call, limit, parts[call])], why)

    named = next(iter(limits), "")  # the oldest of them
    how = f"results {dict(limits)} {cap_chars} {preview} {source.mark} {_written(names)} {says_who} {why}"
    short = _cached(message, made, meter, how)
    if short is message or says_who:
        return short
    same = partial(
        shorten_results, source=source, meter=meter, cap_chars=cap_chars, preview=preview, names=names, why=why
    )
    return replace(short, again=Again(message, short.raw, limits, meter, same))


@lru_cache(maxsize=64)
def _written(names: ArgumentNames) -> str:
    return str(names)


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """Shortens the results of a message once more, with a note that says who did, to the same limits, or `tight`: in
    no more tokens than they have. `raw`: as they were shortened; what another step has written since is not touched.
    `shorten`: `shorten_results`."""

    message: Message
    raw: bytes
    limits: Mapping[str, int]
    meter: Meter
    shorten: Callable[..., Message]

    def __call__(self, short: Message, tight: bool) -> Message:
        if short.raw != self.raw:
            return short
        limits = self.limits
        if tight:
            texts = {call: "".join([part.text for part in parts]) for call, parts in parts_of_results(short).items()}
            limits = {call: min(limit, self.meter.text(texts[call])) for call, limit in limits.items()}
        return replace(short, raw=self.shorten(self.message, limits, says_who=True).raw, again=None)

    def __eq__(self, other: object) -> bool:  # what it makes follows from the message that has it
        return isinstance(other, Again)

    def __hash__(self) -> int:
        return hash(Again)


def shorten_arguments(message: Message, source: Source, meter: Meter, limit: int = LONG_ARGUMENT) -> Message:
    """An assistant message with every string in its calls' arguments shortened to at most `limit` tokens; the arguments
    stay JSON. The same message if none is longer."""
    if message.tokens <= limit or not message.calls:
        return message

    def made() -> Message:
        query = ResultQuery("" if source.user is None else source.user.text)
        calls = [part for part in message.parts() if part.kind is PartKind.CALL and part.editable]
        return message.edit([(part, _arguments(part, query, meter, limit)) for part in calls], CALL_WHY)

    return _cached(message, made, meter, f"call {limit} {source.mark}")


def _arguments(call: Part, query: ResultQuery, meter: Meter, limit: int) -> str:
    try:
        arguments = decoded(call.text)
    except msgspec.DecodeError:
        return call.text
    shorter = _strings(arguments, lambda text: shorten(text, limit, query, meter))
    return call.text if shorter == arguments else msgspec.json.encode(shorter).decode()


def _strings(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _strings(item, change) for key, item in value.items()}
    return [_strings(item, change) for item in value] if isinstance(value, list) else value


def brief_cost(block: Block, source: Source | None, meter: Meter, limit: int, names: ArgumentNames = NO_NAMES) -> int:
    """An estimate of the tokens of `brief_block`, which is expensive to compute for every block. In runs of agents the
    sum of all estimates is within a hundredth of the real one. Exact where no estimate is possible: for messages with
    images and for answers in words."""
    if source is None:
        return brief_block(block, None, meter, limit).tokens
    long = [m for m in block.messages if m.answers and m.tokens > limit]
    if not all(any(part.whole for part in m.parts()) for m in long):
        return brief_block(block, source, meter, limit, names).tokens
    return sum(min(m.tokens, limit) if m.answers else _brief_call(m, meter) for m in block.messages)


def _brief_call(message: Message, meter: Meter) -> int:
    """An estimate of the tokens of an assistant message with each argument shortened to `LONG_ARGUMENT`.

    The arguments are counted without what an API adds for a call, which stays: for Claude 65 tokens. If it were counted
    as theirs, most short forms would be longer than estimated, and cuts would be chosen again (`prune_history`).
    """
    if message.tokens <= LONG_ARGUMENT or not message.calls:
        return message.tokens
    parts = message.parts()
    calls = [part for part in parts if part.kind is PartKind.CALL]
    if not all(part.editable for part in calls):
        return message.tokens
    try:
        arguments = [decoded(part.text) for part in calls]
        written = b"".join(map(msgspec.json.encode, arguments))
        sizes = [len(msgspec.json.encode(text)) for value in arguments for text in leaves(value)]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return message.tokens
    tokens = meter.text(written.decode()) if len(written) <= SHORT_CALL else message.tokens
    each = tokens / max(1, len(written))
    return message.tokens - sum(max(0, int(each * size) - LONG_ARGUMENT) for size in sizes)


def brief_block(
    block: Block, source: Source | None, meter: Meter, limit: int, names: ArgumentNames = NO_NAMES
) -> Block:
    """The short form of an old block, with its tokens counted: each result in at most `limit` tokens, calls without
    long arguments, an answer in words in `ANSWER` tokens. The same block if that saves nothing. `names`: see
    `read_on`."""
    if source is None:
        return _brief_answer(block, meter)
    key = None if source.claimed else _key_of_brief(block, source, meter, limit, names)
    known = None if key is None else BRIEF.get(key)
    if known is None:
        messages = tuple(_brief(m, source, meter, limit, names) for m in block.messages)
        if key is not None:
            made = zip(messages, block.messages, strict=True)
            known = tuple([None if new is old else (new.why, new.raw) for new, old in made])
            BRIEF.put(key, known, ENTRY + sum([MESSAGE + len(short[1]) for short in known if short is not None]))
    else:
        each = zip(block.messages, known, strict=True)
        messages = tuple(
            [m if short is None else _as_known(m, short, source, meter, limit, names) for m, short in each]
        )
    return _shorter(block, messages, meter)


def _key_of_brief(block: Block, source: Source, meter: Meter, limit: int, names: ArgumentNames) -> Hashable:
    """What a block's short form depends on. Of the messages' JSON hashes are enough: they differ from process to
    process."""
    messages, user, tools = block.messages, source.user, source.tools()
    said = tuple([(hash(m.raw), len(m.raw), m.tokens) for m in messages])
    declared = tuple([tools.get(call.name, ()) for m in messages for call in m.calls]) if tools else ()
    return (said, messages[0].format, 0 if user is None else user.mark, declared, meter.key, limit, names)


def _brief(message: Message, source: Source, meter: Meter, limit: int, names: ArgumentNames) -> Message:
    if not message.answers:
        return shorten_arguments(message, source, meter)
    limits = _over(message, meter, limit)
    return shorten_results(message, limits, source, meter, names=names, why=OLD_WHY) if limits else message


def _as_known(
    message: Message, short: Short, source: Source, meter: Meter, limit: int, names: ArgumentNames
) -> Message:
    """What `_brief` makes of a message, as it is remembered."""
    why, raw = short
    again = None
    if message.answers:
        same = partial(
            shorten_results, source=source, meter=meter, cap_chars=None, preview=None, names=names, why=OLD_WHY
        )
        again = Again(message, raw, _over(message, meter, limit), meter, same)
    return replace(message, raw=raw, why=why, again=again)


def _over(message: Message, meter: Meter, limit: int) -> dict[str, int]:
    """The limit of each result of a message that is longer."""
    return {call: limit for call, cost in costs_of_results(message, meter) if cost > limit}


def _brief_answer(block: Block, meter: Meter) -> Block:
    message = block.messages[0]
    if message.kind is not Kind.ASSISTANT or message.calls or message.tokens <= ANSWER + FRAME:
        return block

    def made() -> Message:
        return shorten_message(message, meter, ANSWER, lambda text, room: head_and_tail(text, room, meter), ANSWER_WHY)

    return _shorter(block, (_cached(message, made, meter, "answer"),), meter)


def _shorter(block: Block, messages: tuple[Message, ...], meter: Meter) -> Block:
    """The block with these messages and their tokens; the same block if that saves nothing."""
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block.made()
    counted = zip(messages, meter.costs(messages), strict=True)
    short = Block(tuple(replace(m, tokens=cost) for m, cost in counted), block.pinned)
    return short if short.tokens < block.tokens else block.made()


def _cached(message: Message, make: Callable[[], Message], meter: Meter, how: str) -> Message:
    """The result of `make` for a message, cached by the message, how it is counted, and `how`, the parameters of
    `make`."""
    key = digest(message.raw, how, f"{message.tokens} {meter.key}")
    found = SHORTENED.get(key)
    if found is None:
        done = make()
        SHORTENED.put(key, AS_IS if done is message else (done.why, done.raw), ENTRY + len(done.raw))
        return done
    return message if found == AS_IS else replace(message, raw=found[1], why=found[0])
