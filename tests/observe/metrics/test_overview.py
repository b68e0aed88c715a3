"""The overview: sums of what /metrics shows."""

from __future__ import annotations

import pytest

from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.outcome_metrics import LOAD_BUCKETS
from proxy.observe.metrics.overview import Values, figures, not_above, quantile

CUT = Outcome(
    "chat",
    "fitted",
    200,
    "fit",
    "default",
    "gpt-4o",
    "gpt-4o",
    1000,
    "litellm",
    "exact",
    1200,
    500,
    load_before=1.22,
    load_after=0.52,
    notes=(Note("prune_history", 1200, 500),),
    usage=Usage(500, 20, 100),
    own_seconds=0.004,
    attempts=1,
    too_long=True,
)
SMALL = Outcome(
    "chat", "passed", 200, "fit", "", "gpt-4o", "gpt-4o", 1000, "litellm", "exact", 50, 50, load_before=0.07
)
UNFIT = Outcome(
    "messages", "unfit", 400, "fit", "", "claude", "claude", 900, "rule", "estimated", 9000, load_before=11.0
)
OTHER = Outcome("passthrough", "passed", 200, path="/v1/files/*")


def told(*outcomes: Outcome, by_caller: bool = False) -> dict[str, object]:
    metrics = Metrics(lambda model: model, endpoints=["chat", "messages"], by_caller=by_caller)
    for outcome in outcomes:
        metrics.observe(outcome)
    return figures(Values(metrics.values(), by_caller))


@pytest.mark.parametrize("by_caller", [False, True])
def test_the_figures_are_sums_over_all_requests(by_caller: bool) -> None:
    found = told(CUT, SMALL, SMALL, UNFIT, OTHER, by_caller=by_caller)
    requests, tokens = found["requests"], found["tokens"]
    assert isinstance(requests, dict) and isinstance(tokens, dict)
    assert (requests["total"], requests["measured"], requests["cut"], requests["cut_share"]) == (5, 4, 1, 0.25)
    assert (requests["unfit"], requests["rescued"], requests["failed"], requests["healed"]) == (1, 1, 0, 0)
    assert requests["results"]["passed"] == 2 and requests["results"]["bug"] == 0
    assert (tokens["prompt"], tokens["prompt_sent"], tokens["saved"]) == (1_300, 600, 700)
    assert tokens["steps"] == [{"step": "prune_history", "requests": 1, "tokens": 700}]
    assert (tokens["cached"], tokens["completion"]) == (100, 20)
    assert found["unfitted"] == [{"endpoint": "files", "requests": 1}]


def test_the_model_that_is_nearest_its_line_comes_first() -> None:
    models = told(CUT, SMALL, UNFIT)["models"]
    assert isinstance(models, list)
    assert [(m["model"], m["requests"], m["window"], m["source"]) for m in models] == [
        ("claude", 1, 900, "rule"),
        ("gpt-4o", 2, 1000, "litellm"),
    ]
    assert (models[1]["cut"], models[1]["saved"], models[0]["unfit"]) == (1, 700, 1)


def test_loads_are_counts_of_buckets() -> None:
    load = told(CUT, SMALL)["load"]
    assert isinstance(load, dict)
    assert load["bounds"] == list(LOAD_BUCKETS)
    assert len(load["before"]) == len(LOAD_BUCKETS) + 1 and sum(load["before"]) == 2
    assert load["before"][0] == 1 and load["before"][LOAD_BUCKETS.index(1.25)] == 1 and sum(load["after"]) == 1


def test_before_the_first_request_nothing_is_known() -> None:
    found = told()
    assert found["models"] == [] and found["unfitted"] == []
    own, money, requests = found["own_seconds"], found["money"], found["requests"]
    assert isinstance(own, dict) and isinstance(money, dict) and isinstance(requests, dict)
    assert own == {"p50": None, "p99": None, "mean": None, "count": 0}
    assert money["saved_net"] is None and requests["cut_share"] is None


@pytest.mark.parametrize(
    ("share", "counts", "found"),
    [
        (0.5, [0, 0, 0], None),
        (0.5, [2, 0, 0], 0.5),
        (0.5, [0, 4, 0], 1.5),
        (1.0, [0, 4, 0], 2.0),
        (0.99, [0, 0, 5], 2.0),
        (0.25, [1, 1, 2], 1.0),
    ],
)
def test_a_quantile_is_linear_in_its_bucket(share: float, counts: list[float], found: float | None) -> None:
    assert quantile(share, (1.0, 2.0), counts) == found


@pytest.mark.parametrize(
    ("highest", "load", "found"),
    [(2.2, 3.4, 2.2), (3.5, 3.4, 3.4), (0.1, 3.4, 3.4), (2.0, 3.4, 3.4), (0.01, 0.04, 0.01), (1.0, None, None)],
)
def test_a_quantile_is_not_above_the_highest_load_of_its_bucket(
    highest: float, load: float | None, found: float | None
) -> None:
    assert not_above(highest, load) == found
