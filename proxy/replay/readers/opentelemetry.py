"""Spans with OpenTelemetry's attributes of generative AI: OTLP as JSON (the collector's file exporter, one document a
line or a file), and single spans as SDKs print them.

Sources: OTLP 1.x, "JSON Protobuf Encoding"; Semantic conventions for generative AI, "Inference" spans
(`gen_ai.input.messages`, `gen_ai.system_instructions`, `gen_ai.tool.definitions`: gen-ai-input-messages.json), which
may be JSON texts; and the older `gen_ai.prompt.N.*` and `llm.request.functions.N.*` of OpenLLMetry. Content is opt-in
there. The conventions have messages of parts for all providers: the body is written anew as a chat completion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.config.price_hosts import provider_at
from proxy.model.lenient_json import BROKEN, Json, RawFields, mapping, string
from proxy.model.outcome import Usage
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import body, first, moment, nested, of, text, tokens

MODEL = "gen_ai.request.model"
NUMBERED = re.compile(r"gen_ai\.prompt\.(\d{1,5})\.(.{1,100})")
CALL = re.compile(r"tool_calls\.(\d{1,4})\.(id|name|arguments)")
FUNCTION = re.compile(r"llm\.request\.functions\.(\d{1,4})\.(name|description|parameters)")
PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
COMPLETION = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
WRITTEN = ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens")
CALLERS = ("enduser.id", "user.id", "gen_ai.user.id", "session.id", "gen_ai.conversation.id")
LIMITS = {"max_tokens": "gen_ai.request.max_tokens"}
SCALARS = ("stringValue", "intValue", "doubleValue", "boolValue")
DEEPEST = 64  # levels of an attribute's value
TEXT_TYPES = ("text", "reasoning", "thinking")

Attributes = Mapping[str, Json]


def recognises(fields: RawFields) -> bool:
    """Whether it is OTLP, or a span."""
    if {"resourceSpans", "resource_spans", "scopeSpans"} & fields.keys():
        return True
    return "attributes" in fields and bool({"start_time", "startTimeUnixNano"} & fields.keys())


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """The spans of an entry."""
    resources = of(fields, "resourceSpans", "resource_spans")
    if resources is None and "scopeSpans" in fields:
        resources = [{name: of(fields, name) for name in ("resource", "scopeSpans")}]
    if resources is None:
        span = {name: of(fields, name) for name in ("attributes", "start_time", "startTimeUnixNano", "status")}
        yield _span(span, _attributes(mapping(of(fields, "resource")).get("attributes")))
        return
    for resource in _list(resources):
        around = _attributes(mapping(mapping(resource).get("resource")).get("attributes"))
        for scope in _list(mapping(resource).get("scopeSpans") or mapping(resource).get("scope_spans")):
            for span in _list(mapping(scope).get("spans")):
                yield _span(mapping(span), around)


def _list(found: Json) -> Sequence[Json]:
    return found if isinstance(found, list) else ()


def _attributes(found: Json) -> Attributes:
    """Attributes by key: OTLP has a list of pairs, SDKs print an object."""
    if isinstance(found, dict):
        return found
    pairs = [one for one in _list(found) if isinstance(one, dict)]
    return {key: _any_value(pair.get("value")) for pair in pairs if isinstance(key := pair.get("key"), str)}


def _any_value(found: Json, depth: int = 0) -> Json:
    """OTLP's `AnyValue`."""
    if not isinstance(found, dict) or depth > DEEPEST:
        return None
    for name in SCALARS:
        if name in found:
            return found[name]
    if "arrayValue" in found:
        return [_any_value(one, depth + 1) for one in _list(mapping(found["arrayValue"]).get("values"))]
    if "kvlistValue" in found:
        pairs = [one for one in _list(mapping(found["kvlistValue"]).get("values")) if isinstance(one, dict)]
        return {string(pair.get("key")): _any_value(pair.get("value"), depth + 1) for pair in pairs}
    return None


def _span(span: Mapping[str, Json], resource: Attributes) -> Found:
    attributes = _attributes(span.get("attributes"))
    if not any(key.startswith("gen_ai.") for key in attributes):
        return Skipped("a span of something else", other=True)
    model = text(attributes.get(MODEL)) or text(attributes.get("gen_ai.response.model"))
    messages = _messages(attributes)
    if not messages or not model:
        whole = bool(first(attributes, PROMPT))
        return Skipped(
            "a span without the messages (content is opt-in)" if whole else "a span of another step", not whole
        )
    limits = {field: tokens(attributes.get(name)) for field, name in LIMITS.items()}
    return Recorded(
        body({"model": model, **limits, "messages": messages, "tools": _tools(attributes) or None}),
        at=_time(span.get("startTimeUnixNano") or span.get("start_time")),
        path="/v1/chat/completions",
        app=text(resource.get("service.name")),
        caller=next((name for key in CALLERS if (name := text(attributes.get(key)))), ""),
        usage=_usage(attributes),
        status=200 if mapping(span.get("status")).get("code") not in (2, "STATUS_CODE_ERROR") else 0,
        provider=provider_at(text(attributes.get("server.address"))),
    )


def _time(found: Json) -> float | None:
    """OTLP has nanoseconds as a text."""
    return moment(int(found)) if isinstance(found, str) and found.isdecimal() and len(found) < 22 else moment(found)


def _usage(attributes: Attributes) -> Usage | None:
    prompt = first(attributes, PROMPT)
    if not prompt:
        return None
    cached = min(first(attributes, CACHED), prompt)
    written = next((count for name in WRITTEN if (count := tokens(attributes.get(name))) is not None), None)
    return Usage(prompt, first(attributes, COMPLETION), cached, written=written)


def _messages(attributes: Attributes) -> list[Json]:
    said = nested(attributes.get("gen_ai.input.messages"))
    if not isinstance(said, list):
        return _numbered(attributes)
    system = nested(attributes.get("gen_ai.system_instructions"))
    led = [{"role": "system", "content": _joined(_list(system)) or string(system)}] if system else []
    return [*led, *(message for one in said for message in _of_parts(mapping(one)))]


def _of_parts(message: Mapping[str, Json]) -> Iterator[Json]:
    """A message of parts as chat messages: each response of a tool is a message of its own."""
    parts = [part for part in _list(message.get("parts")) if isinstance(part, dict)]
    if not parts and "content" in message:
        yield {"role": message.get("role"), "content": message["content"]}
        return
    for part in parts:
        if part.get("type") == "tool_call_response":
            said = part.get("response", part.get("result"))
            yield {"role": "tool", "tool_call_id": string(part.get("id")), "content": _written(said)}
    calls = [_call(part) for part in parts if part.get("type") == "tool_call"]
    rest = _joined(parts)
    if calls:
        yield {"role": "assistant", "content": rest or None, "tool_calls": calls}
    elif rest or not any(part.get("type") == "tool_call_response" for part in parts):
        yield {"role": string(message.get("role")) or "user", "content": rest}


def _joined(parts: Sequence[Json]) -> str:
    texts = [string(part.get("content")) for part in parts if isinstance(part, dict) and part.get("type") in TEXT_TYPES]
    return "\n".join(filter(None, texts))


def _call(part: Mapping[str, Json]) -> Json:
    function = {"name": string(part.get("name")), "arguments": _written(part.get("arguments"))}
    return {"id": string(part.get("id")), "type": "function", "function": function}


def _written(found: Json) -> str:
    if isinstance(found, str):
        return found
    try:
        return "" if found is None else msgspec.json.encode(found).decode()
    except BROKEN:
        return ""


def _numbered(attributes: Attributes) -> list[Json]:
    """Messages of `gen_ai.prompt.N.*`."""
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Json]]] = {}
    for key, said in attributes.items():
        if not (match := NUMBERED.fullmatch(key)):
            continue
        number, name = int(match[1]), match[2]
        if call := CALL.fullmatch(name):
            calls.setdefault(number, {}).setdefault(int(call[1]), {})[call[2]] = said
        elif name in ("role", "content", "tool_call_id"):
            found.setdefault(number, {})[name] = nested(said) if name == "content" and _is_list(said) else said
    for number, made in calls.items():
        found.setdefault(number, {"role": "assistant"})["tool_calls"] = [_call(made[place]) for place in sorted(made)]
    return [{"role": "user", "content": None, **found[number]} for number in sorted(found)]


def _is_list(said: Json) -> bool:
    return isinstance(said, str) and said.startswith("[{")


def _tools(attributes: Attributes) -> list[Json]:
    definitions = [mapping(one) for one in _list(nested(attributes.get("gen_ai.tool.definitions")))]
    if definitions:
        return [one if "function" in one else {"type": "function", "function": _function(one)} for one in definitions]
    found: dict[int, dict[str, Json]] = {}
    for key, said in attributes.items():
        if match := FUNCTION.fullmatch(key):
            found.setdefault(int(match[1]), {})[match[2]] = nested(said)
    return [{"type": "function", "function": found[number]} for number in sorted(found)]


def _function(found: Mapping[str, Json]) -> Json:
    return {key: found[key] for key in ("name", "description", "parameters") if found.get(key) is not None}


READER = Reader("OpenTelemetry", recognises, lambda: EachEntry(read))
