"""Counts the messages of Ollama's API: texts and calls as in chat, images and thinking beside them.

How a model's template writes them is the server's own; usage corrects the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.model.conversation import Message
from proxy.model.lenient_json import string
from proxy.tokens import messages as chat
from proxy.tokens import request_overhead
from proxy.tokens.content_parts import Cost, unshown
from proxy.tokens.messages import CountingRules, Fields, fields_of

KEYS = ("tools",)
IMAGE_TOKENS = 768  # what Ollama itself assumes for an image where it cuts


def costs(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
    """Tokens of the encoding that each message adds to the prompt. Each counts for itself."""
    return tuple([chat.costs((message,), rules)[0] + _more(fields_of(message.raw), rules) for message in messages])


def certain(message: Message, rules: CountingRules) -> bool:
    """Whether the cost of every part of a message is known: that of an image is not."""
    return not _images(fields_of(message.raw))


def assumed(message: Message, rules: CountingRules) -> tuple[Cost, ...]:
    """The costs of a message's images."""
    images = fields_of(message.raw).get("images")
    return unshown(Cost(IMAGE_TOKENS, key=string(image)) for image in images) if isinstance(images, list) else ()


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """Tokens of the encoding besides the messages. A response schema restricts the reply, and costs nothing."""
    return request_overhead.fixed_costs(_read(head), None, rules)


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> tuple[int, int, int, int]:
    """The same for JSON that nests too deep to parse."""
    return request_overhead.fixed_as_text(_read(head), rules)


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """Whether all tools are functions."""
    return request_overhead.is_certain(_read(head), rules)


def _read(head: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The fields that the model reads."""
    return {key: head[key] for key in KEYS if key in head}


def _more(fields: Fields, rules: CountingRules) -> int:
    """Tokens of what stands beside the content."""
    return rules.count(string(fields.get("thinking"))) + round(rules.unit * IMAGE_TOKENS * _images(fields))


def _images(fields: Fields) -> int:
    images = fields.get("images")
    return len(images) if isinstance(images, list) else 0
