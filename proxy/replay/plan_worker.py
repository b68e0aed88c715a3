"""Plans recorded requests as `/inspect` does, under one or several sets of options; runs in worker processes.

The options of a column (another ladder, window, model) reach the plan as a client's own control headers would. Nothing
is sent, nothing is learned: a plan depends on its request alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec
from xxhash import xxh3_64_intdigest

from proxy.apis import api_of, at, by_path, named, usual
from proxy.apis.deployed import MODEL, deployed
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.fit.prompt_cache import Pieces
from proxy.model.api import Api
from proxy.model.budget import STAGES, Budget
from proxy.model.conversation import Kind, Message, Prompt
from proxy.model.lenient_json import raw_fields
from proxy.model.plan import Draft, Plan
from proxy.model.structs import replace
from proxy.replay.evidence import NO_EVIDENCE, Evidence, evidence
from proxy.replay.pieces import pieces_of
from proxy.replay.recorded import Headers, Recorded
from proxy.request.inspect import DryRun
from proxy.services import Services, build
from proxy.wire.cache_marks import without_marks
from proxy.wire.controls import AS, PREFIX
from proxy.wire.report import figures
from proxy.wire.rows import as_json, rows

WINDOW = PREFIX + b"window"
NUMBERS = re.compile(r"\d+")
MAX_ROWS = 200  # of a cut that is shown
MAX_TEXT = 4_000  # characters of a message that is shown
TOO_LARGE = "a body above PLIMSOLL_MAX_BODY, which gets a 413"
NOT_PLANNED = "our own error: please report it"


class Column(msgspec.Struct, frozen=True):
    """One set of options: a ladder's name, a window in tokens, a model. Empty or None: as it was recorded."""

    ladder: str = ""
    window: int | None = None
    model: str = ""

    @property
    def name(self) -> str:
        """How reports call it."""
        window = None if self.window is None else f"window {self.window:,}"
        ladder = f"ladder {self.ladder}" if self.ladder else ""
        return ", ".join(filter(None, (ladder, window, self.model))) or "as configured"

    def headers(self, recorded: Headers) -> Headers:
        """The control headers of a request: its own, and those of the column in their place."""
        ours = {b"ladder": self.ladder.encode(), b"window": b"" if self.window is None else b"%d" % self.window}
        given = {PREFIX + name: said for name, said in ours.items() if said}
        return (*((name, said) for name, said in recorded if name not in given), *given.items())


class Step(msgspec.Struct, frozen=True):
    """What one step did, in tokens."""

    name: str
    before: int
    after: int


class Planned(msgspec.Struct, frozen=True):
    """What came of one request under one column, in tokens.

    `talk`: the same for prompts that begin with the same question. `asked`, `sent`: the prompts for the model of prompt
    caches; `sent` is None if nothing was changed. `guessed`: the window is not known. `over`: it does not fit as it was
    sent. `too_long`: its upstream would have refused it. `unplanned`: why there is no plan. `report`: the figures as
    `/inspect` has them, if they were asked for. `tier`: of service, as it was asked for. `caller`: whose rule of
    callers.toml it is under; empty: none's. `changes`: False if nothing may be changed, by its rule.
    `budget`: of its rule, by which callers that have no name have one each (`anybody`). `staged`: the same request in
    the stages of its budget, where these change it. `denied`: its budget is used up. `evidence`: the names in it.
    """

    api: str = ""
    model: str = ""
    model_sent: str = ""
    prompt: int = 0
    prompt_sent: int = 0
    window: int = 0
    load: float = 0.0
    load_sent: float = 0.0
    guessed: bool = False
    over: bool = False
    too_long: bool = False
    possible: bool = True
    steps: tuple[Step, ...] = ()
    talk: int = 0
    asked: Pieces | None = None
    sent: Pieces | None = None
    unplanned: str = ""
    report: Any = None
    tier: str = ""
    caller: str = ""
    changes: bool = True
    budget: Budget | None = None
    anybody: bool = False
    staged: tuple[Planned, ...] = ()
    denied: bool = False
    evidence: Evidence = NO_EVIDENCE

    @property
    def changed(self) -> bool:
        """Whether a step changed it."""
        return bool(self.steps)

    @property
    def share_cut(self) -> float:
        """The share of the prompt that was removed."""
        return (self.prompt - self.prompt_sent) / self.prompt if self.prompt else 0.0


class Cut(msgspec.Struct, frozen=True):
    """One cut to look at: its messages before and after, as rows of `/inspect`; with texts only where they were asked
    for."""

    planned: Planned
    rows: list[dict[str, Any]]
    rows_left_out: int = 0


@dataclass(slots=True)
class Planning:
    """Plans requests, as a context that ends its threads. `content`: cuts have texts. `reports`: results have the
    figures as `/inspect` has them."""

    settings: Settings
    columns: Sequence[Column]
    content: bool = False
    reports: bool = False
    services: Services = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.new_event_loop)

    def __post_init__(self) -> None:
        self.services = build(replace(self.settings, redis=None, record=None), lambda outcome: None, variables=None)
        self.services.go_offline()

    def __enter__(self) -> Planning:
        return self

    def __exit__(self, *error: object) -> None:
        self.services.pool.close()
        self.loop.close()

    def plan(self, recorded: Recorded) -> Iterator[tuple[Planned, Plan | None]]:
        """What would have been done with a request under each column. Never raises."""
        for column in self.columns:
            if len(recorded.body) > self.settings.max_body:
                yield Planned(unplanned=TOO_LARGE), None
                continue
            try:
                yield self.loop.run_until_complete(self._plan(recorded, column))
            except ClientError as error:
                yield Planned(unplanned=NUMBERS.sub("N", error.message)[:200]), None
            except Exception:
                yield Planned(unplanned=NOT_PLANNED), None

    async def _plan(self, recorded: Recorded, column: Column) -> tuple[Planned, Plan]:
        body = _for_model(recorded.body, column.model) if column.model else recorded.body
        api = self._api(recorded, "" if column.model else recorded.model)
        headers = (*column.headers(recorded.headers), *_callers(recorded))
        made = await self.services.inspecting.planned(api, body, headers)
        rule = made.received.controls.rule
        budget = None if rule is None else rule.budget
        found = self._result(made, may_be_denied=budget is not None and budget.enforced)
        if rule is None or budget is None:
            return found, made.descent.plan
        staged = await self._staged(api, body, headers, budget, made.received.controls.window)
        return replace(found, budget=budget, anybody=rule.anybody, staged=staged), made.descent.plan

    async def _staged(
        self, api: Api, body: bytes, headers: Headers, budget: Budget, asked: int | None
    ) -> tuple[Planned, ...]:
        """A request in each stage of its budget; nothing where the smallest window changes nothing."""
        found: list[Planned] = []
        for stage in range(STAGES, 0, -1):
            window = budget.window_in(stage)
            if window is None:
                return ()
            size = window if asked is None else min(window, asked)
            kept = tuple(header for header in headers if header[0] != WINDOW)
            made = await self.services.inspecting.planned(api, body, (*kept, (WINDOW, b"%d" % size)))
            found.insert(0, self._result(made._replace(changes=made.received.may_change)))
            if not found[0].changed and found[0].possible:
                return (found[0],) * stage + tuple(found[1:]) if len(found) > 1 else ()
        return tuple(found)

    def _result(self, made: DryRun, *, may_be_denied: bool = False) -> Planned:
        plan, prompt, head = made.descent.plan, made.descent.prompt, made.scanned.scan.head
        before, draft = plan.before, plan.draft if made.changes else plan.before
        changed = plan.changed and made.changes
        possible = plan.possible if made.changes else not before.too_long
        sent = draft.messages if changed or not possible or may_be_denied else None
        return Planned(
            api=prompt.api,
            model=before.model,
            model_sent=draft.model,
            prompt=before.billed,
            prompt_sent=draft.billed,
            window=before.window.tokens,
            load=before.load,
            load_sent=draft.load,
            guessed=before.window.guessed,
            over=before.excess > 0 and not plan.trusting,
            too_long=before.too_long,
            possible=possible,
            changes=made.changes,
            steps=tuple(Step(note.step, note.tokens_before, note.tokens_after) for note in plan.notes if changed),
            talk=_talk(prompt),
            asked=pieces_of(prompt, head, before),
            sent=pieces_of(prompt, head, draft) if changed else None,
            report=figures(plan) if self.reports else None,
            tier=made.scanned.scan.tier,
            caller=made.received.controls.caller,
            evidence=evidence(prompt.messages, sent),
        )

    def _api(self, recorded: Recorded, model: str) -> Api:
        """The API of a request by its path, else by its body; for `model` where the body names none."""
        path = recorded.path.rstrip("/")
        if (match := named(path)) is not None:
            model = model or self.services.windows.deployed(unquote(match[1]))
        known = by_path()
        api = at(path) or next((known[one] for one in known if path and one.endswith(path)), None)
        found = api or api_of(recorded.body) or usual()
        return deployed(found, model) if model else found

    def cut(self, planned: Planned, plan: Plan) -> Cut:
        """A cut to look at."""
        found = [as_json(row) for row in rows(plan, lines=False)]
        shown = [*found[: MAX_ROWS // 2], *found[-MAX_ROWS // 2 :]] if len(found) > MAX_ROWS else found
        if self.content:
            before, sent = _texts(plan.before), _texts(plan.draft)
            shown = [{**row, "text": before.get(row["index"]), "text_sent": sent.get(row["index"])} for row in shown]
        return Cut(replace(planned, asked=None, sent=None, report=None), shown, len(found) - len(shown))


def _callers(recorded: Recorded) -> Headers:
    """The names of who sent it, by which its rule of callers.toml is found."""
    names = {recorded.name, recorded.app, recorded.caller, *recorded.keys} - {""}
    return tuple((AS, name.encode("utf-8", "replace")) for name in sorted(names))


def _talk(prompt: Prompt) -> int:
    first = next((message.raw for message in prompt.messages if message.kind is Kind.USER), b"")
    return xxh3_64_intdigest(without_marks(first))


def _for_model(body: bytes, model: str) -> bytes:
    """The body for another model; itself if it is no object."""
    fields = raw_fields(body)
    return msgspec.json.encode({**fields, MODEL: model}) if fields else body


def _texts(draft: Draft) -> dict[int | None, str]:
    return {message.index: _text(message) for message in draft.messages if message.index >= 0}


def _text(message: Message) -> str:
    text = "\n".join(part.text for part in message.parts() if part.text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} …"
