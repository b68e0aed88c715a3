"""What is counted of outcomes, under which names and labels."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.model.outcome import Unmoved, Usage
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.outcome_metrics import METRICS, eventful
from tests.observe.outcomes import FITTED, PASSED
from tests.observe.scraping import CLAMPED, SWITCHED, UNCOUNTED, counted, scraped


def test_requests_are_counted_by_what_became_of_them() -> None:
    found = counted(FITTED, FITTED, PASSED, replace(FITTED, result="unfit", status=400))
    assert found["plimsoll_requests_total{endpoint=chat,model=gpt-4,result=fitted,status=200}"] == 2
    assert found["plimsoll_requests_total{endpoint=chat,model=gpt-4,result=unfit,status=400}"] == 1
    assert found["plimsoll_requests_total{endpoint=passthrough,model=,result=passed,status=200}"] == 1


def test_the_window_is_seen_before_and_after() -> None:
    found = counted(FITTED, replace(FITTED, load_before=0.05, load_after=0.05))
    assert found["plimsoll_window_load_before_ratio_bucket{endpoint=chat,le=1.25,model=gpt-4}"] == 1
    assert found["plimsoll_window_load_before_ratio_bucket{endpoint=chat,le=1.5,model=gpt-4}"] == 2
    assert found["plimsoll_window_load_before_ratio_sum{endpoint=chat,model=gpt-4}"] == pytest.approx(1.37)
    assert found["plimsoll_window_load_after_ratio_bucket{endpoint=chat,le=0.85,model=gpt-4}"] == 2
    assert found["plimsoll_window_load_after_ratio_count{endpoint=chat,model=gpt-4}"] == 2


def test_tokens_are_counted_in_sent_and_cut_by_step() -> None:
    found = counted(FITTED, replace(FITTED, model_sent="gpt-4o", notes=(CLAMPED, SWITCHED)))
    assert found["plimsoll_prompt_tokens_total{endpoint=chat,model=gpt-4}"] == 2 * 7793
    assert found["plimsoll_prompt_sent_tokens_total{endpoint=chat,model=gpt-4}"] == 3691
    assert found["plimsoll_prompt_sent_tokens_total{endpoint=chat,model=gpt-4o}"] == 3691
    assert found["plimsoll_cut_tokens_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 4102
    assert "plimsoll_cut_tokens_total{endpoint=chat,model=gpt-4,step=clamp_output}" not in found
    assert "plimsoll_cut_tokens_total{endpoint=chat,model=gpt-4,step=switch_model}" not in found, (
        "another tokenizer's count is no cut"
    )
    assert found["plimsoll_steps_total{endpoint=chat,model=gpt-4,step=clamp_output}"] == 1
    assert found["plimsoll_switches_total{from=gpt-4,to=gpt-4o}"] == 1


def test_W12_a_move_that_was_not_made_is_counted_once_for_each_of_its_reasons() -> None:
    both = ("caller", "too_small")
    found = counted(FITTED, replace(FITTED, unmoved_by=both), replace(FITTED, unmoved_by=both[:1]))
    reasons = {name.partition("reason=")[2][:-1]: n for name, n in found.items() if "plimsoll_unmoved_total" in name}
    assert reasons == {**dict.fromkeys(map(str, Unmoved), 0), "caller": 2, "too_small": 1}


def test_replies_are_counted_as_asked_as_granted_and_as_they_came() -> None:
    found = counted(replace(FITTED, reply_asked=4096, reply_sent=1200), UNCOUNTED)
    assert found["plimsoll_reply_asked_tokens_total{endpoint=chat,model=gpt-4}"] == 4096
    assert found["plimsoll_reply_granted_tokens_total{endpoint=chat,model=gpt-4}"] == 1200
    assert found["plimsoll_completion_tokens_total{endpoint=chat,model=gpt-4}"] == 7
    assert found["plimsoll_completion_tokens_total{endpoint=chat,model=gpt-4o}"] == 2
    assert found["plimsoll_cached_prompt_tokens_total{endpoint=chat,model=gpt-4o}"] == 4


def test_refusals_are_counted_met_and_healed() -> None:
    healed = replace(FITTED, refusals=("vllm", "vllm"), healed=True)
    found = counted(healed, replace(UNCOUNTED, refusals=("tgi",)))
    assert found["plimsoll_refusals_total{healed=true,rule=vllm}"] == 2
    assert found["plimsoll_refusals_total{healed=false,rule=tgi}"] == 1


def test_counts_are_held_against_what_the_upstream_counted() -> None:
    off = replace(FITTED, quality="estimated", prompt_sent=106, usage=Usage(100))
    found = counted(FITTED, off, replace(FITTED, usage=None), replace(FITTED, usage=Usage(0)))
    assert found["plimsoll_counts_total{endpoint=chat,model=gpt-4,quality=exact}"] == 3
    assert found["plimsoll_count_error_ratio_bucket{endpoint=chat,le=0.001,model=gpt-4,quality=exact}"] == 1
    assert found["plimsoll_count_error_ratio_bucket{endpoint=chat,le=-0.001,model=gpt-4,quality=exact}"] == 0
    assert found["plimsoll_count_error_ratio_bucket{endpoint=chat,le=0.05,model=gpt-4,quality=estimated}"] == 0
    assert found["plimsoll_count_error_ratio_bucket{endpoint=chat,le=0.1,model=gpt-4,quality=estimated}"] == 1
    failed = counted(replace(FITTED, status=500))
    assert not any(name.startswith("plimsoll_count_error") for name in failed), "a failure's usage says nothing"


def test_our_own_time_is_kept_apart_from_the_upstreams() -> None:
    found = counted(FITTED, replace(PASSED, first_byte_seconds=0.3))
    assert found["plimsoll_own_seconds_bucket{endpoint=chat,le=0.0025}"] == 1
    assert found["plimsoll_own_seconds_bucket{endpoint=chat,le=0.001}"] == 0
    assert found["plimsoll_upstream_seconds_sum{endpoint=chat}"] == 0.25
    assert found["plimsoll_first_byte_seconds_bucket{endpoint=passthrough,le=0.5}"] == 1
    assert "plimsoll_upstream_seconds_count{endpoint=chat}" not in counted(replace(FITTED, upstream_seconds=0.0))


def test_every_row_is_shown_once_it_has_something_to_show() -> None:
    metrics = Metrics(lambda model: model)
    everything = replace(
        FITTED,
        model_sent="gpt-4o",
        refusals=("vllm",),
        first_byte_seconds=0.1,
        truncated=True,
        uncounted=True,
        upstream="large",
        usage=Usage(3691, 7, 64),
    )
    metrics.observe(replace(everything, phases=(("plan", 0.1),), too_long=True, unmoved_by=("caller",), budget="b"))
    metrics.observe(
        replace(FITTED, mode="observe", shape="text", notes=(), planned=FITTED.notes, planned_result="fitted")
    )
    metrics.observe(PASSED)
    metrics.observe(replace(PASSED, endpoint="websocket", bytes_in=1))
    shown = {name.split("{")[0] for name in scraped(metrics)}
    for row in METRICS:
        assert (f"{row.name}_bucket" if row.buckets else row.name) in shown
    assert not any(name.endswith("_created") for name in shown)


def test_only_outcomes_with_something_to_tell_are_read_one_by_one() -> None:
    assert not eventful(replace(FITTED, notes=())) and eventful(FITTED)
    assert eventful(replace(UNCOUNTED, uncounted=True)) and eventful(replace(UNCOUNTED, too_long=True))


def test_a_window_is_shown_with_its_source_and_what_it_leaves_free() -> None:
    found = counted(FITTED, replace(FITTED, window=8000), replace(FITTED, prompt_sent=9000, window_source="rules"))
    assert found["plimsoll_window_tokens{model=gpt-4,source=litellm}"] == 8000, "the newest"
    assert found["plimsoll_window_tokens{model=gpt-4,source=rules}"] == 8192
    assert found["plimsoll_window_requests_total{endpoint=chat,model=gpt-4,source=litellm}"] == 2
    assert found["plimsoll_window_headroom_tokens_bucket{endpoint=chat,le=1000.0,model=gpt-4}"] == 1
    assert found["plimsoll_window_headroom_tokens_bucket{endpoint=chat,le=2000.0,model=gpt-4}"] == 3
    assert found["plimsoll_window_headroom_tokens_sum{endpoint=chat,model=gpt-4}"] == 1501 + 1309


def test_what_observe_would_have_done_is_kept_apart_from_what_was_done() -> None:
    seen = replace(FITTED, result="passed", mode="observe", notes=(), planned=FITTED.notes, planned_result="fitted")
    short = replace(UNCOUNTED, model="gpt-4", mode="observe")
    rejected = replace(short, attempts=0, status=400, result="rejected")
    unfit, fits = replace(seen, planned=(), planned_result="unfit"), replace(seen, planned=(), planned_result="passed")
    found = counted(seen, seen, short, fits, unfit, rejected, FITTED)
    planned = "plimsoll_planned_requests_total{endpoint=chat,model=gpt-4,result=%s}"
    assert [found[planned % result] for result in ("passed", "fitted", "unfit")] == [2, 2, 1]
    assert found["plimsoll_planned_cut_tokens_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 2 * 4102
    assert found["plimsoll_cut_tokens_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 4102
    assert found["plimsoll_planned_steps_total{endpoint=chat,model=gpt-4,step=prune_history}"] == 2


def test_requests_are_rescued_that_were_answered_and_would_have_failed() -> None:
    too_long, healed = replace(FITTED, too_long=True), replace(FITTED, refusals=("vllm",), healed=True)
    unfit = replace(FITTED, result="unfit", status=400, too_long=True)
    found = counted(FITTED, too_long, healed, unfit, replace(FITTED, status=400, refusals=("vllm", "vllm")))
    assert found["plimsoll_rescued_requests_total{endpoint=chat,model=gpt-4}"] == 2
    assert found["plimsoll_heals_total{endpoint=chat,model=gpt-4,result=healed}"] == 1
    assert found["plimsoll_heals_total{endpoint=chat,model=gpt-4,result=failed}"] == 1


def test_a_passed_request_tells_nothing_of_tokens() -> None:
    found = counted(PASSED)
    assert not [name for name, value in found.items() if value and ("token" in name or "load" in name)]
    assert not [
        name
        for name in found
        if name.startswith("plimsoll_") and "model=" in name and "model=}" not in name and "model=," not in name
    ]


def test_requests_are_counted_by_upstream_only_where_there_are_several() -> None:
    found = counted(FITTED, replace(FITTED, upstream="large"), replace(PASSED, upstream="large", status=502))
    assert found["plimsoll_upstream_requests_total{status=200,upstream=large}"] == 1
    assert found["plimsoll_upstream_requests_total{status=502,upstream=large}"] == 1
    assert found["plimsoll_upstream_response_seconds_sum{upstream=large}"] >= 0.25
    assert not any(name.startswith("plimsoll_upstream_re") for name in counted(FITTED))


def test_phases_of_our_own_time_are_told_apart() -> None:
    found = counted(replace(FITTED, phases=(("plan", 0.002), ("render", 0.0002))), FITTED)
    assert found["plimsoll_own_phase_seconds_sum{endpoint=chat,phase=plan}"] == 0.002
    assert found["plimsoll_own_phase_seconds_bucket{endpoint=chat,le=0.00025,phase=render}"] == 1


def test_W22_by_how_many_tokens_usage_differs_is_seen_by_model_and_shape() -> None:
    tools = replace(FITTED, shape="tools", usage=Usage(3691 + 16))
    found = counted(
        FITTED, tools, replace(tools, truncated=True), replace(tools, usage=None), replace(tools, status=500)
    )
    name = "plimsoll_count_difference_tokens"
    shown = {key: value for key, value in found.items() if key.startswith(f"{name}_count")}
    assert shown == {f"{name}_count{{endpoint=chat,model=gpt-4,shape=tools}}": 1}
    assert found[f"{name}_bucket{{endpoint=chat,le=3.0,model=gpt-4,shape=tools}}"] == 0
    assert found[f"{name}_bucket{{endpoint=chat,le=20.0,model=gpt-4,shape=tools}}"] == 1
