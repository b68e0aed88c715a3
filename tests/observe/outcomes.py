"""Outcomes that the log, the metrics and the spans of traces show: one with all figures, one that passed."""

from __future__ import annotations

from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note

FITTED = Outcome(
    endpoint="chat",
    result="fitted",
    status=200,
    mode="fit",
    ladder="default",
    model="gpt-4",
    model_sent="gpt-4",
    window=8192,
    window_source="litellm",
    quality="exact",
    prompt=7793,
    prompt_sent=3691,
    reserve=3000,
    reply_asked=3000,
    reply_sent=3000,
    load_before=1.32,
    load_after=0.82,
    messages_in=144,
    messages_sent=69,
    notes=(Note("prune_history", 7793, 3691, 3000, 3000, "gpt-4", "gpt-4"),),
    usage=Usage(3691, 7),
    own_seconds=0.00123,
    upstream_seconds=0.25,
    path="/v1/chat/completions",
    attempts=1,
)
PASSED = Outcome(
    "passthrough", "passed", 200, own_seconds=0.0001, upstream_seconds=0.004, path="/v1/models", attempts=1
)
