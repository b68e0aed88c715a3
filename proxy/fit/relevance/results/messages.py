"""Shortens a message for what it was asked for and remembers how: a tool result, the arguments of an old call."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.results.results import shorten
from proxy.fit.relevance.results.sources import Source, leaves
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import Asked
from proxy.fit.shorten import content_of, head_and_tail, shorten_content
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Message, text_of
from proxy.model.lenient_json import FIELDS, RAWS, Json
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
Raws = dict[str, msgspec.Raw]
CALLS = msgspec.json.Decoder(list[Raws])


def shorten_result(
    message: Message,
    limit: int,
    source: Source,
    meter: Meter,
    *,
    cap_chars: int | None = None,
    preview: int | None = None,
    why: str = RESULT_WHY,
) -> Message:
    """The message of a tool result with at most `limit` tokens of text, chosen for what it was asked for; the same
    message where there is nothing to shorten. Its tokens are not counted anew."""

    def made() -> Message:
        asked = source.asked(message.answers)

        def choose(text: str, room: int, too_long: bool = False) -> str:
            return shorten(text, room, asked, meter, cap_chars=cap_chars, preview=preview, too_long=too_long)

        content = content_of(message)
        if isinstance(content, str):
            short = choose(content, limit, message.tokens > limit + FRAME)
            return message if short == content else message.with_content(short, why)
        return shorten_content(message, meter, limit, choose, why)

    return _remembered(message, made, f"result {limit} {cap_chars} {preview} {message.answers} {source.mark}")


def shorten_arguments(message: Message, source: Source, meter: Meter, limit: int = LONG_ARGUMENT) -> Message:
    """An assistant message with every long string in its calls' arguments in at most `limit` tokens; the arguments stay
    JSON. The same message where none is long."""
    if message.tokens <= limit or not message.calls:
        return message

    def made() -> Message:
        try:
            parts = RAWS.decode(message.raw)
            calls = CALLS.decode(parts.get("tool_calls", b"[]"))
        except (msgspec.MsgspecError, UnicodeError):
            return message
        asked = Asked("" if source.user is None else source.user.text)
        shorter = [_call(call, asked, meter, limit) for call in calls]
        if all(a is b for a, b in zip(calls, shorter, strict=True)):
            return message
        parts["tool_calls"] = msgspec.Raw(msgspec.json.encode(shorter))
        return replace(message, raw=msgspec.json.encode(parts), why=CALL_WHY)

    return _remembered(message, made, f"call {limit} {source.mark}")


def _call(call: Raws, asked: Asked, meter: Meter, limit: int) -> Raws:
    try:
        function = FIELDS.decode(call.get("function", b"{}"))
        arguments = decoded(function.get("arguments") or "")
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return call
    shorter = _strings(arguments, lambda text: shorten(text, limit, asked, meter))
    if shorter == arguments:
        return call
    function["arguments"] = msgspec.json.encode(shorter).decode()
    return {**call, "function": msgspec.Raw(msgspec.json.encode(function))}


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
    long = [m for m in block.messages if m.answers is not None and m.tokens > limit]
    if not all(isinstance(content_of(m), str) for m in long):
        return brief_block(block, source, meter, limit).tokens
    return sum(_brief_call(m) if m.answers is None else min(m.tokens, limit) for m in block.messages)


def _brief_call(message: Message) -> int:
    """About what an assistant message costs without long arguments: each goes to `LONG_ARGUMENT`."""
    if message.tokens <= LONG_ARGUMENT or not message.calls:
        return message.tokens
    try:
        fields = message.fields()
        arguments = [decoded(call["function"]["arguments"]) for call in fields.get("tool_calls") or ()]
        whole = len(text_of(fields.get("content"))) + sum(len(msgspec.json.encode(value)) for value in arguments)
        sizes = [len(msgspec.json.encode(text)) for value in arguments for text in leaves(value)]
    except (msgspec.MsgspecError, UnicodeError, TypeError, KeyError, RecursionError):
        return message.tokens
    each = message.tokens / max(1, whole)
    return message.tokens - sum(max(0, int(each * size) - LONG_ARGUMENT) for size in sizes)


def brief_block(block: Block, source: Source | None, meter: Meter, limit: int) -> Block:
    """The short form of an old block, counted: its results in at most `limit` tokens each, its calls without long
    arguments; an answer in words in `ANSWER` tokens. The same block where that saves nothing, and for any other."""
    if source is None:
        return _brief_answer(block, meter)
    messages = tuple(
        shorten_arguments(m, source, meter)
        if m.answers is None
        else shorten_result(m, limit, source, meter, why=OLD_WHY)
        if m.tokens > limit
        else m
        for m in block.messages
    )
    return _shorter(block, messages, meter)


def _brief_answer(block: Block, meter: Meter) -> Block:
    message = block.messages[0]
    if message.role != "assistant" or message.calls or message.tokens <= ANSWER + FRAME:
        return block

    def made() -> Message:
        return shorten_content(message, meter, ANSWER, lambda text, room: head_and_tail(text, room, meter), ANSWER_WHY)

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
