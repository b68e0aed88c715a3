"""A finished request as the page, its API and `plimsoll top` show it: figures and names, never content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.metrics.outcome_metrics import count_error
from proxy.observe.recent import Kept, Recent

Entry = dict[str, Any]
Filter = Callable[[Outcome], bool]
FILTERED = ("result", "endpoint", "model", "caller", "min_load", "cut")


def entry(recent: Recent, kept: Kept) -> Entry:
    """The JSON of one request."""
    o, number = kept.outcome, kept.number
    error = count_error(o)
    return {
        "id": f"{recent.name}-{number}",
        "at": round(kept.at, 6),  # pages of requests are told apart by it
        "worker": recent.worker,
        "endpoint": o.endpoint,
        "path": printable(o.path),
        "result": o.result,
        "status": o.status,
        "mode": o.mode,
        "ladder": o.ladder,
        "stream": o.stream,
        "model": printable(o.model),
        "model_sent": printable(o.model_sent),
        "upstream": o.upstream,
        "caller": o.caller,
        "conversation": kept.conversation,
        "budget": o.budget,
        "stage": o.stage,
        "window": o.window,
        "window_source": o.window_source,
        "quality": o.quality,
        "prompt": o.prompt,
        "prompt_sent": o.prompt_sent,
        "cut": sum(note.tokens_before - note.tokens_after for note in o.notes),
        "reserve": o.reserve,
        "max_tokens_asked": o.reply_asked,
        "max_tokens_sent": o.reply_sent,
        "load_before": None if o.load_before is None else round(o.load_before, 4),
        "load_after": None if o.load_after is None else round(o.load_after, 4),
        "messages": o.messages_in,
        "messages_sent": o.messages_sent,
        "steps": _steps(o.notes),
        "planned": _steps(o.planned),
        "planned_result": o.planned_result,
        "refusals": list(o.refusals),
        "healed": o.healed,
        "too_long": o.too_long,
        "truncated": o.truncated,
        "uncounted": o.uncounted,
        "usage": _usage(o),
        "count_error": None if error is None else round(error, 5),
        "attempts": o.attempts,
        "own_ms": round(1000 * o.own_seconds, 3),
        "upstream_ms": round(1000 * o.upstream_seconds, 1),
        "first_byte_ms": None if o.first_byte_seconds is None else round(1000 * o.first_byte_seconds, 1),
        "request_id": o.request_id,
        "trace_id": o.trace.trace_id if o.trace else o.trace_id,
        "extra_calls": o.extra_calls,
        "extra_tokens": o.extra_tokens,
        "has_rows": recent.has_breakdown(number),
        "has_texts": recent.texts(number) is not None,
    }


def phases_ms(o: Outcome) -> dict[str, float]:
    """Parts of our own time, in milliseconds."""
    return {name: round(1000 * seconds, 3) for name, seconds in o.phases}


def _usage(o: Outcome) -> dict[str, int | None] | None:
    u = o.usage
    if u is None:
        return None
    return {"prompt": u.prompt, "completion": u.completion, "cached": u.cached, "written": u.written}


def _steps(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [_step(note) for note in notes]


def _step(note: Note) -> dict[str, Any]:
    found: dict[str, Any] = {"step": note.step, "tokens_before": note.tokens_before, "tokens_after": note.tokens_after}
    if note.reply_before != note.reply_after:
        found |= {"max_tokens_before": note.reply_before, "max_tokens_after": note.reply_after}
    if note.model_before != note.model_after:
        found |= {"model_before": printable(note.model_before), "model_after": printable(note.model_after)}
    return found


def matching(asked: Mapping[str, str]) -> Filter:
    """Whether an outcome passes the filters of `FILTERED` in `asked`. Raises `ValueError` for a wrong one."""
    results, endpoints = _names(asked.get("result", "")), _names(asked.get("endpoint", ""))
    model, least = asked.get("model", "").lower(), float(asked.get("min_load") or 0)
    cut, callers = asked.get("cut", "") not in ("", "0"), _names(asked.get("caller", ""))

    def matches(o: Outcome) -> bool:
        if (results and o.result not in results) or (endpoints and o.endpoint not in endpoints):
            return False
        if (cut and not o.notes) or (callers and o.caller not in callers):
            return False
        if model and model not in o.model.lower() and model not in o.model_sent.lower():
            return False
        return not least or (o.load_before or 0.0) >= least

    return matches


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
