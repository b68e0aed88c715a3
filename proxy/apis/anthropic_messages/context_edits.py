"""The edits of `context_management`, made here for servers of the Messages API that do not know them.

`clear_tool_uses_20250919` is applied as Anthropic documents it. Other edits are left out: what only a model or its
maker can do is not reported as done. The field never reaches such a server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from proxy.apis.anthropic_messages import messages as blocks
from proxy.apis.anthropic_messages.messages import SYSTEM
from proxy.apis.anthropic_messages.request import parse
from proxy.apis.anthropic_messages.scan import MESSAGES
from proxy.model.conversation import Kind, Message, PartKind, Prompt
from proxy.model.lenient_json import Json, mapping, object_of, raw_fields, read
from proxy.model.ports import Meter
from proxy.wire.body import without_fields

FIELD, MARK = (
    b'"context_management"',
    b'"stop_reason"',
)  # of every request with edits; of every answer that reports them
NAME, APPLIED = "context_management", "applied_edits"
CLEAR_TOOL_USES = "clear_tool_uses_20250919"
TRIGGER, KEPT = 100_000, 3  # input tokens, tool uses: where an edit does not say
CLEARED, NO_INPUT = "[Old tool result content cleared]", "{}"
MOST = 10**12  # a larger figure is none

MeterOf = Callable[[Prompt], Meter]


def apply(body: bytes, meter_of: MeterOf) -> tuple[bytes, bytes]:
    """The body after its edits, without the field that asks for them, and the JSON of those that were applied. Raises
    `NotUnderstood`."""
    asked = mapping(read(bytes(raw_fields(body).get(NAME, b"null")))).get("edits")
    plain = without_fields(body, (NAME,))
    prompt = parse(plain)
    meter, said, applied = meter_of(prompt), list(prompt.messages), []
    tokens = _tokens(meter, said)
    for edit in map(mapping, asked if isinstance(asked, list) else ()):
        if edit.get("type") != CLEAR_TOOL_USES:
            continue
        shorter, uses = _cleared(said, edit, tokens)
        left = _tokens(meter, shorter) if uses else tokens
        if uses and tokens - left >= _value(edit.get("clear_at_least"), 0):
            freed = {"cleared_tool_uses": uses, "cleared_input_tokens": tokens - left}
            applied.append({"type": CLEAR_TOOL_USES, **freed})
            said, tokens = shorter, left
    return _with_messages(plain, said) if applied else plain, msgspec.json.encode(applied)


def report(data: bytes, applied: bytes) -> bytes:
    """A complete response, or the event that ends one, with what was applied. Any other JSON as it is, and one that
    reports edits itself."""
    fields = raw_fields(data)
    ends = raw_fields(fields.get("delta", b""))
    kind = bytes(fields.get("type", b""))
    if NAME in fields or not (kind == b'"message"' or (kind == b'"message_delta"' and _is_said(ends))):
        return data
    end = data.rindex(b"}")
    return b'%b,"%b":{"%b":%b}%b' % (data[:end], NAME.encode(), APPLIED.encode(), applied, data[end:])


def _is_said(fields: Mapping[str, msgspec.Raw]) -> bool:
    return bytes(fields.get("stop_reason", b"null")) != b"null"


def _tokens(meter: Meter, said: Sequence[Message]) -> int:
    return sum(meter.fixed.values()) + sum(sum(meter.costs(run)) for run in blocks.runs(said))


def _cleared(said: Sequence[Message], edit: Mapping[str, Json], tokens: int) -> tuple[list[Message], int]:
    """The messages after an edit, and how many tool uses it clears; 0 where it is not triggered."""
    answered = {ident for message in said for ident in message.answers}
    uses = [call for message in said for call in message.calls if call.id in answered]
    trigger = mapping(edit.get("trigger"))
    reached = len(uses) if trigger.get("type") == "tool_uses" else tokens
    kept, excluded = _value(edit.get("keep"), KEPT), edit.get("exclude_tools")
    if reached <= _value(trigger, TRIGGER) or len(uses) <= kept:
        return [*said], 0
    barred = set(filter(_is_text, excluded)) if isinstance(excluded, list) else set()
    gone = {call.id: call.name for call in uses[: len(uses) - kept] if call.name not in barred}
    emptied = {ident for ident, name in gone.items() if _clears_input(edit.get("clear_tool_inputs"), name)}
    return [_without(message, gone.keys(), emptied) for message in said], len(gone)


def _without(message: Message, gone: Collection[str], emptied: Collection[str]) -> Message:
    """A message without the results of calls that are gone, and without the arguments of some of them."""
    if any(ident in gone for ident in message.answers):
        return msgspec.structs.replace(message, raw=message.format.with_results(message, gone, CLEARED))
    if any(call.id in emptied for call in message.calls):
        inputs = [part for part in message.parts() if part.kind is PartKind.CALL and part.call in emptied]
        return message.edit([(part, NO_INPUT) for part in inputs], "")
    return message


def _clears_input(said: Json, name: str) -> bool:
    return said is True or (isinstance(said, list) and name in said)


def _value(said: Json, default: int) -> int:
    """The number of tokens, or of uses, in `{"type": ..., "value": 5}`."""
    value = mapping(said).get("value")
    return value if type(value) is int and 0 <= value <= MOST else default


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _with_messages(body: bytes, said: Sequence[Message]) -> bytes:
    """The body with these messages; its other fields keep their bytes."""
    fields = {key: bytes(raw) for key, raw in raw_fields(body).items()}
    sent = said[1:] if said and said[0].kind is Kind.INSTRUCTION and SYSTEM in fields else said
    fields[MESSAGES] = b"[" + b",".join([message.raw for message in sent]) + b"]"
    return object_of(fields.items())
