"""What the board and the rules must show of the scripted traffic, from the requests of the script themselves."""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate

from proxy import __version__
from proxy.observe.metrics.costs import CACHE_ERRORS
from proxy.observe.metrics.outcome_metrics import COUNT_ERRORS, HEADROOM_BUCKETS, LOAD_BUCKETS
from tests.deploy.costs import costs, repeats
from tests.deploy.traffic import CHAT, PRICES, SUMMARY, WINDOWS, Done, reported, summed

JOB = "apps/plimsoll"
CALLER = "everybody"  # of all requests of the script but one
WAIT = 60.0  # seconds; a busy machine needs some
YEAR = 31_536_000
RATES = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")  # over which the share of failures is recorded
VERSIONS = f"{__version__}, Python {platform.python_version()}, litellm {version('litellm')}"
Series = dict[str, float]


@dataclass(frozen=True, slots=True)
class Grown:
    """Growth in the second playing, by legend; what is not named did not grow. `per`: by what a panel multiplies it."""

    series: Series
    per: float = 1


@dataclass(frozen=True, slots=True)
class Equal:
    """Values, by legend."""

    series: Series


@dataclass(frozen=True, slots=True)
class Between:
    """The least and the largest value of each series; their legends are those given."""

    least: float
    most: float
    legends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of a table, by their column and their row: `column, row`. What is named in `grown` grew by so much;
    what is named in neither is empty or 0."""

    grown: Series
    equal: Series


Plain = Grown | Equal | Between
Expected = Plain | Table


Bounds = tuple[float, ...]


def cumulative(values: Iterable[float | None], bounds: Bounds) -> list[float]:
    """How many values are at most as large as each bound, and how many there are."""
    counts = [0.0] * (len(bounds) + 1)
    for value in values:
        if value is not None:
            counts[bisect_left(bounds, value)] += 1
    return [*accumulate(counts)]


def buckets(values: Iterable[float | None], bounds: Bounds) -> Series:
    """A heatmap's series: its legends are the bounds."""
    names = [*map(str, bounds), "+Inf"]
    return dict(zip(names, cumulative(values, bounds), strict=True))


def quantile(q: float, values: Iterable[float | None], bounds: Bounds) -> float:
    """What Prometheus' histogram_quantile makes of the values: it takes them as spread evenly over a bucket."""
    counts = cumulative(values, bounds)
    rank = q * counts[-1]
    index = next(i for i, count in enumerate(counts) if count >= rank)
    if index == len(bounds):
        return bounds[-1]
    low, below = (0.0, 0.0) if index == 0 else (bounds[index - 1], counts[index - 1])
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    return low + (bounds[index] - low) * (rank - below) / (counts[index] - below)


def within(values: Iterable[float], bound: float) -> float:
    """The share of errors above `-bound` and up to `bound`."""
    found = [*values]
    return sum(-bound < value <= bound for value in found) / len(found)


def model(one: Done) -> str:
    return one.model


def sent_as(one: Done) -> str:
    return one.model_sent


def step(one: Done) -> str:
    return one.case.step


def tokens_of_summary(request: bytes) -> int:
    return reported(request) + len(SUMMARY.split())


def errors(done: Iterable[Done]) -> list[float]:
    return [(one.sent - one.reported) / one.reported for one in done if one.sent is not None and one.reported]


@dataclass(frozen=True, slots=True)
class Played:
    """The script as it was played: its requests, and those for summaries that reached the upstream."""

    done: list[Done]
    summaries: list[bytes]

    @property
    def fitted(self) -> list[Done]:
        """Requests to the endpoint that is fitted."""
        return [one for one in self.done if one.case.path == CHAT]

    @property
    def measured(self) -> list[Done]:
        """Requests whose prompt was counted."""
        return [one for one in self.done if one.prompt is not None]

    @property
    def sent(self) -> list[Done]:
        """Those of them that went upstream."""
        return [one for one in self.measured if one.sent is not None]

    @property
    def acted(self) -> list[Done]:
        """Those of them that could be changed."""
        return [one for one in self.sent if not one.case.planned]

    @property
    def observed(self) -> list[Done]:
        """Those of them that could not: in mode observe."""
        return [one for one in self.sent if one.case.planned]

    @property
    def answered(self) -> list[Done]:
        """Those of them whose tokens the upstream reported."""
        return [one for one in self.sent if one.reported is not None]

    @property
    def models(self) -> list[str]:
        return sorted({one.model for one in self.measured})

    def result(self, name: str) -> float:
        """How many requests had a result."""
        return summed(self.done, lambda one: one.case.result).get(name, 0.0)


def expected(played: Played) -> Mapping[str, Expected]:
    """What each panel must show, by its title."""
    parts = (health(played), windows(played), cuts(played), money(played), calls(played), counts(played))
    return {title: wanted for part in parts for title, wanted in part.items()}


def health(played: Played) -> Mapping[str, Expected]:
    """Is it healthy?"""
    done = played.done
    asked = [one for one in done if one.case.result not in ("unfit", "rejected")]
    failed = failures(done) / len(done)
    fitted = played.fitted
    wrong = summed([one for one in fitted if failures([one])], model)
    each = summed(fitted, model)
    return {
        "Failures and the objective": Equal({"failed": failed}),
        "Failures for length": Equal(
            {
                "cannot fit": played.result("unfit") / len(fitted),
                "refused all the same": played.result("refused") / len(fitted),
            }
        ),
        "Who fails": Table(
            asked_by(done), {f"failed, {CALLER}": failures(done) / asked_by(done)[f"requests, {CALLER}"]}
        ),
        "What fails": Table(
            {f"requests, {name}": count for name, count in each.items()},
            {f"failed, {name}": count / each[name] for name, count in wrong.items()}
            | {f"load, p95, {name}": load for name, load in near(played).items()},
        ),
        "Replicas that answer": Equal({"Replicas that answer": 1}),
        "Requests": Grown({"Requests": len(done)}),
        "In progress": Equal({"In progress": 1}),
        "Failed": Equal({"Failed": 2 / len(done)}),
        "Own time, p99": Between(0, WAIT, ("Own time, p99",)),
        "Errors of ours": Grown({}),
        "Requests by result": Grown(summed(done, lambda one: one.case.result)),
        "Answers by status": Grown(summed(done, lambda one: one.case.status)),
        "Own time": Between(0, WAIT, ("p50", "p95", "p99")),
        "Own time by phase": Between(0, 1, ("count", "plan", "render", "heal")),
        "Time of the upstream": Between(0, WAIT, ("first byte, p50", "first byte, p95", "end, p95")),
        "Answers by upstream": Grown(summed(asked, lambda one: f"{upstream(one)}, {one.case.status}")),
        "Time by upstream": Between(0, WAIT, ("default", "second")),
        "CPU": Between(0, 2, ("{instance}",)),
        "Memory": Between(0, 2**30, ("{instance}", "bodies, {instance}")),
        "Memory for bodies": Between(0, 0.1, ("taken, {instance}",)),
        "Requests without memory": Grown({}),
        "Hits of the caches": Between(0, 1, ("local", "redis")),
        "Redis": Between(
            0, 1, ("{instance}, budgets", "{instance}, reading", "{instance}, writing")
        ),  # a busy machine may be late
        "Troubles of Redis": Between(0, 1, ("skipped", "late", "errors", "lost", "oversize", "foreign")),
        "Rules and keys": Equal({"{instance}": 1}),
        "Reloads": Grown({}),
        "WebSockets": Grown({}),
        "Traces": Grown({"failed": len(done)}),
        "Versions": Equal({VERSIONS: 1}),
        "File descriptors": Between(0, 0.5, ("{instance}",)),
    }


def upstream(one: Done) -> str:
    return "second" if one.model == "gpt-4.1" else "default"


def windows(played: Played) -> Mapping[str, Expected]:
    """Who is near the line?"""
    measured, sent = played.measured, played.sent
    loads = [one.before or 0 for one in measured]

    def over(load: float) -> float:
        return sum(found > load for found in loads) / len(loads)

    return {
        "Load as clients sent it": Grown(buckets(loads, LOAD_BUCKETS)),
        "Load as clients sent it, p95 by model": Equal(near(played)),
        "Requests over a load": Equal({"over 80 %": over(0.8), "over 90 %": over(0.9), "over the window": over(1)}),
        "Headroom, p5 by model": Equal(
            {
                name: quantile(0.05, [headroom(one) for one in sent if one.model == name], HEADROOM_BUCKETS)
                for name in played.models
            }
        ),
        "Requests by model": Grown(summed(played.fitted, model)),
        "Requests by API": Grown({"chat": len(played.fitted), "passthrough": len(played.done) - len(played.fitted)}),
        "Endpoints that are not fitted": Grown({"files": 2, "azure": 1}),
        "Windows": Equal({f"{one.model_sent}, {one.case.source}": window(one) for one in measured}),
        "Where windows come from": Grown(summed(measured, lambda one: one.case.source)),
    }


def near(played: Played) -> Series:
    """The load that one request in 20 of a model reaches."""
    return {
        name: quantile(0.95, [one.before for one in played.measured if one.model == name], LOAD_BUCKETS)
        for name in played.models
    }


def window(one: Done) -> int:
    """The window of the model that was sent."""
    return one.case.window or WINDOWS[one.model]


def headroom(one: Done) -> float:
    """Tokens that prompt and reply leave free."""
    assert one.after is not None
    return max(0, round(window(one) * (1 - one.after)))


def cuts(played: Played) -> Mapping[str, Expected]:
    """What is cut, and does it help?"""
    measured, sent, acted, observed = played.measured, played.sent, played.acted, played.observed
    cut = float(sum(one.cut for one in acted))
    as_observed = next(one.cut for one in acted if one.case.name == "cut")  # the same request, in mode fit
    return {
        "Tokens cut": Grown({"Tokens cut": cut}),
        "Share of prompts cut": Equal({"Share of prompts cut": cut / sum(one.prompt or 0 for one in sent)}),
        "Rescued": Grown({"Rescued": sum(one.too_long for one in acted if one.case.status == 200)}),
        "Healed": Grown({"Healed": played.result("healed")}),
        "Refused all the same": Grown({"Refused all the same": played.result("refused")}),
        "Not made to fit": Grown({"Not made to fit": played.result("unfit")}),
        "Tokens cut by step": Grown(summed(acted, step, lambda one: one.cut)),
        "Requests changed by step": Grown(summed([one for one in acted if one.case.step], step)),
        "Tokens cut by model": Grown(summed(acted, model, lambda one: one.cut)),
        "Load before and after": Equal(
            {
                "as clients sent it, p95": quantile(0.95, [one.before for one in measured], LOAD_BUCKETS),
                "as it went upstream, p95": quantile(0.95, [one.after for one in sent], LOAD_BUCKETS),
            }
        ),
        "Cuts and the prompt cache": Grown(
            summed(repeats(played.done), lambda one: one.prefix, lambda one: bool(one.prefix))
        ),
        "Refusals by rule": Grown({"context_length, healed: true": 1, "context_length, healed: false": 1}),
        "Reply limits": Grown(
            {"asked": sum(one.asked for one in measured), "granted": sum(one.granted for one in sent)}
        ),
        "Moved to another model": Grown({"gpt-4 to gpt-4o": 1}),
        "Observe: what would become of requests": Grown(summed(observed, lambda one: one.case.planned)),
        "Observe: tokens that would be cut": Grown({"prune_history": as_observed}),
        "Observe: requests that would change": Grown({"prune_history": 1}),
    }


def money(played: Played) -> Mapping[str, Expected]:
    """What does it cost, and what does it save?"""
    paid = [*costs(played.done)]
    accepted = [one for one in paid if one.asked is not None]
    planned = next(one.cut for one in played.acted if one.case.name == "cut")
    gross = sum((one.asked or 0) - one.sent for one in accepted)
    net = sum((one.asked_net or 0) - one.net for one in accepted)

    def spent(original: str = "") -> float:
        return sum(one.net for one in paid if not original or one.original == original)

    by_model = summed(paid, lambda one: one.done.model, lambda one: one.net)
    saved = summed(accepted, lambda one: one.done.model, lambda one: (one.asked_net or 0) - one.net)
    answered = [one for one in played.sent if one.case.status == 200]
    unpriced = len(answered) - len(paid)
    prompt = sum(one.sent or 0 for one in played.sent)
    tables = {
        "Who spends": Table(
            {
                f"spent, {CALLER}": spent(),
                **asked_by(played.done),
                f"prompt tokens, {CALLER}": prompt,
                f"reply tokens, {CALLER}": sum(one.reply for one in played.sent),
                f"saved, {CALLER}": net,
            },
            {},
        ),
        "What is spent on": Table(
            {
                f"{column}, {name}": value
                for column, series in {
                    "spent": by_model,
                    "requests": summed(played.fitted, model),
                    "prompt tokens": summed(played.sent, sent_as, lambda one: one.sent or 0),
                    "reply tokens": summed(played.sent, sent_as, lambda one: one.reply),
                    "cut tokens": summed(played.acted, model, lambda one: one.cut),
                }.items()
                for name, value in series.items()
            },
            {},
        ),
    }
    return tables | {
        "Spent": Grown({"Spent": spent()}),
        "Saved, net": Grown({"Saved, net": net}),
        "Saved, gross": Grown({"Saved, gross": gross}),
        "Spent on rescued requests": Grown({"Spent on rescued requests": spent("too_long")}),
        "Observe would save": Grown({"Observe would save": PRICES["gpt-4"].of(planned, 0)}),
        "Without a price": Equal({"Without a price": unpriced / len(answered)}),
        "Spent by model": Grown(by_model, 3600),
        "Saved by model, net": Grown(saved, 3600),
        "Prompt cache": Equal(
            {
                "reported": sum(one.cached for one in played.answered) / prompt,
                "expected": sum(one.expected for one in repeats(played.done)) / prompt,
            }
        ),
        "Error of the expected prompt cache": Grown(buckets(cache_errors(played), CACHE_ERRORS)),
        "Expected prompt cache within 5 %": Equal(
            {"Expected prompt cache within 5 %": within(cache_errors(played), 0.05)}
        ),
        "Requests by how they are priced": Grown(summed(paid, lambda one: one.basis) | {"unpriced": unpriced}),
    }


def cache_errors(played: Played) -> list[float]:
    """(expected - reported cached tokens) / prompt, of each answered request."""
    found = [(one, one.done.reported) for one in repeats(played.done)]
    return [(one.expected - one.done.cached) / prompt for one, prompt in found if prompt]


def calls(played: Played) -> Mapping[str, Expected]:
    """What does it cost: tokens, extra calls, CPU."""
    sent = played.sent
    return {
        "Tokens": Grown(
            {
                "prompt, as clients sent it": sum(one.prompt or 0 for one in sent),
                "prompt, as it went upstream": sum(one.sent or 0 for one in sent),
                "reply": sum(one.reply for one in sent),
                "cached": sum(one.cached for one in sent),
            }
        ),
        "Summaries and embeddings": Grown({"summary, ok": len(played.summaries)}),
        "Tokens of summaries and embeddings": Grown({"summary": sum(map(tokens_of_summary, played.summaries))}),
        "Time of summaries and embeddings": Between(0, 1, ("summary",)),
        "Budget left for them": Equal({"{instance}": 20_000_000}),
        "CPU per request": Between(0, 10, ("CPU",)),
    }


def counts(played: Played) -> Mapping[str, Expected]:
    """Can the counts be trusted?"""
    sent = played.sent
    return {
        "Counts by quality": Grown(summed(played.measured, quality)),
        "Counts within 1 % of usage": Equal(
            {name: within(errors(one for one in sent if quality(one) == name), 0.01) for name in ("exact", "estimated")}
        ),
        "Error of counts": Grown(buckets(errors(sent), COUNT_ERRORS)),
        "Counts within 5 % of usage, by model": Equal(
            {
                name: within(errors(one for one in sent if one.model_sent == name), 0.05)
                for name in {one.model_sent for one in played.answered}
            }
        ),
        "Cut by the upstream": Grown({"Cut by the upstream": 1}),
        "Fit, never counted": Grown({}),
        "Age of the model table": Between(0, 10 * YEAR, ("Age of the model table",)),
    }


def quality(one: Done) -> str:
    return "estimated" if one.model == "other" else "exact"


def by_rules(played: Played) -> Mapping[str, tuple[str, Plain]]:
    """What each rule must say, by its name, and which labels its series are named by."""
    done, number = played.done, summed(played.fitted, model)

    def share(*results: str) -> Series:
        found = summed([one for one in played.fitted if one.case.result in results], model)
        return {name: found.get(name, 0) / count for name, count in number.items()}

    def off(one: Done) -> float:
        same = errors(other for other in played.sent if other.model_sent == one.model_sent)
        return 1 - within(same, 0.02 if quality(one) == "exact" else 0.1)

    failed = Equal({JOB: failures(done) / len(done)})
    return {
        "job:plimsoll_requests:increase15m": ("{{job}}", Grown({JOB: len(done)})),
        "job_model:plimsoll_measured_requests:increase1h": ("{{model}}", Grown(number)),
        "plimsoll:error_budget:ratio": ("", Equal({"": 0.005})),
        **{f"job:plimsoll_failed_requests:ratio_rate{w}": ("{{job}}", failed) for w in RATES},
        "PlimsollDown": ("{{job}}", Equal({JOB: 1})),
        "PlimsollAbsent": ("", Equal({})),
        "PlimsollBudgetFast": ("{{job}}", failed),
        "PlimsollBudgetSlow": ("{{job}}", failed),
        "PlimsollRestarting": ("{{job}}", Equal({JOB: 0})),
        "PlimsollUpstreamErrors": ("{{job}}", Equal({JOB: 2 / len(done)})),
        "PlimsollOverloaded": ("{{job}}", Equal({})),
        "PlimsollMemoryShort": ("{{job}}", Equal({JOB: 0})),
        "PlimsollFilesShort": ("{{job}}", Between(0, 0.5, (JOB,))),
        "PlimsollSlow": ("{{job}}", Between(0, WAIT, (JOB,))),
        "PlimsollBug": ("{{job}}", Equal({})),
        "PlimsollReloadFailed": ("{{job}}", Equal({JOB: 1})),
        "PlimsollCacheDown": ("{{breaker}}", Between(0, 1, ("budgets", "reading", "writing"))),
        "PlimsollUnfit": ("{{model}}", Equal(share("unfit"))),
        "PlimsollRefused": ("{{model}}", Equal(share("refused"))),
        "PlimsollWindowWrong": ("{{model}}", Equal(share("refused", "healed"))),
        "PlimsollTruncated": ("{{model}}", Grown({"gpt-4.1": 1})),
        "PlimsollNearTheLine": ("{{model}}", Equal(near(played))),
        "PlimsollNotFitted": ("{{endpoint}}", Grown({"azure": 1})),
        "PlimsollCountsOff": (
            "{{model}} {{quality}}",
            Equal({f"{one.model_sent} {quality(one)}": off(one) for one in played.answered}),
        ),
        "PlimsollCountsDropped": ("{{job}}", Equal({JOB: 0})),
        "PlimsollExtraCallsFailing": ("{{kind}}", Equal({})),
        "PlimsollModelTableOld": ("{{job}}", Between(0, 10 * YEAR, (JOB,))),
        "PlimsollCutsCostMoney": ("{{job}}", Equal({JOB: cost_of_cuts(played)})),
        "PlimsollExtraBudgetLow": ("{{job}}", Equal({JOB: 20_000_000})),
    }


def asked_by(done: Iterable[Done]) -> Series:
    """How many requests each caller sent. Whose headers are refused is nobody."""
    return summed(done, lambda one: "requests, " + ("other" if one.case.result == "rejected" else CALLER))


def failures(done: Iterable[Done]) -> int:
    """How many did not end well."""
    return sum(one.case.status >= 500 or one.case.result == "broken_off" for one in done)


def cost_of_cuts(played: Played) -> float:
    """What was paid for requests that would have been accepted uncut, as a share of what they would have cost then."""
    accepted = [one for one in costs(played.done) if one.asked is not None]
    return sum(one.net for one in accepted) / sum(one.asked_net or 0 for one in accepted)
