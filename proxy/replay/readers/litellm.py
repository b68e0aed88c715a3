"""LiteLLM's logs: `StandardLoggingPayload`, one object a call (S3, GCS and other loggers, or a callback's JSON Lines).

Source: docs.litellm.ai, "StandardLoggingPayload Specification"; litellm/types/utils.py. `messages` may be redacted
(`turn_off_message_logging`). The body is written anew from `messages` and `model_parameters`: its order of keys and
what LiteLLM itself took out of it are not those of the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.model.lenient_json import Json, RawFields, mapping
from proxy.model.outcome import Extra, Usage
from proxy.model.structs import replace
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import body, moment, of, status, text, tokens, usage
from proxy.wire.usage import cost_of

REDACTED = "redacted-by-litellm"
# By call: the path of the API, and the field in which it has what LiteLLM calls `messages`.
CALLS: Mapping[str, tuple[str, str]] = {
    "completion": ("/v1/chat/completions", "messages"),
    "responses": ("/v1/responses", "input"),
    "text_completion": ("/v1/completions", "prompt"),
    "embedding": ("/v1/embeddings", "input"),
    "anthropic_messages": ("/v1/messages", "messages"),
}
OWN = (
    "messages",
    "model",
    "extra_body",
    "extra_headers",
    "litellm_params",
    "metadata",
    "api_key",
    "user_continue_message",
)


def recognises(fields: RawFields) -> bool:
    """Whether it is a logged call."""
    return {"call_type", "model_parameters", "startTime"} <= fields.keys()


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """One call."""
    call = text(of(fields, "call_type"))
    known = CALLS.get(call) or CALLS.get(call.removeprefix("a"))
    if known is None:
        yield Skipped("a call of LiteLLM that is no request to a model", other=True)
        return
    path, name = known
    messages = of(fields, "messages")
    if not isinstance(messages, (str, list, dict)) or not messages or _is_redacted(messages):
        yield Skipped("the messages are not in the log (turn_off_message_logging)")
        return
    metadata = mapping(of(fields, "metadata"))
    found = body({"model": of(fields, "model"), name: _asked(messages, name), **_parameters(fields)})
    yield Recorded(
        found,
        at=moment(of(fields, "startTime")),
        path=path,
        app=_app(fields, metadata),
        caller=text(metadata.get("user_api_key_hash")) or text(of(fields, "end_user")),
        usage=None if of(fields, "cache_hit") is True else _usage(fields, metadata),
        status=_status(fields),
        provider=text(of(fields, "custom_llm_provider")),
    )


def _is_redacted(messages: Json) -> bool:
    shown = messages[:1] if isinstance(messages, list) else [messages]
    return any(m == REDACTED or (isinstance(m, dict) and m.get("content") == REDACTED) for m in shown)


def _asked(messages: Json, name: str) -> Json:
    if isinstance(messages, dict):
        return messages.get(name) or messages.get("messages")
    if name == "messages" and isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if name == "prompt" and isinstance(messages, list):  # a prompt is logged as a message
        return [m.get("content") if isinstance(m, dict) else m for m in messages]
    return messages


def _parameters(fields: RawFields) -> Mapping[str, Json]:
    return {k: v for k, v in mapping(of(fields, "model_parameters")).items() if k not in OWN}


def _app(fields: RawFields, metadata: Mapping[str, Json]) -> str:
    tags = of(fields, "request_tags")
    tagged = tags[0] if isinstance(tags, list) and tags else None
    named = (metadata.get(key) for key in ("user_api_key_team_alias", "user_api_key_alias"))
    return next((name for one in (*named, tagged) if (name := text(one))), "")


def _usage(fields: RawFields, metadata: Mapping[str, Json]) -> Usage | None:
    found = usage(metadata.get("usage_object"))
    if found is None and (prompt := tokens(of(fields, "prompt_tokens"))):
        found = Usage(prompt, tokens(of(fields, "completion_tokens")) or 0)
    cost = cost_of(of(fields, "response_cost"))
    if found is None or not cost:  # 0 where LiteLLM knows no price
        return found
    return replace(found, extra=replace(found.extra or Extra(), cost=cost))


def _status(fields: RawFields) -> int:
    if of(fields, "status") != "failure":
        return 200
    return status(mapping(of(fields, "error_information")).get("error_code")) or 500


READER = Reader("LiteLLM", recognises, lambda: EachEntry(read))
