"""Shortens a message for what it was asked for and remembers how: a tool result, the arguments of an old call."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.results.results import shorten
from proxy.fit.relevance.results.sources import Source, leaves
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import Asked
from proxy.fit.shorten import head_and_tail, shorten_message, shorten_texts
from proxy.model.bounded import Bounded
from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter
from proxy.model.structs import replace

MOST, REMEMBERED = 20_000, 16 << 20  # shortened messages, and their bytes: those of a hundred long conversations
ENTRY = 256  # bytes of what is remembered besides the message
LONG_ARGUMENT = 100  # tokens of a string in an old call's arguments; a file that was written then is on disk now
FRAME = 64  # tokens: the most that role and name of a result cost besides its text
ANSWER = 60  # tokens of an old answer that stays only because a round may not stand without one
ANSWER_WHY = "old answer"
RESULT_WHY, OLD_WHY, CALL_WHY = "tool result over its cap", "old tool result", "arguments of an old call"

SHORTENED: Bounded[int, bytes] = Bounded(MOST, REMEMBERED)


def costs_of_results(message: Message, meter: Meter) -> list[tuple[str, int]]:
    """The results that a message carries: the id of each one's call, and its tokens. A result that is all of its
    message costs what the message costs; of others the text counts."""
    if not message.answers:
        return []
    if message.kind is Kind.RESULT and len(message.answers) == 1:
        return [(message.answers[0], message.tokens)]
    texts = dict.fromkeys(message.answers, "")
    for part in message.parts():
        if part.kind is PartKind.RESULT and part.call in texts:
            texts[part.call] += part.text
    return [(call, meter.text(text)) for call, text in texts.items()]


def shorten_result(
    message: Message,
    call: str,
    limit: int,
    source: Source,
    meter: Meter,
    *,
    cap_chars: int | None = None,
    preview: int | None = None,
    why: str = RESULT_WHY,
) -> Message:
    """The message with the result of one call in at most `limit` tokens of text, chosen for what it was asked for; the
    same message where there is nothing to shorten. Its tokens are not counted anew."""

    def made() -> Message:
        asked = source.asked(call)
        parts = [p for p in message.parts() if p.kind is PartKind.RESULT and p.call == call]
        too_long = len(parts) == 1 and parts[0].whole and message.tokens > limit + FRAME

        def choose(text: str, room: int) -> str:
            return shorten(text, room, asked, meter, cap_chars=cap_chars, preview=preview, too_long=too_long)

        return shorten_texts(message, parts, meter, limit, choose, why)

    return _remembered(message, made, f"result {limit} {cap_chars} {preview} {call} {source.mark}")


def shorten_arguments(message: Message, source: Source, meter: Meter, limit: int = LONG_ARGUMENT) -> Message:
    """An assistant message with every long string in its calls' arguments in at most `limit` tokens; the arguments stay
    JSON. The same message where none is long."""
    if message.tokens <= limit or not message.calls:
        return message

    def made() -> Message:
        asked = Asked("" if source.user is None else source.user.text)
        calls = [part for part in message.parts() if part.kind is PartKind.CALL and part.editable]
        return message.edit([(part, _arguments(part, asked, meter, limit)) for part in calls], CALL_WHY)

    return _remembered(message, made, f"call {limit} {source.mark}")


def _arguments(call: Part, asked: Asked, meter: Meter, limit: int) -> str:
    try:
        arguments = decoded(call.text)
    except msgspec.DecodeError:
        return call.text
    shorter = _strings(arguments, lambda text: shorten(text, limit, asked, meter))
    return call.text if shorter == arguments else msgspec.json.encode(shorter).decode()


def _strings(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _strings(item, change) for key, item in value.items()}
    return [_strings(item, change) for item in value] if isinstance(value, list) else value


def brief_cost(block: Block, source: Source | None, meter: Meter, limit: int) -> int:
    """About what the short form of an old block costs: many are weighed, few are made. Its frame weighs about as much
    as is left free of what it may cost (measured on agents' runs: together right to a hundredth). Where that cannot be
    told (an image keeps its cost; an answer in words), exactly."""
    if source is None:
        return brief_block(block, None, meter, limit).tokens
    long = [m for m in block.messages if m.answers and m.tokens > limit]
    if not all(any(part.whole for part in m.parts()) for m in long):
        return brief_block(block, source, meter, limit).tokens
    return sum(min(m.tokens, limit) if m.answers else _brief_call(m) for m in block.messages)


def _brief_call(message: Message) -> int:
    """About what an assistant message costs without long arguments: each goes to `LONG_ARGUMENT`."""
    if message.tokens <= LONG_ARGUMENT or not message.calls:
        return message.tokens
    parts = message.parts()
    calls = [part for part in parts if part.kind is PartKind.CALL]
    if not all(part.editable for part in calls):
        return message.tokens
    try:
        arguments = [decoded(part.text) for part in calls]
        whole = sum(len(part.text) for part in parts if part.kind in TEXTS)
        whole += sum(len(msgspec.json.encode(value)) for value in arguments)
        sizes = [len(msgspec.json.encode(text)) for value in arguments for text in leaves(value)]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return message.tokens
    each = message.tokens / max(1, whole)
    return message.tokens - sum(max(0, int(each * size) - LONG_ARGUMENT) for size in sizes)


def brief_block(block: Block, source: Source | None, meter: Meter, limit: int) -> Block:
    """The short form of an old block, counted: its results in at most `limit` tokens each, its calls without long
    arguments; an answer in words in `ANSWER` tokens. The same block where that saves nothing, and for any other."""
    if source is None:
        return _brief_answer(block, meter)
    messages = tuple(
        _brief_results(m, limit, source, meter) if m.answers else shorten_arguments(m, source, meter)
        for m in block.messages
    )
    return _shorter(block, messages, meter)


def _brief_results(message: Message, limit: int, source: Source, meter: Meter) -> Message:
    for call, cost in costs_of_results(message, meter):
        if cost > limit:
            message = shorten_result(message, call, limit, source, meter, why=OLD_WHY)
    return message


def _brief_answer(block: Block, meter: Meter) -> Block:
    message = block.messages[0]
    if message.kind is not Kind.ASSISTANT or message.calls or message.tokens <= ANSWER + FRAME:
        return block

    def made() -> Message:
        return shorten_message(message, meter, ANSWER, lambda text, room: head_and_tail(text, room, meter), ANSWER_WHY)

    return _shorter(block, (_remembered(message, made, "answer"),), meter)


def _shorter(block: Block, messages: tuple[Message, ...], meter: Meter) -> Block:
    """The block with these messages, counted; the same block where that saves nothing."""
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block.made()
    counted = zip(messages, meter.costs(messages), strict=True)
    short = Block(tuple(replace(m, tokens=cost) for m, cost in counted), block.pinned)
    return short if short.tokens < block.tokens else block.made()


def _remembered(message: Message, make: Callable[[], Message], how: str) -> Message:
    """What `make` makes of a message, remembered by the message and `how`. Another meter counts otherwise: the count
    that the message itself has stands for the meter."""
    key = digest(message.raw, how, str(message.tokens))
    found = SHORTENED.get(key)
    if found is None:
        done = make()
        SHORTENED.put(key, b"" if done is message else done.why.encode() + b"\0" + done.raw, ENTRY + len(done.raw))
        return done
    why, _, raw = found.partition(b"\0")
    return replace(message, raw=raw, why=why.decode()) if found else message
