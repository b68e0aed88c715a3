"""What the JSON of a completion reports, and the proxy's own errors as clients expect them. Nothing here raises."""

from __future__ import annotations

from functools import partial

from proxy.apis.openai_completions.request import PROMPT
from proxy.model.api import ErrorFields
from proxy.wire.openai import choices, errors

HOLD_S = 1.0  # a refusal comes in the first event
complete_usage = partial(choices.complete_usage, "text_completion")


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response of the proxy's own, in the shape of OpenAI's errors."""
    return errors.error_body(error, too_long=PROMPT)


def error_event(error: ErrorFields) -> bytes:
    """The event that reports an error of the proxy's own in a stream that has begun."""
    return errors.error_event(error, too_long=PROMPT)


def refusal_stream(error: ErrorFields, model: str, created: int) -> None:
    """None: clients read an error response."""
