"""A plan as response headers, and as the JSON of /inspect. Headers and steps show figures, never content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from proxy.model.conversation import Kind
from proxy.model.lenient_json import Json
from proxy.model.limits import NO_MARGIN, Window
from proxy.model.plan import Draft, Note, Plan
from proxy.model.scan import Total
from proxy.wire.controls import Controls
from proxy.wire.rows import Row, as_json, rows
from proxy.wire.touches import as_list, overhead

MAX_PINS = 8  # that a notice names
TOKENS_SENT, MAX_TOKENS = b"x-plimsoll-tokens-sent", b"x-plimsoll-max-tokens"
AS_SENT = frozenset((TOKENS_SENT, MAX_TOKENS))  # headers that a request which is not sent has not
GROUPS = {Kind.INSTRUCTION: "system", Kind.RESULT: "tool_results"}  # any other message is history


def step_summary(note: Note) -> str:
    """One step in the header: `trim_tool_results;-1234`, `clamp_output;4096->1200`, `switch_model;gpt-4->gpt-4o`."""
    if note.model_before != note.model_after:
        return f"{note.step};{note.model_before}->{note.model_after}"
    if note.reply_before != note.reply_after and note.tokens_before == note.tokens_after:
        return f"{note.step};{note.reply_before}->{note.reply_after}"
    return f"{note.step};{note.tokens_after - note.tokens_before:+d}"


def plan_headers(plan: Plan, *, sent: bool) -> list[tuple[bytes, bytes]]:
    """The x-plimsoll-* response headers of a plan. `sent` is False if the plan was only observed."""
    draft = plan.draft if sent else plan.before
    pairs = [
        ("tokens", str(plan.before.billed)),
        ("tokens-sent", str(draft.billed)),
        ("count", str(plan.before.meter.quality)),
    ]
    if draft.reply is not None:
        pairs.append(("max-tokens", str(draft.reply)))
    if draft.model != plan.before.model:
        pairs.append(("model", draft.model))
    if plan.notes:
        pairs.append(("steps", ", ".join(map(step_summary, plan.notes))))
    return [(b"x-plimsoll-" + name.encode(), header_value(value)) for name, value in pairs]


def total_headers(total: Total, reply: int | None) -> list[tuple[bytes, bytes]]:
    """The same headers for a request that was counted and forwarded unchanged; `reply` is its reply limit in tokens."""
    tokens, quality = b"%d" % total.prompt, total.quality.encode()
    headers = [(b"x-plimsoll-tokens", tokens), (TOKENS_SENT, tokens), (b"x-plimsoll-count", quality)]
    if reply is not None:
        headers.append((MAX_TOKENS, b"%d" % reply))
    return headers


def header_value(text: str) -> bytes:
    """The text as a header's value: other characters than visible ASCII become `?` (a model's name is client text)."""
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode("ascii")


def notices(controls: Controls, window: Window | None, messages: int) -> list[str]:
    """The controls that have no effect: a window over the model's own, and pins of messages that do not exist.

    `window` is the one that the plan used, `messages` the number of messages in the request.
    """
    texts = []
    wanted = controls.window
    ruled = None if controls.rule is None else controls.rule.window
    if wanted is not None and wanted != ruled and window is not None and window.tokens < wanted:
        texts.append(f"the window of {wanted:,} tokens is over the model's own {window.tokens:,}, which applies")
    absent = sorted(pin for pin in controls.pins if pin >= messages)
    if absent:
        texts.append(f"pin {', '.join(map(str, absent[:MAX_PINS]))} names no message: there are {messages}")
    return texts


def inspection(plan: Plan, request: Json, notices: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON of /inspect. `request` is the body as it would be sent; figures are in tokens."""
    found, detail = figures(plan), rows(plan)
    messages = {**found["messages"], "detail": [*map(as_json, detail)], "overhead": _overhead(plan, detail)}
    return {**found, "messages": messages, "notices": list(notices), "request": request}


def figures(plan: Plan) -> dict[str, Any]:
    """The figures of a plan, in tokens: the JSON of /inspect without anything about single messages."""
    before, draft = plan.before, plan.draft
    return {
        "model": before.model,
        "model_sent": draft.model,
        "window": before.window.tokens,
        "window_source": before.window.source,
        "window_guessed": before.window.guessed,
        "window_sent": draft.window.tokens,
        "tokens": {
            "prompt": before.billed,
            "prompt_sent": draft.billed,
            "reserve": before.reserve,
            "max_tokens_sent": draft.reply,
            "margin": before.margin,
            "quality": str(before.meter.quality),
        },
        "load": {"before": round(before.load, 4), "after": round(draft.load, 4)},
        "fits": plan.fits,
        "possible": plan.possible,
        "excess": max(0, draft.excess),
        "steps": [_step(note) for note in plan.notes],
        "messages": {"in": count(before), "sent": count(draft)},
        "parts": {"before": parts(before), "sent": parts(draft)},
        "metadata": {  # the names of an earlier system, for programs that already read them
            "messageCount": count(draft),
            "inputTokenCount": draft.billed,
            "adjustedMaxTokens": draft.reply,
        },
    }


def _step(note: Note) -> dict[str, Any]:
    step: dict[str, Any] = {"step": note.step, "tokens_before": note.tokens_before, "tokens_after": note.tokens_after}
    if note.reply_before != note.reply_after:
        step |= {"max_tokens_before": note.reply_before, "max_tokens_after": note.reply_after}
    if note.model_before != note.model_after:
        step |= {"model_before": note.model_before, "model_after": note.model_after}
    return step


def count(draft: Draft) -> int:
    """The number of messages in a draft."""
    return sum(len(block.messages) for block in draft.blocks)


def _overhead(plan: Plan, detail: Sequence[Row]) -> dict[str, Any]:
    """The tokens of the prompt besides its messages, of which these are the rows: tools, schemas, the request itself.
    With the rows, its steps add up to what the steps' notes say."""
    steps = as_list(overhead(plan, (touch for row in detail for touch in row.steps)))
    return {"tokens": plan.before.fixed, "tokens_sent": plan.draft.fixed, "steps": steps}


def parts(draft: Draft) -> dict[str, int]:
    """The tokens of each part of a request: system, tools, history, tool results, reply and margin."""
    taken: Counter[str] = Counter({"tools": sum(v for k, v in draft.meter.fixed.items() if k != "base")})
    taken["history"] += draft.meter.fixed.get("base", 0) + draft.rounding
    for message in draft.messages:
        taken[GROUPS.get(message.kind, "history")] += message.tokens
    return {**taken, "reply": draft.reserve, "margin": draft.margin}


def least_reply(draft: Draft) -> int:
    """The reply limit that an error names, in tokens: the floor if not even that fits, else what would be sent."""
    floor = draft.floor if draft.reply is None else min(draft.floor, draft.reply)
    return floor if draft.prompt + floor + draft.margin > draft.window.tokens else draft.least_reply


def too_long_inputs(draft: Draft) -> list[tuple[int, int]]:
    """Index and tokens of each message that has the window to itself and does not fit."""
    return [
        (message.index, message.tokens)
        for message in draft.messages
        if draft.window.excess(message.tokens, 0, NO_MARGIN) > 0
    ]


def takers(draft: Draft) -> str:
    """The parts of a request that does not fit: `tools alone take 7,100 of 8,192`, then all, the largest first.

    The reply is one of them: with a budget for thinking it may be what does not fit.
    """
    names = {"tool_results": "tool results", "system": "the system prompt", "history": "messages", "reply": "the reply"}
    taken = {names.get(k, k): v for k, v in {**parts(draft), "reply": least_reply(draft), "margin": 0}.items() if v > 0}
    largest = sorted(taken.items(), key=lambda kv: -kv[1])
    first, most = largest[0]
    verb = "takes" if first.startswith("the ") else "take"
    lead = f"{first} alone {verb} {most:,} of {draft.window.tokens:,}"
    return f"{lead} ({', '.join(f'{name} {v:,}' for name, v in largest)})"
