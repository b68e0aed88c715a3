"""Langfuse's exports of observations: from its pages (CSV, JSON), to blob storage (also JSON Lines), or of its API.

Sources: langfuse.com, "Export from UI", "Blob storage export field reference" (names with underscores, times in UTC),
"Token & cost tracking" (of `usageDetails` every key with `input` in its name is a part of the prompt); API reference,
observations (names in camel case). In tables `input` is a text with JSON in it. Whether tools are there depends on the
SDK that recorded them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.model.lenient_json import Json, RawFields, mapping
from proxy.model.outcome import Usage
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import body, moment, nested, of, text, tokens

GENERATION = "GENERATION"


def recognises(fields: RawFields) -> bool:
    """Whether it is an observation."""
    return "input" in fields and ("traceId" in fields or "trace_id" in fields)


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """One observation."""
    if (text(of(fields, "type")) or GENERATION).upper() != GENERATION:
        yield Skipped("an observation that is no generation", other=True)
        return
    asked = _request(nested(of(fields, "input")))
    model = text(of(fields, "model", "providedModelName", "provided_model_name"))
    if asked is None or not (model or asked.get("model")):
        yield Skipped("a generation without messages or without a model")
        return
    parameters = mapping(nested(of(fields, "modelParameters", "model_parameters")))
    tools = nested(of(fields, "toolDefinitions", "tool_definitions"))
    found = {"model": model, **parameters, "tools": tools if isinstance(tools, list) and tools else None, **asked}
    yield Recorded(
        body(found),
        at=moment(of(fields, "startTime", "start_time")),
        app=text(of(fields, "traceName", "trace_name", "name")),
        caller=text(of(fields, "userId", "user_id")),
        usage=_usage(fields),
        status=0 if text(of(fields, "level")).upper() == "ERROR" else 200,
        missing=() if "tools" in asked or tools else ("tools, unless the SDK recorded them",),
    )


def _request(found: Json) -> Mapping[str, Json] | None:
    """The fields of a request that `input` holds: a list of messages, an object with one, or a text."""
    if isinstance(found, str) and found:
        return {"messages": [{"role": "user", "content": found}]}
    if isinstance(found, list) and found and all(isinstance(m, dict) and "role" in m for m in found):
        return {"messages": found}
    if isinstance(found, dict) and isinstance(found.get("messages"), list):
        return found
    if isinstance(found, dict) and "role" in found:
        return {"messages": [found]}
    return None


def _usage(fields: RawFields) -> Usage | None:
    details = mapping(nested(of(fields, "usageDetails", "usage_details", "usage")))
    counts = {k: count for k, v in details.items() if (count := tokens(v)) is not None}
    prompt = sum(count for name, count in counts.items() if "input" in name.lower())
    if not prompt:
        old = tokens(of(fields, "promptTokens", "prompt_tokens", "inputTokens"))
        return (
            Usage(old, tokens(of(fields, "completionTokens", "completion_tokens", "outputTokens")) or 0)
            if old
            else None
        )
    cached = sum(
        c for k, c in counts.items() if "input" in k.lower() and "cache" in k.lower() and "creat" not in k.lower()
    )
    wrote = [c for k, c in counts.items() if "input" in k.lower() and "cache" in k.lower() and "creat" in k.lower()]
    written = sum(wrote) if wrote else None
    replied = sum(count for name, count in counts.items() if "output" in name.lower())
    return Usage(prompt, replied, cached, written=written)


READER = Reader("Langfuse", recognises, lambda: EachEntry(read))
