"""The result of a request: usage, refusals, and the outcome for metrics and log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from proxy.model.plan import Note
from proxy.model.trace import Trace

# The endpoints of requests that are not fitted. Every other endpoint is the name of an API.
PASSTHROUGH, WEBSOCKET = "passthrough", "websocket"
UNFITTED = frozenset({PASSTHROUGH, WEBSOCKET})


class Unmoved(StrEnum):
    """Why a request that was cut was not moved to a model that its ladder allows: values of a label of metrics."""

    NO_API = "no_api"
    NOT_SERVED = "not_served"
    NAMED = "named"
    UNREACHED = "unreached"
    CALLER = "caller"
    BOUND = "bound"
    WINDOW_UNKNOWN = "window_unknown"
    UNABLE = "unable"
    TOO_SMALL = "too_small"
    NO_SPARE = "no_spare"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage of an error by which it was recognised, with the words before and after it. `figure`: it is a number
    that was parsed."""

    words: tuple[str, ...]
    before: str = ""
    after: str = ""
    figure: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An upstream's refusal of a request for its length, with the figures that it names, in tokens.

    `bounds`: what `limit` limits: the `window`; the `input` alone; the `body`, in bytes; this `request` alone, without
    a conclusion about the window; `roles`: the roles do not alternate, or `reasoning`: it is bound to what was cut, and
    the length was not refused. `at_least`:
    the upstream stopped counting, so `prompt` is a lower bound. `implied`: the error names no limit, its wording means
    one: that of the sender's plan, not of the model. `rule`: the row of rules/refusals.toml that matched.
    `quotes`: the passages that matched; text that the client itself sent proves nothing.
    """

    rule: str
    limit: int | None = None
    bounds: str = "window"
    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    excess: int | None = None
    at_least: bool = False
    implied: bool = False
    quotes: tuple[Quote, ...] = field(default=(), compare=False, repr=False)


# The tiers of service that have prices of their own, by all their names; any other that an answer names is the usual.
DEFAULT_TIER = "default"
FAST = "fast"  # the fast mode of Claude
TIERS = {
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
    "balanced": "balanced",
    "ultrafast": "ultrafast",
    "batch": "batch",
    "on_demand_flex": "flex",
    "on_demand_priority": "priority",
}


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """What few answers report beside their tokens, and is billed otherwise. `written_hour`: the part of `written` that
    is kept for an hour. `audio`, `audio_reply`: the part of the prompt and of the completion that is audio. `searches`:
    of the web. `cost`: of the whole request in US dollars, as the upstream itself says."""

    written_hour: int = 0
    audio: int = 0
    audio_reply: int = 0
    searches: int = 0
    cost: float | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The token counts that the upstream reported. `cached` is the part of `prompt` that was read from its prompt
    cache, `written` the part that was written to it (None: not reported, which is not 0). `stored_as`: the id under
    which it stored the prompt and its reply; empty if it did not. `reasoning`: the part of `completion` that was
    thought. `tier`: of service, `DEFAULT_TIER` or a value of `TIERS`; empty if it does not say. `model`: the one that
    answered, as it names itself."""

    prompt: int
    completion: int = 0
    cached: int = 0
    stored_as: str = ""
    written: int | None = None
    reasoning: int = 0
    tier: str = ""
    model: str = ""
    extra: Extra | None = None


FIRST, KEPT, MOVED = "first", "kept", "moved"  # what became of the prefix that was sent before, in a prompt that is cut


class Repeated(msgspec.Struct, frozen=True):
    """How many of a prompt's first tokens were sent before, `idle` seconds ago: of what the client sent (`asked`), and
    of what was sent upstream (`sent`). `prefix`: for a prompt that was cut, `FIRST` if nothing of it was sent before,
    `KEPT` if all but the end of what was sent before is sent again, else `MOVED`."""

    asked: int
    sent: int
    idle: float = 0.0
    prefix: str = ""


# The shapes of prompts by which errors of counts are told apart, the last that holds: tools, a response schema, calls
# in the history, several calls in one message. A prompt that was not parsed has one of the first three.
SHAPES = ("text", "tools", "schema", "history", "parallel")


class Outcome(msgspec.Struct, frozen=True):
    """Everything that metrics and log report about a finished request. It has no content and no key. Times in seconds.

    `notes`: the steps that changed what was sent; `planned`: the steps that mode `observe` did not apply, and
    `planned_result`: the result that they would have had, where the ladder was descended. `too_long`: as the client
    sent it, the request does not fit its known window, and another could be sent instead. `repeated`: None if unknown.
    `path`: without the query and ids. `attempts`: requests to the upstream. `request_id`: the upstream's, else the
    client's.
    `extra_*`: calls for this request beside itself that had ended: our own, such as summaries, and the pieces of a
    split request that were answered in vain. `trace`: if it is sampled.
    """

    endpoint: str
    result: str
    status: int
    mode: str = ""
    ladder: str = ""
    model: str = ""
    model_sent: str = ""
    window: int = 0
    window_source: str = ""
    quality: str = ""
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    reply_asked: int | None = None
    reply_sent: int | None = None
    load_before: float | None = None
    load_after: float | None = None
    messages_in: int = 0
    messages_sent: int = 0
    notes: tuple[Note, ...] = ()
    refusals: tuple[str, ...] = ()
    healed: bool = False
    usage: Usage | None = None
    uncounted: bool = False  # its bytes proved that it fits, and it was never counted
    stream: bool = False
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    truncated: bool = False  # silently, by the upstream: its usage is far below our count
    bytes_in: int = 0  # from the client of a WebSocket
    bytes_out: int = 0  # to the client of a WebSocket
    path: str = ""
    attempts: int = 0
    request_id: str = ""
    planned: tuple[Note, ...] = ()
    planned_result: str = ""
    too_long: bool = False
    repeated: Repeated | None = None
    extra_calls: int = 0
    extra_tokens: int = 0
    extra_seconds: float = 0.0
    trace: Trace | None = None
    caller: str = ""  # the metrics' label; empty without one
    trace_id: str = ""  # of a trace that the client or we record, where metrics want it
    phases: tuple[tuple[str, float], ...] = ()  # parts of our own time, in seconds
    unmoved: str = ""  # why it was not moved to a model that its ladder allows
    unmoved_by: tuple[str, ...] = ()  # the same as values of `Unmoved`, each once
    kept: tuple[tuple[str, int], ...] = ()  # why messages stay that a cut would have taken: a reason, how many it keeps
    unplanned: str = ""  # why it was sent as it came, without a plan
    upstream: str = ""  # the name of the one that was asked last, if there are several
    tier: str = ""  # of service, as the client asked for it; a value of `TIERS`
    came: int = 0  # tokens of the reply of an answer that broke off, by an estimate
    budget: str = ""  # the name of the one that it is under, and its stage
    stage: int = 0
    shape: str = ""  # what of a prompt its count had to know how to count (`SHAPES`); empty where usage teaches nothing
