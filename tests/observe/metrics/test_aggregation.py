"""Outcomes are added up by group, under a bounded number of labels, and what alerts read starts at 0."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.observe.metrics.aggregation import MAX_PAIRS, MAX_WITH_CALLER, Aggregator
from proxy.observe.metrics.costs import no_prices
from proxy.observe.metrics.exposition import BATCH_SIZE, Metrics, model_label
from proxy.observe.metrics.groups import OTHER
from tests.observe.outcomes import FITTED, PASSED
from tests.observe.scraping import UNCOUNTED, counted, scraped


@pytest.fixture(scope="module")
def windows() -> Windows:
    return load_windows(load_rules(None).windows)


def test_outcomes_of_all_kinds_are_told_apart_however_many_are_added_up_at_once() -> None:
    for often in (1, BATCH_SIZE - 1, BATCH_SIZE, 3 * BATCH_SIZE + 1):
        found = counted(*[o for _ in range(often) for o in (FITTED, PASSED)])
        assert sum(v for name, v in found.items() if name.startswith("plimsoll_requests_total")) == 2 * often
        assert sum(v for name, v in found.items() if name.startswith("plimsoll_prompt_tokens_total")) == (
            often * (FITTED.prompt or 0)
        )


def models_in(metrics: Metrics) -> set[str]:
    """The values of the label `model`."""
    found = [re.search(r"[{,]model=([^,}]*)", name) for name in scraped(metrics)]
    return {match[1] for match in found if match}


def test_ten_thousand_invented_names_are_one_model(windows: Windows) -> None:
    dice = random.Random(1)
    metrics = Metrics(partial(model_label, windows))
    for _ in range(10_000):
        name = "".join(dice.choices(string.ascii_lowercase + string.digits + "-/", k=20))
        metrics.observe(replace(FITTED, model=name, model_sent=name))
    assert OTHER in models_in(metrics) and len(models_in(metrics)) < 4, "a name may hold the name of a known model"


@pytest.mark.parametrize("spelling", ["gpt-4o-{}", "{}/gpt-4o", "gpt-4o:{}", "ft:gpt-4o-2024-08-06:{}::x", "gpt-4o@{}"])
def test_a_thousand_spellings_are_one_model(windows: Windows, spelling: str) -> None:
    metrics = Metrics(partial(model_label, windows))
    for i in range(1_000):
        metrics.observe(replace(FITTED, model=spelling.format(f"{i:06}x"), model_sent=""))
    assert len(models_in(metrics) - {""}) == 1


def test_models_that_are_known_are_called_by_their_names(windows: Windows) -> None:
    label_of = Aggregator(partial(model_label, windows)).label
    assert [label_of(m) for m in ("gpt-4o", "gpt-4", "azure/eu/gpt-4o-2024-08-06")] == [
        "gpt-4o",
        "gpt-4",
        "gpt-4o-2024-08-06",
    ]
    assert [label_of(m) for m in ("nobody-knows-it", "", "x" * 5_000)] == [OTHER] * 3


def test_a_users_own_row_gives_the_name(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour-*"\ntokens = 9000\n')
    windows = load_windows(load_rules(tmp_path).windows)
    assert {model_label(windows, f"harbour-{i}") for i in range(20)} == {"harbour-*"}


def test_there_is_an_end_to_the_models_that_are_told_apart_and_the_rest_is_counted_as_other() -> None:
    told: list[str] = []
    metrics = Metrics(lambda model: model, endpoints=["chat"], folded=told.append)
    for i in range(2 * MAX_PAIRS):
        metrics.observe(replace(UNCOUNTED, model=f"model-{i}"))
    assert len(models_in(metrics) - {OTHER, ""}) == MAX_PAIRS
    found = scraped(metrics)
    assert found["plimsoll_requests_total{endpoint=chat,model=model-0,result=passed,status=200}"] == 1
    assert found["plimsoll_requests_total{endpoint=chat,model=other,result=passed,status=200}"] == MAX_PAIRS
    assert found["plimsoll_labels_folded_total{label=model}"] == MAX_PAIRS
    assert told == ["model"], "it is said once"


class Agreed:
    """What other replicas tell apart, and nothing else."""

    def allows(self, kind: str, labels: Sequence[str], most: int) -> bool:
        return "model-7" in labels


def test_what_replicas_do_not_tell_apart_is_folded_here_too() -> None:
    metrics = Metrics(lambda model: model, endpoints=["chat"], agreed=Agreed())
    for i in range(9):
        metrics.observe(replace(UNCOUNTED, model=f"model-{i}"))
    assert models_in(metrics) - {OTHER, ""} == {"model-7"}
    assert scraped(metrics)["plimsoll_labels_folded_total{label=model}"] == 8


def test_what_alerts_read_starts_at_zero_with_the_process() -> None:
    found = scraped(Metrics(endpoints=["chat"]))
    for name in (
        "plimsoll_requests_total{endpoint=chat,model=other,result=unfit,status=400}",
        "plimsoll_requests_total{endpoint=passthrough,model=,result=upstream_error,status=502}",
        "plimsoll_heals_total{endpoint=chat,model=other,result=failed}",
        "plimsoll_truncated_prompts_total{endpoint=chat,model=other}",
        "plimsoll_counts_dropped_total",
        "plimsoll_labels_folded_total{label=model}",
    ):
        assert found[name] == 0, name
    assert "plimsoll_requests_total{endpoint=passthrough,model=,result=unfit,status=400}" not in found


def test_what_alerts_read_of_a_model_starts_at_zero_with_its_first_request_and_nothing_else_does() -> None:
    metrics = Metrics(lambda model: model)
    metrics.observe(UNCOUNTED)
    found = scraped(metrics)
    assert found["plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=passed,status=200}"] == 1
    assert {name for name, value in found.items() if "model=gpt-4o" in name and not value} == {
        "plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=unfit,status=400}",
        "plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=upstream_error,status=502}",
        "plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=upstream_error,status=504}",
        "plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=broken_off,status=200}",
        "plimsoll_heals_total{endpoint=chat,model=gpt-4o,result=healed}",
        "plimsoll_heals_total{endpoint=chat,model=gpt-4o,result=failed}",
        "plimsoll_truncated_prompts_total{endpoint=chat,model=gpt-4o}",
    }


def test_outcomes_are_added_to_the_model_that_was_asked_and_to_the_one_that_was_sent() -> None:
    aggregator = Aggregator(lambda model: model)
    aggregator.add([replace(FITTED, model_sent="gpt-4o"), FITTED])
    cells = {one.metric.name: one.buffer.cells for one in aggregator.series}
    assert cells["plimsoll_prompt_tokens_total"] == {("chat", "gpt-4"): [2 * 7793.0]}
    assert cells["plimsoll_prompt_sent_tokens_total"] == {("chat", "gpt-4"): [3691.0], ("chat", "gpt-4o"): [3691.0]}


def test_other_rules_label_the_outcomes_that_come_after_them() -> None:
    metrics = Metrics(lambda model: OTHER)
    metrics.observe(FITTED)
    metrics.use_rules(lambda model: "named", no_prices)
    metrics.observe(FITTED)
    found = scraped(metrics)
    prompts = "plimsoll_prompt_tokens_total{endpoint=chat,model=%s}"
    assert found[prompts % OTHER] == found[prompts % "named"] == FITTED.prompt


def test_callers_are_told_apart_where_they_are_wanted() -> None:
    metrics = Metrics(lambda model: model, endpoints=["chat"], by_caller=True)
    metrics.observe(replace(FITTED, caller="search"))
    metrics.observe(replace(FITTED, model_sent="gpt-4o"))
    metrics.observe(replace(PASSED, caller="search"))
    found = scraped(metrics)
    name = "plimsoll_prompt_sent_tokens_total{caller=%s,endpoint=chat,model=%s}"
    assert (found[name % ("search", "gpt-4")], found[name % (OTHER, "gpt-4o")]) == (3691, 3691)
    assert found["plimsoll_steps_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 2, "steps are not"
    passed = "plimsoll_requests_total{caller=search,endpoint=passthrough,model=,result=passed,status=200}"
    assert found[passed] == 1
    assert "plimsoll_own_seconds_count{endpoint=chat}" in found, "times are not told apart by caller"


def sums(found: dict[str, float], metric: str, label: str) -> dict[str, float]:
    """The values of a metric by one label."""
    total: dict[str, float] = {}
    for name, value in found.items():
        if name.startswith(metric + "{") and (match := re.search(rf"[{{,]{label}=([^,}}]*)", name)):
            total[match[1]] = total.get(match[1], 0) + value
    return total


def test_beyond_the_bound_requests_keep_their_model_and_tokens_keep_their_caller() -> None:
    told: list[str] = []
    metrics = Metrics(lambda model: model, by_caller=True, folded=told.append)
    models, callers = MAX_PAIRS // 2, 3 * MAX_WITH_CALLER // (MAX_PAIRS // 2)
    for i in range(models):
        for j in range(callers):
            metrics.observe(replace(FITTED, caller=f"caller-{j}", model=f"model-{i}", model_sent=""))
    found = scraped(metrics)
    requests, prompts = "plimsoll_requests_total", "plimsoll_prompt_tokens_total"
    assert sums(found, requests, "model") == {
        **{f"model-{i}": callers for i in range(models)},
        "": 0,
    }
    assert sums(found, prompts, "caller") == {f"caller-{j}": models * (FITTED.prompt or 0) for j in range(callers)}
    folded = models * callers - MAX_WITH_CALLER
    assert sums(found, requests, "caller")[OTHER] == folded == found["plimsoll_labels_folded_total{label=caller}"]
    assert sums(found, prompts, "model")[OTHER] == folded * (FITTED.prompt or 0)
    assert told == ["caller"]
