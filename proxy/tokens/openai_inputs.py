"""Counts prompts of /v1/completions and inputs of /v1/embeddings: texts and token ids without any frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proxy.model.conversation import Message
from proxy.model.lenient_json import BROKEN
from proxy.tokens.messages import CountingRules

KEYS: tuple[str, ...] = ()  # of the head: nothing besides the messages costs anything
QUOTE = b'"'

_TEXT = msgspec.json.Decoder(str)
_IDS = msgspec.json.Decoder(list[int])


def costs(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
    """Tokens of the encoding that each message costs. The ids of a list are tokens of the model itself."""
    return tuple([_cost(message.raw, rules) for message in messages])


def certain(message: Message, rules: CountingRules) -> bool:
    """True: what is sent is what is read."""
    return True


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """Nothing."""
    return 0, 0, 0, 0


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> tuple[int, int, int, int]:
    """Nothing."""
    return 0, 0, 0, 0


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """True."""
    return True


def _cost(raw: bytes, rules: CountingRules) -> int:
    try:
        if raw.startswith(QUOTE):
            return rules.count(_TEXT.decode(raw))
        return round(rules.unit * len(_IDS.decode(raw)))
    except BROKEN:
        return rules.count(raw.decode("utf-8", "replace"))
