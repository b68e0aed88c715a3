"""What was used in the last minutes, by caller: differences of the metrics' sums, which are noted twice a minute.

A request costs nothing for it. Each worker notes its own sums, the page adds up those of all. What is kept is bounded:
an hour of sums for each caller that metrics tell apart.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

import msgspec

from proxy.model.outcome import UNFITTED
from proxy.observe.metrics.costs import ACCEPTED, ASKED_NET, SENT_NET
from proxy.observe.metrics.outcome_metrics import LOAD_BUCKETS, REQUESTS
from proxy.observe.metrics.overview import AFTER, BEFORE, CHANGED, FAILED, PROMPT, PROMPT_SENT, Values

STEP_S = 30.0  # between two notes
PERIODS = {"5m": 300.0, "1h": 3_600.0}  # by name, in seconds; `ALL` is since the start
ALL = "all"
MINUTE_S, MINUTES = 60.0, 60
COMPLETION = "plimsoll_completion_tokens_total"
READ = (REQUESTS, PROMPT, PROMPT_SENT, COMPLETION, ASKED_NET.name, SENT_NET.name, BEFORE, AFTER)  # names of metrics
# What is summed for a caller. `cost`: of all that was sent, net; `asked`, `paid`: of the requests whose originals fit,
# as clients sent them and as they were sent.
FIELDS = ("requests", "measured", "cut", "unfit", "failed", "prompt", "prompt_sent", "reply", "cost", "asked", "paid")

Numbers = tuple[float, ...]
NO_LOADS: Numbers = (0.0,) * (len(LOAD_BUCKETS) + 1)


class Sums(msgspec.Struct, frozen=True, gc=False):
    """Sums of `FIELDS` by caller ("" where callers are not told apart), and how many requests had a load in each of
    `LOAD_BUCKETS`, as clients sent them and as they were sent."""

    callers: Mapping[str, Numbers] = {}
    before: Numbers = NO_LOADS
    after: Numbers = NO_LOADS


NOTHING = Sums()


def sums_of(values: Values) -> Sums:
    """The sums that follow from the values of metrics."""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for labels, numbers in values.rows(REQUESTS):
        mine, result = found[labels.get("caller", "")], labels["result"]
        mine["requests"] += numbers[0]
        if labels["endpoint"] not in UNFITTED:
            mine["measured"] += numbers[0]
            mine["cut"] += numbers[0] if result in CHANGED else 0
            mine["unfit"] += numbers[0] if result == "unfit" else 0
            mine["failed"] += numbers[0] if result in FAILED else 0
    named = (("prompt", PROMPT), ("prompt_sent", PROMPT_SENT), ("reply", COMPLETION), ("asked", ASKED_NET.name))
    for field, name in named:
        for caller, number in values.by(name, "caller").items():
            found[caller][field] += number
    for (caller, original), usd in values.by_pair(SENT_NET.name, "caller", "original").items():
        found[caller]["cost"] += usd
        found[caller]["paid"] += usd if original == ACCEPTED else 0.0
    callers = {caller: tuple(sums[field] for field in FIELDS) for caller, sums in found.items()}
    return Sums(callers, _loads(values, BEFORE), _loads(values, AFTER))


def _loads(values: Values, name: str) -> Numbers:
    return tuple(values.histogram(name)[:-1]) or NO_LOADS


def added(sums: Iterable[Sums]) -> Sums:
    """All of these together."""
    callers: dict[str, Numbers] = {}
    before, after = NO_LOADS, NO_LOADS
    for one in sums:
        for caller, numbers in one.callers.items():
            callers[caller] = _plus(callers.get(caller, ()), numbers)
        before, after = _plus(before, one.before), _plus(after, one.after)
    return Sums(callers, before, after)


def _plus(one: Sequence[float], other: Sequence[float]) -> Numbers:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0.0))


def difference(later: Sums, earlier: Sums) -> Sums:
    """What came between two notes; callers without a request are left out."""
    callers = {
        caller: found
        for caller, numbers in later.callers.items()
        if any(found := _minus(numbers, earlier.callers.get(caller, ())))
    }
    return Sums(callers, _minus(later.before, earlier.before), _minus(later.after, earlier.after))


def _minus(later: Sequence[float], earlier: Sequence[float]) -> Numbers:
    return tuple(a - b for a, b in zip_longest(later, earlier, fillvalue=0.0))


class Noted:
    """The sums of one worker in the last hour. `read` returns its sums now; the clock does not jump."""

    def __init__(self, read: Callable[[], Sums], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self.begin()

    def begin(self) -> None:
        """Begins anew: in a worker that was forked, or replaces another one."""
        most = int(max(PERIODS.values()) / STEP_S) + 2
        self._notes: deque[tuple[float, Sums]] = deque([(self._clock(), NOTHING)], maxlen=most)

    def note(self) -> None:
        """Notes the sums of now. What has not changed takes no memory."""
        last, now = self._notes[-1][1], self._read()
        self._notes.append((self._clock(), last if now == last else now))

    def within(self, seconds: float, sums: Sums | None = None) -> tuple[float, Sums]:
        """What came in the last `seconds`, and how many seconds that really are: since the next note before, or the
        start. `sums`: of now, if they were read."""
        now, sums = self._clock(), self._read() if sums is None else sums
        at, earlier = next((one for one in reversed(self._notes) if now - one[0] >= seconds), self._notes[0])
        return now - at, difference(sums, earlier)

    def minutes(self, sums: Sums | None = None) -> list[Numbers]:
        """Of each of the last minutes, oldest first: requests, tokens of prompts as asked and as sent."""
        now, ends = self._clock(), [_line(self._read() if sums is None else sums)]
        for minute in range(1, MINUTES + 1):
            earlier = next((s for at, s in reversed(self._notes) if now - at >= minute * MINUTE_S), None)
            ends.append(_line(NOTHING if earlier is None else earlier))
            if earlier is None:
                break
        lines = [_minus(later, earlier) for later, earlier in pairwise(ends)]
        return [*[(0.0,) * 3] * (MINUTES - len(lines)), *reversed(lines)]

    def answer(self) -> dict[str, Any]:
        """All of it in JSON values."""
        now = self._read()
        found = {name: self.within(seconds, now) for name, seconds in PERIODS.items()}
        periods = {name: (covered, as_lists(sums)) for name, (covered, sums) in found.items()}
        return {"periods": periods, "minutes": self.minutes(now)}


def _line(sums: Sums) -> Numbers:
    places = [FIELDS.index(name) for name in ("requests", "prompt", "prompt_sent")]
    return tuple(sum(numbers[place] for numbers in sums.callers.values()) for place in places)


def as_lists(sums: Sums) -> list[Any]:
    """Sums in JSON values, for another worker."""
    return [sums.callers, sums.before, sums.after]


def overview(answers: Sequence[Mapping[str, Any]], since_start: Sums, running_s: float) -> dict[str, Any]:
    """The JSON of all periods, from the answers of all workers, and the sums of all of them since the start."""
    found: dict[str, Any] = {}
    for name in PERIODS:
        answered = [answer["periods"][name] for answer in answers]
        sums = added(Sums(*each) for _, each in answered)
        found[name] = period(sums, max((covered for covered, _ in answered), default=0.0))
    lines = [answer["minutes"] for answer in answers]
    minutes = [[int(sum(one)) for one in zip(*minute, strict=True)] for minute in zip(*lines, strict=True)]
    return {**found, ALL: period(since_start, running_s), "minutes": minutes}


def period(sums: Sums, seconds: float) -> dict[str, Any]:
    """The JSON of one period: its sums, and those of each caller, who sent the most tokens first."""
    callers = [{"caller": caller, **_named(numbers)} for caller, numbers in sums.callers.items()]
    callers.sort(key=lambda one: (-one["prompt"], -one["requests"], one["caller"]))
    whole = tuple(map(sum, zip(*sums.callers.values(), strict=True))) or (0.0,) * len(FIELDS)
    load = {"before": [int(n) for n in sums.before], "after": [int(n) for n in sums.after]}
    return {"seconds": round(seconds), **_named(whole), "load": load, "callers": callers}


def _named(numbers: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = dict(zip(FIELDS, numbers, strict=True))
    asked, paid, cost = found.pop("asked"), found.pop("paid"), found.pop("cost")
    whole = {name: int(number) for name, number in found.items()}
    saved = {"saved": whole["prompt"] - whole["prompt_sent"]}
    return {**whole, **saved, "cost": round(cost, 8) + 0.0, "saved_net": round(asked - paid, 8) + 0.0}
