"""What the board and the rules must show of the scripted traffic, from the requests of the script themselves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from proxy.observe.outcome_metrics import COUNT_ERRORS, HEADROOM_BUCKETS, LOAD_BUCKETS
from tests.deploy.traffic import CHAT, SUMMARY, WINDOWS, Done, reported, summed

JOB = "apps/plimsoll"
WAIT = 60.0  # seconds; a busy machine needs some
Series = dict[str, float]


@dataclass(frozen=True, slots=True)
class Grown:
    """Growth in the second playing, by legend; what is not named did not grow. `per` is of a rate: a second."""

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


Expected = Grown | Equal | Between


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


def model_sent(one: Done) -> str:
    return one.model_sent


def step(one: Done) -> str:
    return one.case.step


def tokens_of_summary(request: bytes) -> int:
    return reported(request) + len(SUMMARY.split())


def errors(done: Iterable[Done]) -> list[float]:
    return [(one.sent - one.reported) / one.reported for one in done if one.sent is not None and one.reported]


def expected(done: list[Done], summaries: list[bytes]) -> Mapping[str, Expected]:
    """What each panel must show, by its title."""
    measured = [one for one in done if one.prompt is not None]
    sent = [one for one in measured if one.sent is not None]
    acted = [one for one in sent if not one.case.planned]
    observed = [one for one in sent if one.case.planned]
    fitted = [one for one in done if one.case.path == CHAT]
    loads, requests = [one.before for one in measured], float(len(done))
    models = sorted({model(one) for one in measured})

    def of(name: str, ones: list[Done] = measured, by: Callable[[Done], str] = model) -> list[Done]:
        return [one for one in ones if by(one) == name]

    def headroom(one: Done) -> float:
        assert one.after is not None
        window = one.case.window or WINDOWS[one.model]
        return max(0, round(window * (1 - one.after)))

    def result(name: str) -> float:
        return float(sum(one.case.result == name for one in done))

    cut = sum(one.cut for one in acted)
    error = errors(sent)
    return {
        "Replicas that answer": Equal({"Replicas that answer": 1}),
        "Requests": Grown({"Requests": requests}),
        "In progress": Equal({"In progress": 1}),
        "Failed": Equal({"Failed": 2 / requests}),
        "Own time, p99": Between(0, WAIT, ("Own time, p99",)),
        "Errors of ours": Grown({}),
        "Requests by result": Grown(summed(done, lambda one: one.case.result)),
        "Answers by status": Grown(summed(done, lambda one: one.case.status)),
        "Own time": Between(0, WAIT, ("p50", "p95", "p99")),
        "Time of the upstream": Between(0, WAIT, ("first byte, p50", "first byte, p95", "end, p95")),
        "CPU": Between(0, 2, ("{instance}",)),
        "Memory": Between(0, 2**30, ("{instance}", "bodies, {instance}")),
        "Memory for bodies": Between(0, 0.1, ("taken, {instance}",)),
        "Requests without memory": Grown({}),
        "Hits of the caches": Between(0, 1, ("local", "redis")),
        "Redis": Equal({"{instance}, reading": 0, "{instance}, writing": 0}),
        "Troubles of Redis": Grown({}),
        "Rules and keys": Equal({"{instance}": 1}),
        "Reloads": Grown({}),
        "WebSockets": Grown({}),
        "File descriptors": Between(0, 0.5, ("{instance}",)),
        "Load as clients sent it": Grown(buckets(loads, LOAD_BUCKETS)),
        "Load as clients sent it, p95 by model": Equal(
            {name: quantile(0.95, [one.before for one in of(name)], LOAD_BUCKETS) for name in models}
        ),
        "Requests over a load": Equal(
            {
                "over 80 %": sum(load > 0.8 for load in loads if load) / len(loads),
                "over 90 %": sum(load > 0.9 for load in loads if load) / len(loads),
                "over the window": sum(load > 1 for load in loads if load) / len(loads),
            }
        ),
        "Headroom, p5 by model": Equal(
            {name: quantile(0.05, map(headroom, of(name, sent)), HEADROOM_BUCKETS) for name in models}
        ),
        "Requests by model": Grown(summed(fitted, model)),
        "Endpoints that are not fitted": Grown({"models": 2, "embeddings": 1, "completions": 1}),
        "Windows": Equal(
            {f"{one.model_sent}, {one.case.source}": one.case.window or WINDOWS[one.model] for one in measured}
        ),
        "Where windows come from": Grown(summed(measured, lambda one: one.case.source)),
        "Tokens cut": Grown({"Tokens cut": cut}),
        "Share of prompts cut": Equal({"Share of prompts cut": cut / sum(one.prompt or 0 for one in measured)}),
        "Rescued": Grown({"Rescued": sum((one.before or 0) > 1 and one.case.status == 200 for one in acted)}),
        "Healed": Grown({"Healed": result("healed")}),
        "Refused all the same": Grown({"Refused all the same": result("refused")}),
        "Not made to fit": Grown({"Not made to fit": result("unfit")}),
        "Tokens cut by step": Grown(summed(acted, step, lambda one: one.cut)),
        "Requests changed by step": Grown(summed([one for one in acted if one.case.step], step)),
        "Tokens cut by model": Grown(summed(acted, model, lambda one: one.cut)),
        "Load before and after": Equal(
            {
                "as clients sent it, p95": quantile(0.95, loads, LOAD_BUCKETS),
                "as it went upstream, p95": quantile(0.95, [one.after for one in sent], LOAD_BUCKETS),
            }
        ),
        "Refusals by rule": Grown({"context_length, healed: true": 1, "context_length, healed: false": 1}),
        "Reply limits": Grown(
            {"asked": sum(one.asked for one in measured), "granted": sum(one.granted for one in sent)}
        ),
        "Moved to another model": Grown({"gpt-4 to gpt-4o": 1}),
        "Observe: what would become of requests": Grown(summed(observed, lambda one: one.case.planned)),
        "Observe: tokens that would be cut": Grown({"prune_history": done[4].cut}),  # as the same request without it
        "Observe: requests that would change": Grown({"prune_history": 1}),
        "Tokens": Grown(
            {
                "prompt, as clients sent it": sum(one.prompt or 0 for one in measured),
                "prompt, as it went upstream": sum(one.sent or 0 for one in sent),
                "reply": sum(one.reply for one in sent),
            }
        ),
        "Summaries and embeddings": Grown({"summary, ok": len(summaries)}),
        "Tokens of summaries and embeddings": Grown({"summary": sum(map(tokens_of_summary, summaries))}),
        "Time of summaries and embeddings": Between(0, 1, ("summary",)),
        "Budget left for them": Equal({"{instance}": 20_000_000}),
        "CPU per request": Between(0, 10, ("CPU",)),
        "Counts by quality": Grown(summed(measured, lambda one: "estimated" if one.model == "other" else "exact")),
        "Counts within 1 % of usage": Equal(
            {
                "exact": within(errors(one for one in sent if one.model != "other"), 0.01),
                "estimated": within(errors(of("other", sent)), 0.01),
            }
        ),
        "Error of counts": Grown(buckets(error, COUNT_ERRORS)),
        "Counts within 5 % of usage, by model": Equal(
            {
                name: within(errors(of(name, sent, model_sent)), 0.05)
                for name in sorted({one.model_sent for one in sent if one.reported})
            }
        ),
        "Cut by the upstream": Grown({"Cut by the upstream": 1}),
        "Fit, never counted": Grown({}),
    }


def by_rules(done: list[Done]) -> Mapping[str, tuple[str, Expected]]:
    """What each rule must say, by its name, and which labels its series are named by."""
    measured = [one for one in done if one.case.path == CHAT]
    sent = [one for one in done if one.sent is not None]
    models = sorted({one.model for one in measured})
    number = {name: sum(one.model == name for one in measured) for name in models}

    def share(*results: str) -> Series:
        found = summed([one for one in measured if one.case.result in results], model)
        return {name: found.get(name, 0) / number[name] for name in models}

    def beyond(quality: str, name: str, bound: float) -> float:
        ones = [one for one in sent if one.model_sent == name and (name == "other") == (quality == "estimated")]
        return 1 - within(errors(ones), bound)

    answered = sorted({one.model_sent for one in sent if one.reported})
    return {
        "job:plimsoll_requests:increase15m": ("{{job}}", Grown({JOB: len(done)})),
        "job_model:plimsoll_measured_requests:increase1h": ("{{model}}", Grown({**number})),
        "PlimsollDown": ("{{job}}", Equal({JOB: 1})),
        "PlimsollAbsent": ("", Equal({})),
        "PlimsollRestarting": ("{{job}}", Equal({JOB: 0})),
        "PlimsollUpstreamErrors": ("{{job}}", Equal({JOB: 2 / len(done)})),
        "PlimsollOverloaded": ("{{job}}", Equal({})),
        "PlimsollMemoryShort": ("{{job}}", Equal({JOB: 0})),
        "PlimsollFilesShort": ("{{job}}", Between(0, 0.5, (JOB,))),
        "PlimsollSlow": ("{{job}}", Between(0, WAIT, (JOB,))),
        "PlimsollBug": ("{{job}}", Equal({})),
        "PlimsollReloadFailed": ("{{job}}", Equal({JOB: 1})),
        "PlimsollCacheDown": ("{{breaker}}", Equal({"reading": 0, "writing": 0})),
        "PlimsollUnfit": ("{{model}}", Equal(share("unfit"))),
        "PlimsollRefused": ("{{model}}", Equal(share("refused"))),
        "PlimsollWindowWrong": ("{{model}}", Equal(share("refused", "healed"))),
        "PlimsollTruncated": ("{{model}}", Grown({"gpt-4.1": 1})),
        "PlimsollNearTheLine": (
            "{{model}}",
            Equal(
                {
                    name: quantile(0.95, [one.before for one in measured if one.model == name], LOAD_BUCKETS)
                    for name in models
                }
            ),
        ),
        "PlimsollNotFitted": ("{{endpoint}}", Grown({"completions": 1})),
        "PlimsollCountsOff": (
            "{{model}} {{quality}}",
            Equal(
                {
                    f"{name} {quality}": beyond(quality, name, bound)
                    for name in answered
                    for quality, bound in [("estimated", 0.1) if name == "other" else ("exact", 0.02)]
                }
            ),
        ),
        "PlimsollCountsDropped": ("{{job}}", Equal({JOB: 0})),
        "PlimsollExtraCallsFailing": ("{{kind}}", Equal({})),
    }
