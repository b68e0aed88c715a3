"""The simulator's own count of a prompt of the Messages API: its own parser, and the recipe of `proxy.tokens`.

It must not use the proxy's parser: a message that the proxy loses or groups wrongly has to show up in the count.
"""

from __future__ import annotations

import msgspec

from proxy.simulator.anthropic_messages.request import AnthropicError
from proxy.tokens.meter import prompt_tokens

RECIPE = "messages"  # its name in `proxy.tokens`
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a request's JSON. Raises `ApiError` (400) for a body that it cannot parse."""
    try:
        fields = _FIELDS.decode(body)
        model = msgspec.json.decode(fields.pop("model"), type=str)
        messages = [(RECIPE, bytes(raw)) for raw in _LIST.decode(fields.pop("messages"))]
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnthropicError(400, f"Invalid request: {error}") from None
    system = fields.pop("system", None)
    told = messages if system is None else [(RECIPE, bytes(system)), *messages]
    return prompt_tokens(model, {key: bytes(raw) for key, raw in fields.items()}, [[m] for m in told], RECIPE)
