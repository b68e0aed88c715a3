"""The fields that all requests of Ollama's own APIs have: options with the window and the reply limit, truncation."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.model.conversation import Prompt
from proxy.model.lenient_json import RAWS, object_of
from proxy.model.plan import Plan
from proxy.wire.body import fields_of
from proxy.wire.scan import NULL, token_limit

OPTIONS, LIMIT = "options", "num_predict"
LIMIT_FIELD = f"{OPTIONS}.{LIMIT}"
# Without it Ollama drops what is too long, and says nothing. Versions that do not know it ignore it.
TRUNCATE = "truncate"
STREAM = "stream"
OWN = (OPTIONS, TRUNCATE, "think", "keep_alive")  # fields that no other API has


class Options(msgspec.Struct, gc=False):
    """The options that matter here."""

    num_ctx: int | float | None = None
    num_predict: int | float | None = None


_OPTIONS: msgspec.json.Decoder[Options | None] = msgspec.json.Decoder(Options | None)


def reply_limit(head: Mapping[str, msgspec.Raw]) -> int | None:
    """The reply limit of a request; None for none. Raises msgspec's errors and `NotUnderstood`."""
    options = _OPTIONS.decode(head.get(OPTIONS, NULL))
    return None if options is None else token_limit(options.num_predict)


def with_reply_limit(options: bytes, limit: int) -> bytes:
    """The JSON of options with another reply limit."""
    return msgspec.json.encode({**RAWS.decode(options), LIMIT: limit})


def rendered(prompt: Prompt, plan: Plan, changed: Mapping[str, bytes]) -> bytes:
    """The JSON of a planned request: the client's fields in the client's order, each with its own bytes unless a step
    changed it. `changed` has its fields with messages that steps changed.

    What had to be cut is near the window: the server must say so if it still is too long.
    """
    draft, new = plan.draft, dict(changed)
    if draft.model != prompt.model:
        new["model"] = msgspec.json.encode(draft.model)
    if draft.reply is not None and draft.reply != prompt.reply.limit and OPTIONS in prompt.head:
        new[OPTIONS] = with_reply_limit(prompt.head[OPTIONS], draft.reply)
    fields = {key: new.get(key, raw) for key, raw in prompt.head.items()}
    return object_of((refusing(fields) if new else fields).items())


def refusing(fields: dict[str, bytes]) -> dict[str, bytes]:
    """The fields of a request that the server refuses if it is too long, unless the client said what is to be done."""
    return fields if TRUNCATE in fields else {**fields, TRUNCATE: b"false"}


def without_truncation(body: bytes) -> bytes:
    """The same request for a server that refuses what is too long, and drops nothing. `body` itself if the client said
    what is to be done. Raises `NotUnderstood`."""
    fields = fields_of(body)
    return body if TRUNCATE in fields else object_of(refusing(fields).items())


def without_stream(body: bytes) -> bytes:
    """The same request for a response in one piece. Raises `NotUnderstood`."""
    return object_of({**fields_of(body), STREAM: b"false"}.items())
