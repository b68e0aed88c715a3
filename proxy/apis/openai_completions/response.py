"""What the JSON of a completion reports, and the proxy's own errors as clients expect them. Nothing here raises."""

from __future__ import annotations

from functools import partial

from proxy.apis.openai_completions.request import PROMPT
from proxy.wire.openai import choices, errors
from proxy.wire.openai.choices import event_kind as event_kind
from proxy.wire.openai.choices import landmarks as landmarks
from proxy.wire.openai.choices import read as read
from proxy.wire.openai.choices import read_tail as read_tail
from proxy.wire.openai.stream import is_end_of_stream as is_end_of_stream
from proxy.wire.openai.usage import with_more_prompt as with_more_prompt

complete_usage = partial(choices.complete_usage, "text_completion")
error_body = partial(errors.error_body, too_long=PROMPT)
error_event = partial(errors.error_event, too_long=PROMPT)
