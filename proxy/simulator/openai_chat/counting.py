"""The simulator's own count of a chat's prompt: its own parser, and the recipes of `proxy.tokens` without a cache.

It must not use the proxy's parser: a message that the proxy loses or groups wrongly has to show up in the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from proxy.simulator.check import ApiError
from proxy.tokens.meter import RawMessage, prompt_tokens

RESULT_ROLES = ("tool", "function")
LEGACY_CALL_ID = ""  # `function_call` has no id, and neither has the `function` message that answers it


class _Function(msgspec.Struct, gc=False):
    name: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    id: str = ""
    function: _Function | None = None
    custom: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGE = msgspec.json.Decoder(_Message)


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a chat request's JSON. Raises `ApiError` (400) for a body that it cannot parse."""
    try:
        fields = _FIELDS.decode(body)
        model = msgspec.json.decode(fields.pop("model"), type=str)
        raws = [bytes(raw) for raw in _LIST.decode(fields.pop("messages"))]
        blocks = [tuple(block) for block in _blocks((raw, _MESSAGE.decode(raw)) for raw in raws)]
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"Invalid request: {error}") from None
    return prompt_tokens(model, {key: bytes(raw) for key, raw in fields.items()}, blocks)


def _blocks(messages: Iterable[tuple[bytes, _Message]]) -> Iterator[list[RawMessage]]:
    """An assistant message and the results that directly follow and answer it are one block; others stand alone."""
    block: list[RawMessage] = []
    call_ids: set[str] = set()
    for raw, message in messages:
        if block and message.role in RESULT_ROLES and _answered_id(message) in call_ids:
            block.append((message.role, raw))
            continue
        if block:
            yield block
        block, call_ids = [(message.role, raw)], _call_ids(message)
    if block:
        yield block


def _call_ids(message: _Message) -> set[str]:
    if message.tool_calls:
        return {call.id for call in message.tool_calls}
    return {LEGACY_CALL_ID} if message.function_call is not None else set()


def _answered_id(message: _Message) -> str:
    return LEGACY_CALL_ID if message.role == "function" else message.tool_call_id or ""
