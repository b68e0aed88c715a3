"""What one worker knows for the page: its last requests, what it learned, which paths it does not fit.

Each worker answers the same questions, in JSON values; `peers` puts them to all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

from proxy.admin.conversations import MAX_REQUESTS, MAX_ROWS, columns
from proxy.admin.upstreams import LAST, Asked, asked_of
from proxy.cache.cache import Cache
from proxy.config.rules import Rules
from proxy.config.settings import Settings
from proxy.http.memory_budget import Budget
from proxy.observe.entries import Entry, entry, matching, phases_ms
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.overview import Values
from proxy.observe.metrics.periods import READ, Noted, Sums, sums_of
from proxy.observe.recent import ORDINARY, Kept, Recent
from proxy.request.budgets import Budgets
from proxy.request.gateway import Gateway
from proxy.request.inspect import Inspecting
from proxy.request.learned_endpoint import learned_everywhere
from proxy.request.routes import Routes
from proxy.request.shown import BodyTexts, PlannedTexts
from proxy.request.unfitted import Unfitted
from proxy.wire.breakdown import as_figures, rows_of

MAX_LEARNED = 50  # models
MAX_ENTRIES = 1_000
MOST_DIGITS = 18  # of a number in an id; Python reads no number of thousands of digits
Question = Mapping[str, Any]


class Served(Protocol):
    """The services that the page reads."""

    settings: Settings
    rules: Rules
    cache: Cache
    metrics: Metrics
    budget: Budget
    gateway: Gateway
    unfitted: Unfitted
    inspecting: Inspecting
    budgets: Budgets
    routes: Routes | None


class Local:
    """Answers questions about this worker."""

    def __init__(self, served: Served, recent: Recent) -> None:
        self._served, self.recent = served, recent
        self.noted = Noted(self._sums)
        self._answers: dict[str, Callable[[Question], Any]] = {
            "entries": self._entries,
            "since": self._since,
            "detail": self._detail,
            "texts": self._texts,
            "state": self._state,
            "forget": self._forget,
            "periods": lambda question: {**self.noted.answer(), "budgets": self._served.budgets.rows()},
            "conversation": self._conversation,
        }

    def answer(self, question: Question) -> Any:
        """The answer to a question, whose `ask` says what is asked. Raises `KeyError` for an unknown one."""
        return self._answers[question["ask"]](question)

    def _entries(self, question: Question) -> list[Entry]:
        """The newest requests that pass filters."""
        matches, before = matching(question["filters"]), question.get("before") or float("inf")
        found = (k for k in self.recent.since() if k.at < before and matches(k.outcome))
        return self._shown(islice(found, min(MAX_ENTRIES, question["limit"])))

    def _shown(self, kept: Iterable[Kept]) -> list[Entry]:
        return [entry(self.recent, one) for one in kept]

    def _since(self, question: Question) -> dict[str, Any]:
        """The requests after a number of this process, at most `limit`: of too many the newest, and first of all those
        that something happened to."""
        name, number = self.recent.name, question["after"].get(self.recent.name, 0)
        limit, new = question["limit"], self.recent.count - number
        found: list[Kept] = []
        if new > limit:
            changed = (kept for kept in self.recent.remarkable(number) if kept.outcome.result != ORDINARY)
            found = list(islice(changed, limit // 2))
        known = {kept.number for kept in found}
        rest = (kept for kept in self.recent.since(number) if kept.number not in known)
        found += islice(rest, limit - len(found))
        skipped = max(0, new - len(found))
        return {"name": name, "count": self.recent.count, "entries": self._shown(found), "skipped": skipped}

    def _kept(self, question: Question) -> Kept | None:
        name, _, number = question["id"].rpartition("-")
        ours = name == self.recent.name and number.isdecimal() and len(number) <= MOST_DIGITS
        return self.recent.find(int(number)) if ours else None

    def _detail(self, question: Question) -> Entry | None:
        kept = self._kept(question)
        if kept is None:
            return None
        breakdown = as_figures(self.recent.breakdown(kept.number))
        return {**entry(self.recent, kept), "phases_ms": phases_ms(kept.outcome), **breakdown}

    def _texts(self, question: Question) -> list[dict[str, Any]] | None:
        kept = self._kept(question)
        source = None if kept is None else self.recent.texts(kept.number)
        return source.shown() if isinstance(source, PlannedTexts | BodyTexts) else None

    def _sums(self) -> Sums:
        metrics = self._served.metrics
        return sums_of(Values(metrics.own(READ), metrics.by_caller))

    def _conversation(self, question: Question) -> list[dict[str, Any]]:
        """The newest requests of a conversation, each with its rows."""
        mine = (kept for kept in self.recent.since() if kept.conversation == question["name"])
        found: list[dict[str, Any]] = []
        left = MAX_ROWS
        for kept in islice(mine, MAX_REQUESTS):
            rows = rows_of(self.recent.breakdown(kept.number))
            if (left := left - len(rows)) < 0:
                break
            found.append({**entry(self.recent, kept), "rows": columns(rows)})
        return found

    def _state(self, question: Question) -> dict[str, Any]:
        # By model: the largest load; of the newest request its load, its time, and its window with the source.
        loads: dict[str, tuple[float, float, float, int, str]] = {}
        for kept in self.recent.since():
            o, load = kept.outcome, kept.outcome.load_before
            if load is not None:
                label = self._served.metrics.label(o.model)
                newest = loads.get(label, (load, load, kept.at, o.window, o.window_source))
                loads[label] = (max(newest[0], load), *newest[1:])
        asked = {name: [(a.at, a.result, a.status) for a in answers] for name, answers in self._asked().items()}
        unfitted = list(self._served.unfitted.unfitted)
        return {"learned": self._learned(), "unfitted_paths": unfitted, "loads": loads, "asked": asked}

    def _asked(self) -> dict[str, list[Asked]]:
        """By upstream, its last requests, newest first."""
        found: dict[str, list[Asked]] = {}
        for kept in self.recent.since():
            asked = asked_of(kept)
            if asked is not None and len(last := found.setdefault(kept.outcome.upstream, [])) < LAST:
                last.append(asked)
        return found

    def _learned(self) -> list[dict[str, Any]]:
        served, families = self._served, self._served.rules.families
        names = dict.fromkeys(
            view.model for cache in (served.cache, *self._others().values()) for view in cache.proofs()
        )
        names |= dict.fromkeys(kept.outcome.model for kept in self.recent.since() if kept.outcome.model)
        records = (
            learned_everywhere(served.cache, self._others(), families, name) for name in islice(names, 4 * MAX_LEARNED)
        )
        return list(islice((one for one in records if one["limits"] or one["counts"]), MAX_LEARNED))

    def _others(self) -> dict[str, Cache]:
        backends = () if self._served.routes is None else self._served.routes.backends.values()
        return {backend.name: backend.knowledge.cache for backend in backends if backend.row is not None}

    def _forget(self, question: Question) -> dict[str, Any]:
        served, model = self._served, question["model"]
        records = learned_everywhere(served.cache, self._others(), served.rules.families, model)
        served.cache.forget(model)
        return records
