"""Outcomes are added up by group, under a bounded number of labels, and known labels start at 0."""

from __future__ import annotations

import random
import re
import string
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.observe.metrics.aggregation import MAX_BASES, MAX_MODEL_LABELS, Aggregator, Known, ModelLabels
from proxy.observe.metrics.costs import no_prices
from proxy.observe.metrics.exposition import BATCH_SIZE, Metrics, model_label
from proxy.observe.metrics.outcome_metrics import OTHER
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
    label_of = ModelLabels(partial(model_label, windows)).of
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


def test_there_is_an_end_to_the_models_that_are_told_apart() -> None:
    models = ModelLabels(lambda model: model)
    labels = {models.of(f"model-{i}") for i in range(5_000)}
    assert len(labels) == MAX_MODEL_LABELS + 1 and OTHER in labels
    assert models.of("model-0") == "model-0"


def test_there_is_an_end_to_the_models_of_endpoints_that_are_told_apart() -> None:
    metrics = Metrics(lambda model: model)
    for i in range(MAX_BASES // 50 + 5):
        for j in range(50):
            metrics.observe(replace(UNCOUNTED, endpoint=f"api-{i}", model=f"model-{j}"))
    found = {name: value for name, value in scraped(metrics).items() if name.startswith("plimsoll_requests_total")}
    bases = {name.partition(",result")[0] for name in found}
    assert MAX_BASES <= len(bases) <= MAX_BASES + 15, "each endpoint still has an other"
    assert sum(found.values()) == 50 * (MAX_BASES // 50 + 5), "and nothing is lost"


def test_known_labels_start_at_zero_with_the_process() -> None:
    known: Known = {("step",): [("prune_history",)], ("rule", "healed"): [("vllm", "true"), ("vllm", "false")]}
    found = scraped(Metrics(endpoints=["chat"], known=known))
    for name in (
        "plimsoll_requests_total{endpoint=chat,model=other,result=unfit,status=400}",
        "plimsoll_requests_total{endpoint=passthrough,model=,result=upstream_error,status=502}",
        "plimsoll_cut_tokens_total{endpoint=chat,model=other,step=prune_history}",
        "plimsoll_planned_steps_total{endpoint=chat,model=other,step=prune_history}",
        "plimsoll_refusals_total{healed=false,rule=vllm}",
        "plimsoll_heals_total{endpoint=chat,model=other,result=failed}",
        "plimsoll_counts_dropped_total",
        "plimsoll_prompt_tokens_total{endpoint=chat,model=other}",
        "plimsoll_websocket_bytes_total{direction=in}",
    ):
        assert found[name] == 0, name
    assert "plimsoll_requests_total{endpoint=passthrough,model=,result=fitted,status=200}" not in found


def test_known_labels_of_a_model_start_at_zero_with_its_first_request() -> None:
    metrics = Metrics(lambda model: model, known={("step",): [("prune_history",), ("recall",)]})
    metrics.observe(UNCOUNTED)
    found = scraped(metrics)
    assert found["plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=passed,status=200}"] == 1
    assert found["plimsoll_requests_total{endpoint=chat,model=gpt-4o,result=unfit,status=400}"] == 0
    assert found["plimsoll_cut_tokens_total{endpoint=chat,model=gpt-4o,step=recall}"] == 0
    observed = "plimsoll_planned_cut_tokens_total{endpoint=chat,model=gpt-4o,step=recall}"
    assert observed not in found
    metrics.observe(replace(UNCOUNTED, mode="observe"))
    assert scraped(metrics)[observed] == 0


def test_outcomes_are_added_to_the_model_that_was_asked_and_to_the_one_that_was_sent() -> None:
    aggregator = Aggregator(lambda model: model)
    aggregator.add([replace(FITTED, model_sent="gpt-4o"), FITTED])
    cells = {one.metric.name: one.buffer.cells for one in aggregator.series}
    assert cells["plimsoll_prompt_tokens_total"] == {("chat", "gpt-4"): [2 * 7793.0]}
    assert cells["plimsoll_prompt_sent_tokens_total"] == {("chat", "gpt-4"): [3691.0], ("chat", "gpt-4o"): [3691.0]}


def test_other_rules_label_the_outcomes_that_come_after_them() -> None:
    metrics = Metrics(lambda model: OTHER, known={("step",): [("recall",)]})
    metrics.observe(FITTED)
    metrics.use_rules(lambda model: "named", {("step",): [("prune_history",)]}, no_prices)
    metrics.observe(FITTED)
    found = scraped(metrics)
    prompts, steps = (
        "plimsoll_prompt_tokens_total{endpoint=chat,model=%s}",
        "plimsoll_steps_total{endpoint=chat,model=%s}",
    )
    assert found[prompts % OTHER] == found[prompts % "named"] == FITTED.prompt
    assert found[steps.replace("}", ",step=prune_history}") % "named"] == 1
    assert found[steps.replace("}", ",step=recall}") % OTHER] == 0


def test_a_step_that_rules_add_starts_at_zero_where_models_were_counted() -> None:
    metrics = Metrics(lambda model: model)
    metrics.observe(FITTED)
    metrics.use_rules(lambda model: model, {("step",): [("recall",), ("prune_history",)]}, no_prices)
    found = scraped(metrics)
    assert found["plimsoll_steps_total{endpoint=chat,model=gpt-4,step=recall}"] == 0
    assert found["plimsoll_steps_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 1, "what was counted stays"


def test_callers_are_told_apart_where_they_are_wanted() -> None:
    metrics = Metrics(lambda model: model, endpoints=["chat"], by_caller=True)
    metrics.observe(replace(FITTED, caller="search"))
    metrics.observe(replace(FITTED, model_sent="gpt-4o"))
    metrics.observe(replace(PASSED, caller="search"))
    found = scraped(metrics)
    name = "plimsoll_prompt_sent_tokens_total{caller=%s,endpoint=chat,model=%s}"
    assert (found[name % ("search", "gpt-4")], found[name % (OTHER, "gpt-4o")]) == (3691, 3691)
    step = "plimsoll_steps_total{caller=search,endpoint=chat,model=gpt-4,step=prune_history}"
    assert found[step] == 1
    passed = "plimsoll_requests_total{caller=search,endpoint=passthrough,model=,result=passed,status=200}"
    assert found[passed] == 1
    assert found["plimsoll_cost_asked_usd_total{caller=search,endpoint=chat,model=gpt-4}"] == 0
    assert "plimsoll_own_seconds_count{endpoint=chat}" in found, "times are not told apart by caller"


def test_there_is_an_end_to_the_callers_of_models_that_are_told_apart() -> None:
    metrics = Metrics(lambda model: model, by_caller=True)
    for i in range(MAX_BASES // 50 + 5):
        for j in range(50):
            metrics.observe(replace(UNCOUNTED, caller=f"caller-{j}", model=f"model-{i}"))
    requests = [name for name in scraped(metrics) if name.startswith("plimsoll_prompt_tokens_total")]
    assert len(requests) <= MAX_BASES + 1
    assert any("caller=other" in name and "model=other" in name for name in requests)
