"""The recipes of the APIs: how the JSON of each API's bodies is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.model.conversation import CHAT as CHAT_API
from proxy.model.conversation import Message
from proxy.tokens import (
    anthropic_messages,
    families,
    messages,
    ollama,
    ollama_generate,
    openai_inputs,
    openai_responses,
    request_overhead,
)
from proxy.tokens.content_parts import Cost
from proxy.tokens.messages import CountingRules

Head = Mapping[str, bytes]  # a body's fields besides its messages, as raw JSON
Figures = tuple[int, int, int, int]  # in the order of `request_overhead.PARTS`


def _none_assumed(message: Message, rules: CountingRules) -> tuple[Cost, ...]:
    return ()


def _no_schema(head: Head) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """The recipe of one API: pure functions, which are, with the API's own package, all that knows its JSON keys.

    `costs`: tokens of the encoding that each message of one block adds. `certain`: whether the cost of every part of a
    message is known, not assumed; `assumed`: the costs of those parts that the body does not show.
    `fixed_costs`: tokens besides the messages, from the head and the text of the first message if its role is one of
    `instructions`; `fixed_as_text`: the same for JSON that nests too deep to parse.
    `is_certain`: whether the head contains all that it costs and how it is counted is known; `shows_all` (None: the
    same): the first alone. `keys`: the fields that these figures depend on; of them
    `tools` and `schemas` may be long. `parts`: bytes of every message with a part of uncertain cost. `has_schema`:
    whether messages cost more because a response schema is set. `figures`: which other figures of a family's row hold,
    if it has them. `by_encoding`: counts are the same for all models of a recipe and an encoding, however they are
    named.
    """

    keys: tuple[str, ...]
    tools: tuple[str, ...]
    schemas: tuple[str, ...]
    costs: Callable[[Sequence[Message], CountingRules], tuple[int, ...]]
    certain: Callable[[Message, CountingRules], bool]
    fixed_costs: Callable[[Head, str | None, CountingRules], Figures]
    fixed_as_text: Callable[[Head, CountingRules], Figures]
    is_certain: Callable[[Head, CountingRules], bool]
    has_schema: Callable[[Head], bool] = _no_schema
    assumed: Callable[[Message, CountingRules], tuple[Cost, ...]] = _none_assumed
    shows_all: Callable[[Head], bool] | None = None
    parts: bytes = b""
    instructions: tuple[str, ...] = ()
    figures: str = ""
    by_encoding: bool = False


CHAT = BodyFormat(
    keys=request_overhead.KEYS,
    tools=("tools", "functions"),
    schemas=("response_format",),
    costs=messages.costs,
    certain=messages.certain,
    assumed=messages.assumed,
    fixed_costs=request_overhead.chat_costs,
    fixed_as_text=request_overhead.fixed_as_text,
    is_certain=request_overhead.is_certain,
    has_schema=request_overhead.has_schema,
    parts=b"[",
    instructions=("system", "developer"),
    by_encoding=True,
)
MESSAGES = BodyFormat(
    keys=anthropic_messages.KEYS,
    tools=("tools",),
    schemas=("output_format", "output_config"),
    costs=anthropic_messages.costs,
    certain=anthropic_messages.certain,
    assumed=anthropic_messages.assumed,
    shows_all=anthropic_messages.shows_all,
    fixed_costs=anthropic_messages.fixed_costs,
    fixed_as_text=anthropic_messages.fixed_as_text,
    is_certain=anthropic_messages.is_certain,
    parts=b"[",
    figures=families.MESSAGES_TABLE,
)
RESPONSES = BodyFormat(
    keys=openai_responses.KEYS,
    tools=("tools",),
    schemas=("text",),
    costs=openai_responses.costs,
    certain=openai_responses.certain,
    assumed=openai_responses.assumed,
    fixed_costs=openai_responses.fixed_costs,
    fixed_as_text=openai_responses.fixed_as_text,
    is_certain=openai_responses.is_certain,
    figures=families.PLAIN_TOOLS,
)
INPUTS = BodyFormat(
    keys=openai_inputs.KEYS,
    tools=(),
    schemas=(),
    costs=openai_inputs.costs,
    certain=openai_inputs.certain,
    fixed_costs=openai_inputs.fixed_costs,
    fixed_as_text=openai_inputs.fixed_as_text,
    is_certain=openai_inputs.is_certain,
)
OLLAMA = BodyFormat(
    keys=ollama.KEYS,
    tools=("tools",),
    schemas=(),
    costs=ollama.costs,
    certain=ollama.certain,
    assumed=ollama.assumed,
    fixed_costs=ollama.fixed_costs,
    fixed_as_text=ollama.fixed_as_text,
    is_certain=ollama.is_certain,
    parts=b'"images"',
)
GENERATE = BodyFormat(
    keys=ollama_generate.KEYS,
    tools=(),
    schemas=("template",),
    costs=openai_inputs.costs,
    certain=openai_inputs.certain,
    fixed_costs=ollama_generate.fixed_costs,
    fixed_as_text=ollama_generate.fixed_as_text,
    is_certain=ollama_generate.is_certain,
)
FORMATS: dict[str, BodyFormat] = {  # by the API's name
    CHAT_API: CHAT,
    "completions": INPUTS,
    "embeddings": INPUTS,
    "generate": GENERATE,
    "messages": MESSAGES,
    "ollama": OLLAMA,
    "responses": RESPONSES,
}
