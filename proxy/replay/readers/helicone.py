"""Helicone's exports: JSON Lines, JSON or CSV of `@helicone/export`, or of `POST /v1/request/query-clickhouse`.

Sources: docs.helicone.ai, "Export Data" (`--include-body`); Helicone/helicone, `HeliconeRequest` and
examples/export/typescript/index.ts. Bodies are there only where they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.model.lenient_json import Json, RawFields, mapping, raw_fields
from proxy.model.outcome import Usage
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import body as written
from proxy.replay.values import moment, nested, of, status, text, tokens, value

APPS = ("app", "application", "environment", "feature")  # properties that users give, most telling first


def recognises(fields: RawFields) -> bool:
    """Whether it is a logged request."""
    return "request_body" in fields and bool({"request_created_at", "response_created_at"} & fields.keys())


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """One request."""
    raw = fields["request_body"]
    shown = value(raw)
    body = shown.encode("utf-8", "replace") if isinstance(shown, str) else bytes(raw)
    inside = raw_fields(body)
    if not inside or inside.keys() <= {"heliconeMessage", "message", "tooLarge"}:
        yield Skipped("the body is not in the export (--include-body)")
        return
    model = text(of(fields, "model_override", "request_model", "model"))
    if model and "model" not in inside:
        body = written({"model": model, **inside})
    properties = mapping(nested(of(fields, "request_properties", "properties")))
    yield Recorded(
        body,
        at=moment(of(fields, "request_created_at", "response_created_at")),
        path=text(of(fields, "request_path")),
        app=_app(properties),
        caller=text(of(fields, "request_user_id", "helicone_user")),
        usage=_usage(fields),
        status=status(of(fields, "response_status")),
    )


def _app(properties: Json) -> str:
    named = {key.lower(): said for key, said in properties.items()}
    return next((name for key in APPS if (name := text(named.get(key)))), "")


def _usage(fields: RawFields) -> Usage | None:
    prompt = tokens(of(fields, "prompt_tokens"))
    if not prompt:
        return None
    cached, wrote = (tokens(of(fields, f"prompt_cache_{kind}_tokens")) for kind in ("read", "write"))
    return Usage(prompt, tokens(of(fields, "completion_tokens")) or 0, min(cached or 0, prompt), written=wrote)


READER = Reader("Helicone", recognises, lambda: EachEntry(read))
