"""The proxy's own recordings (`PLIMSOLL_RECORD`): figures alone (`meta`), with other words (`redacted`), or whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.apis import named
from proxy.model.lenient_json import Json, RawFields, mapping, raw_fields
from proxy.model.limits import FLOOR, Window
from proxy.model.outcome import DEFAULT_TIER, FAST, TIERS, UNFITTED, Extra, Usage
from proxy.replay.recorded import EachEntry, Figures, Found, Headers, Reader, Recorded, Skipped
from proxy.replay.values import moment, of, status, text, tokens, value
from proxy.wire.controls import PREFIX
from proxy.wire.usage import cost_of, extra_of

VERSION = 1
KEYS = 8  # of one caller
STEPS = 64  # of one request that are read
KNOWN_TIERS = {DEFAULT_TIER, FAST, *TIERS.values()}


def recognises(fields: RawFields) -> bool:
    """Whether it is a line of a recording."""
    return {"v", "time", "api", "path"} <= fields.keys()


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """One line."""
    if value(fields["v"]) != VERSION:
        yield Skipped("a recording of another version of Plimsoll")
        return
    if text(of(fields, "api")) in UNFITTED:
        yield Skipped("a request of a path that is not fitted", other=True)
        return
    raw, path = fields.get("request"), text(of(fields, "path"))
    body = bytes(raw) if raw is not None else _written(of(fields, "request_text"))
    in_body = named(path) is None and "model" in raw_fields(body)
    yield Recorded(
        body=body,
        at=_began(of(fields, "time"), of(fields, "ms")),
        path=path,
        model="" if in_body else text(of(fields, "model")),
        app=text(of(fields, "caller_name")) or text(of(fields, "caller")),
        caller=text(of(fields, "caller")),
        usage=_usage(of(fields, "usage")),
        status=status(of(fields, "status")),
        headers=_headers(of(fields, "controls")),
        redacted=of(fields, "content") == "redacted",
        figures=_figures(fields),
        name=text(of(fields, "caller_name")),
        keys=_keys(of(fields, "caller_keys")),
        upstream=text(of(fields, "upstream")),
        model_sent=text(of(fields, "model_sent")),
    )


def _written(found: Json) -> bytes:
    return found.encode("utf-8", "replace") if isinstance(found, str) else b""


def _began(ended: Json, ms: Json) -> float | None:
    """A line has the time of the end; prompts are cached in the order in which they began."""
    at, parts = moment(ended), mapping(ms)
    took = [took for name in ("own", "upstream") if (took := _milliseconds(parts.get(name))) is not None]
    return None if at is None else at - sum(took) / 1000


def _milliseconds(found: Json) -> float | None:
    return (
        float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) and 0 <= found < 1e9 else None
    )


def _usage(found: Json) -> Usage | None:
    if not isinstance(found, dict) or (prompt := tokens(found.get("prompt"))) is None:
        return None
    completion, cached, written = (tokens(found.get(name)) for name in ("completion", "cached", "written"))
    return Usage(
        prompt,
        completion or 0,
        min(cached or 0, prompt),
        written=written,
        reasoning=tokens(found.get("reasoning")) or 0,
        tier=tier if (tier := text(found.get("tier"))) in KNOWN_TIERS else "",
        model=text(found.get("model")),
        extra=_extra(mapping(found.get("extra"))),
    )


def _extra(found: Mapping[str, Json]) -> Extra | None:
    counts = {name: tokens(found.get(name)) or 0 for name in ("written_hour", "audio", "audio_reply", "searches")}
    return extra_of(Extra(**counts, cost=cost_of(found.get("cost"))))


def _keys(found: Json) -> tuple[str, ...]:
    return tuple(text(key) for key in found[:KEYS]) if isinstance(found, list) else ()


def _headers(found: Json) -> Headers:
    """The control headers that the request had."""
    if not isinstance(found, dict):
        return ()
    given = [("ladder", text(found.get("ladder"))), ("window", str(tokens(found.get("window")) or ""))]
    pins = found.get("pins")
    if isinstance(pins, list):
        given.append(("pin", ",".join(str(pin) for pin in pins[:1000] if tokens(pin) is not None)))
    return tuple((PREFIX + name.encode(), said.encode("latin-1", "replace")) for name, said in given if said)


def _figures(fields: RawFields) -> Figures:
    prompt, sent = tokens(of(fields, "prompt")), tokens(of(fields, "prompt_sent"))
    return Figures(
        prompt,
        prompt if sent is None else sent,
        None if prompt is None else _load(prompt, fields),
        tuple(_steps(of(fields, "steps"))),
    )


def _load(prompt: int, fields: RawFields) -> float | None:
    """The load as the client sent it. The reserve is that of what was sent: 0 where a reply takes no room, or less than
    the limit that the client asked for."""
    size, limit, reserve = (tokens(of(fields, name)) or 0 for name in ("window", "max_tokens", "reserve"))
    if not size:
        return None
    window = Window(size)
    if limit and reserve:
        return window.load(prompt, max(limit, reserve))
    return window.load_without_limit(prompt, reserve, min(reserve, window.floor(FLOOR)))


def _steps(found: Json) -> Iterator[tuple[str, int, int]]:
    for step in found[:STEPS] if isinstance(found, list) else ():
        if isinstance(step, dict) and (name := text(step.get("step"))):
            yield name, tokens(step.get("tokens_before")) or 0, tokens(step.get("tokens_after")) or 0


READER = Reader("plimsoll", recognises, lambda: EachEntry(read))
