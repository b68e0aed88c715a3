"""The lines of a recording: one for each request. deploy/docs/recording.md describes their fields.

`figures` makes a line without its body: it has no content and no key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from proxy.config.callers import OTHER
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.recording.recorded_bodies import Headers
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.keys import hidden_text

VERSION = 1  # of the lines
MAX_NAME = 120
NAME = re.compile(r"[\w.:/@+-]*")
MAX_NAMES = 1024
_names: dict[str, str] = {}  # of models, that were matched with the pattern


class Request(msgspec.Struct, gc=False):
    """A request that has ended. `fitted`: it has a body, which is `body`, None if it is not held. `finish`: the reason
    that the upstream reported, where the answer was relayed as it came."""

    outcome: Outcome
    headers: Headers = ()
    fitted: bool = False
    controls: Controls = NOTHING_ASKED
    body: bytes | None = b""
    finish: str | None = None


class _Step(msgspec.Struct):
    step: str
    tokens_before: int
    tokens_after: int


class _Times(msgspec.Struct, omit_defaults=True, gc=False):
    """Milliseconds."""

    own: float
    upstream: float = 0.0
    first_byte: float | None = None


class _Controls(msgspec.Struct, omit_defaults=True):
    mode: str = ""
    window: int | None = None
    pins: tuple[int, ...] = ()
    ladder: str = ""


class Line(msgspec.Struct, omit_defaults=True, gc=False, tag_field="v", tag=VERSION):
    """The fields of a line without its body. Those with their default value are omitted."""

    time: float
    api: str
    path: str = ""
    model: str = ""
    model_sent: str = ""
    upstream: str = ""
    caller: str = ""
    result: str = ""
    status: int = 0
    stream: bool = False
    mode: str = ""
    ladder: str = ""
    attempts: int = 0
    window: int = 0
    window_source: str = ""
    count: str = ""
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    max_tokens: int | None = None
    max_tokens_sent: int | None = None
    messages: int = 0
    messages_sent: int = 0
    refused: tuple[str, ...] = ()
    healed: bool = False
    truncated: bool = False
    usage: Usage | None = None
    ms: _Times | None = None
    steps: list[_Step] = []
    planned: list[_Step] = []
    controls: _Controls | None = None
    finish: str | None = None
    caller_name: str = ""
    budget: str = ""
    stage: int = 0
    caller_keys: tuple[str, ...] = ()


Names = Callable[[str, str], str]  # what a model is called in lines of a caller


def figures(request: Request, caller: str, at: float, name: Names | None = None, answered: Names | None = None) -> Line:
    """The line of a request without its body. `at`: when it ended. `name`: of the model that the client named; None: as
    it is. `answered`: of the one that the answer names; None: it is not recorded."""
    o, controls, finish = request.outcome, request.controls, request.finish
    usage = o.usage
    if usage is not None and (usage.stored_as or usage.model):
        model = answered(usage.model, caller) if answered is not None and usage.model != o.model_sent else ""
        usage = replace(usage, stored_as="", model=model)
    line = Line(  # by position: msgspec takes 7 us for so many keywords, and .8 so
        at,
        o.endpoint,
        o.path,
        _model(o.model, caller, name),
        "" if o.model_sent == o.model else _model(o.model_sent, caller, name),
        o.upstream,
        caller,
        o.result,
        o.status,
        o.stream,
        o.mode,
        o.ladder,
        o.attempts,
        o.window,
        o.window_source,
        o.quality,
        o.prompt,
        o.prompt_sent,
        o.reserve,
        o.reply_asked,
        o.reply_sent,
        o.messages_in,
        o.messages_sent,
        o.refusals,
        o.healed,
        o.truncated,
        usage,
        _times(o),
    )
    if o.notes or o.planned:
        line.steps, line.planned = _steps(o.notes), _steps(o.planned)
    if controls is not NOTHING_ASKED:
        line.controls = _controls(controls, o.ladder)
    if finish is not None:
        line.finish = printable(finish)
    if o.caller and o.caller != OTHER:
        line.caller_name = o.caller
    if o.budget:
        line.budget, line.stage = o.budget, o.stage
    return line


def _model(model: str, caller: str, name: Names | None) -> str:
    return name(model, caller) if name is not None else _names.get(model) or named(model)


def _times(outcome: Outcome) -> _Times:
    first = outcome.first_byte_seconds
    return _Times(
        round(1000 * outcome.own_seconds, 2),
        round(1000 * outcome.upstream_seconds, 1),
        None if first is None else round(1000 * first, 1),
    )


def named(model: str) -> str:
    """A model's name; what is no name is a text of the client, which nothing may show. A key in it is hidden."""
    if len(model) > MAX_NAME or not NAME.fullmatch(model):
        return "?"
    if len(_names) >= MAX_NAMES:  # clients choose them
        _names.clear()
    return _names.setdefault(model, hidden_text(model))


def _steps(notes: Sequence[Note]) -> list[_Step]:
    return [_Step(note.step, note.tokens_before, note.tokens_after) for note in notes]


def _controls(asked: Controls, ladder: str) -> _Controls:
    """The control headers whose values are not the client's own words."""
    named = asked.ladder if asked.ladder == ladder else None
    return _Controls(asked.mode or "", asked.window, tuple(sorted(asked.pins)), named or "")
