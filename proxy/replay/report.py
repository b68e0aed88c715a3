"""The report of a replay as JSON: what the terminal and the page of it show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy import __version__
from proxy.replay.agreement import Errors
from proxy.replay.budgets import BudgetSums
from proxy.replay.engine import Result
from proxy.replay.evidence import Kept
from proxy.replay.order import Coverage
from proxy.replay.plan_worker import Column, Cut
from proxy.replay.prices import PricesAt
from proxy.replay.series import STEP, OverTime
from proxy.replay.sums import FiguresOnly, StepSums, Sums, Tally, WithoutPrice

MOST_SHOWN = 20  # rows of a table
FIGURES_ONLY = (
    "the recording has requests without their bodies, so they cannot be planned: their figures are those of the proxy "
    "that recorded them. PLIMSOLL_RECORD_CONTENT=meta, the default, records no body; redacted (other words of as many "
    "tokens) and bodies record what a replay needs"
)


@dataclass(slots=True)
class Replay:
    """What is known of a replay so far. `figures_only`: of requests whose bodies are not recorded. `since`, `until`:
    the times of the first and last request. `done`: requests. `tokens`: that were planned, under all columns. `rules`:
    the names of the rules by caller. `unknown`: recorded upstreams of which these rules say nothing."""

    columns: Sequence[Column]
    prices: PricesAt
    rules: Sequence[str] = ()
    unknown: Collection[str] = ()
    coverage: Coverage = field(default_factory=Coverage)
    tallies: list[Tally] = field(init=False)
    figures_only: FiguresOnly = field(init=False)
    since: float | None = None
    until: float | None = None
    done: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.tallies = [Tally(self.prices, moved=bool(column.model)) for column in self.columns]
        self.figures_only = FiguresOnly(prices=self.prices)

    def is_without_body(self, result: Result) -> bool:
        """Whether only the figures of a request are recorded."""
        return not result.planned and result.placed.recorded.figures is not None

    def add(self, result: Result) -> None:
        """Adds the result of one request."""
        recorded = result.placed.recorded
        self.done += 1
        if recorded.at is not None:
            self.since = recorded.at if self.since is None else min(self.since, recorded.at)
            self.until = recorded.at if self.until is None else max(self.until, recorded.at)
        if not result.planned:
            if self.is_without_body(result):
                self.figures_only.add(recorded)
            return
        for place, tally in enumerate(self.tallies):
            tally.add(result, place)
            self.tokens += result.planned[place].prompt


def report(replay: Replay, files: Sequence[str], prices_at: str, seconds: float, jobs: int) -> dict[str, Any]:
    """The whole report. Money is in US dollars, shares are of 1, times in seconds since 1970."""
    coverage = replay.coverage
    return {
        "plimsoll": __version__,
        "prices_at": prices_at,
        "input": {
            "files": coverage.files,
            "unreadable": coverage.unreadable,
            "requests": coverage.requests,
            "formats": _by_count(coverage.formats),
            "not_understood": _by_count(coverage.skipped),
            "other_lines": _by_count(coverage.other),
            "missing": _by_count(coverage.missing),
            "with_time": coverage.timed,
            "out_of_order": coverage.late,
            "redacted": coverage.redacted,
            "unknown_upstreams": sorted(replay.unknown),
            "unused_rules": _unused(replay),
            "since": replay.since,
            "until": replay.until,
        },
        "columns": [_column(*pair, files) for pair in zip(replay.columns, replay.tallies, strict=True)],
        "figures_only": _figures(replay.figures_only) if replay.figures_only.total.requests else None,
        "speed": {
            "seconds": round(seconds, 3),
            "tokens": replay.tokens,
            "tokens_per_second": round(replay.tokens / seconds) if seconds else 0,
            "processes": jobs,
        },
    }


def _unused(replay: Replay) -> list[str]:
    """The rules by caller that no request is under, nor refused by."""
    met = replay.tallies[0].rules.keys() | replay.tallies[0].callers.keys()
    return [name for name in dict.fromkeys(replay.rules) if name not in met]


def _by_count(found: Counter[str]) -> dict[str, int]:
    return dict(found.most_common())


def _column(column: Column, tally: Tally, files: Sequence[str]) -> dict[str, Any]:
    return {
        "name": column.name,
        "ladder": column.ladder or None,
        "window": column.window,
        "model": column.model or None,
        "total": _sums(tally.total),
        "models": _groups(tally.models),
        "apps": _groups(tally.apps),
        "callers": _groups(tally.callers),
        "without_price": _unpriced(tally.unpriced),
        "budgets": [_budget(one) for one in tally.ledger.all()],
        "steps": _steps(tally.steps),
        "loads": {"step": STEP, "as_sent": tally.loads.asked, "fitted": tally.loads.sent},
        "over_time": _over_time(tally.over_time),
        "not_planned": _by_count(tally.unplanned),
        "counts": _errors(tally.counts),
        "prompt_cache": _errors(tally.caches),
        "worst": [_worst(result, cut, files) for result, cut in tally.worst],
    }


def _sums(s: Sums) -> dict[str, Any]:
    return {
        "requests": s.requests,
        "planned": s.planned,
        "window_unknown": s.guessed,
        "near": s.near,
        "over": s.over,
        "cut": s.cut,
        "unfit": s.unfit,
        "held": s.held,
        "over_budget": s.denied,
        "too_long": s.too_long,
        "answered": s.answered,
        "recorded_refusals": s.refused,
        "recorded_refusals_answered": s.refused_answered,
        "tokens": {"prompt": s.prompt, "prompt_sent": s.prompt_sent, "removed": s.removed},
        "evidence": _evidence(s.evidence),
        "cached_tokens": {
            "as_sent": s.cached_asked,
            "fitted": s.cached_sent,
            "of_cut": {"prompt_sent": s.cut_prompt, "as_sent": s.cut_cached_asked, "fitted": s.cut_cached_sent},
        },
        "money": {
            "as_sent_net": s.asked_net,
            "fitted_net": s.sent_net,
            "saved_net": s.asked_net - s.sent_net,
            "as_sent": s.asked_gross,
            "fitted": s.sent_gross,
            "saved": s.asked_gross - s.sent_gross,
            "answered_net": s.rescued_net,
            "priced": s.priced,
            "unpriced": s.unpriced,
        },
    }


def _evidence(found: Kept) -> dict[str, int]:
    """Names that replies took from requests that were cut or not sent, and those of them that would be sent; how many
    such requests there are, and to how many a reply is known."""
    return {"taken": found.taken, "kept": found.kept, "requests": found.requests, "paired": found.paired}


def _figures(found: FiguresOnly) -> dict[str, Any]:
    """What is known without bodies: nothing of refusals, of the cache, of money."""
    groups = {"models": _known_groups(found.models), "callers": _known_groups(found.callers)}
    return {**_known(found.total), **groups, "steps": _steps(found.steps)}


def _known(s: Sums) -> dict[str, Any]:
    named = ("requests", "planned", "near", "over", "cut", "tokens")
    whole = _sums(s)
    money = {"sent_net": s.sent_net, "priced": s.priced, "unpriced": s.unpriced}
    return {**{name: whole[name] for name in named}, "money": money}


def _known_groups(groups: Mapping[str, Sums]) -> list[dict[str, Any]]:
    return [{"name": name, **_known(sums)} for name, sums in _ordered(groups)]


def _ordered(groups: Mapping[str, Sums]) -> list[tuple[str, Sums]]:
    return sorted(groups.items(), key=lambda one: (-one[1].over, -one[1].near, -one[1].requests, one[0]))


def _groups(groups: Mapping[str, Sums]) -> list[dict[str, Any]]:
    return [{"name": name, **_sums(sums)} for name, sums in _ordered(groups)]


def _budget(found: BudgetSums) -> dict[str, Any]:
    """What a budget did to the requests of one name. `used` and `most` are in its unit, in all and in one period."""
    budget = found.budget
    return {
        "budget": budget.name,
        "name": found.name,
        "over": str(budget.over),
        "limit": budget.text(budget.limit),
        "seconds": budget.seconds,
        "used": budget.text(found.used),
        "most": budget.text(found.most),
        "share": found.most / budget.limit,
        "stages": found.stages,
        "refused": found.refused,
        "evidence": _evidence(found.evidence),
        "changes": [{"at": at, "stage": stage} for at, stage in found.changes],
    }


def _unpriced(found: Counter[WithoutPrice]) -> list[dict[str, Any]]:
    return [
        {"model": one.model, "where": one.where, "why": str(one.why), "requests": count}
        for one, count in found.most_common()
    ]


def _steps(steps: Mapping[str, StepSums]) -> list[dict[str, Any]]:
    ordered = sorted(steps.items(), key=lambda one: (-one[1].tokens, one[0]))
    return [{"step": name, "requests": made.requests, "tokens": made.tokens} for name, made in ordered]


def _over_time(found: OverTime) -> dict[str, Any]:
    """Bars in the order of their times. `at` is in seconds since 1970."""
    seconds, bars = found.bars()
    shown = [
        {
            "at": at,
            "requests": span.requests,
            "prompt": span.prompt,
            "prompt_sent": span.prompt_sent,
            "cut": span.cut,
            "fitted_net": span.cost,
        }
        for at, span in bars
    ]
    return {"seconds": seconds, "bars": shown}


def _errors(groups: Mapping[str, Errors]) -> list[dict[str, Any]]:
    """Errors by model, the most frequent first. `error_*` are shares of the reported prompt."""
    ordered = sorted(groups.items(), key=lambda one: (-one[1].count, one[0]))
    return [
        {
            "model": name,
            "requests": e.count,
            "estimated": e.estimated,
            "reported": e.reported,
            "error_mean": e.mean,
            "error_p50": e.quantile(0.5),
            "error_p95": e.quantile(0.95),
            "within_1_percent": e.within / e.count,
        }
        for name, e in ordered
    ]


def _worst(result: Result, cut: Cut, files: Sequence[str]) -> dict[str, Any]:
    placed, p = result.placed, cut.planned
    return {
        "file": files[placed.file],
        "entry": placed.entry,
        "at": placed.recorded.at,
        "app": placed.recorded.app,
        "model": p.model,
        "model_sent": p.model_sent,
        "window": p.window,
        "prompt": p.prompt,
        "prompt_sent": p.prompt_sent,
        "share_removed": p.share_cut,
        "redacted": placed.recorded.redacted,
        "steps": [{"step": s.name, "tokens_before": s.before, "tokens_after": s.after} for s in p.steps],
        "rows": cut.rows,
        "rows_left_out": cut.rows_left_out,
    }
