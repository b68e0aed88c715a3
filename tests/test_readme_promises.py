"""Each promise of the documents is literally there, and is shown by a test of its name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, DEPLOY, RULES = "README.md", "deploy/docs", "rules/README.md"

# A document or a folder of documents, a sentence of it, and the test that fails if the sentence is not true.
PROMISES = (
    (
        RULES,
        "It goes to the request's own upstream with the request's own key, and to no other",
        "e2e/test_provider_counts.py::test_key_and_content_go_to_the_requests_own_upstream_alone",
    ),
    (
        RULES,
        "A request that surely fits is never asked about",
        "e2e/test_provider_counts.py::test_nobody_is_asked_where_the_margin_decides_nothing",
    ),
    (
        DEPLOY,
        "and nowhere else",
        "e2e/test_upstreams.py::test_the_model_decides_and_each_upstream_gets_its_own_key",
    ),
    (
        DEPLOY,
        "It is spent only for callers whose own key the default upstream accepted",
        "e2e/test_upstreams.py::test_only_a_caller_whose_own_key_was_accepted_spends_the_operators",
    ),
    (
        DEPLOY,
        "No request waits for the disk or fails with it",
        "hostile/test_recording.py::test_a_disk_that_is_full_costs_no_request_and_is_told_once",
    ),
    (
        DEPLOY,
        "no word of any body",
        "e2e/test_recording.py::test_no_key_is_recorded_and_content_only_where_it_is_asked_for",
    ),
    (
        README,
        "A request that is too long is made to fit wherever anything may be cut",
        "laws/test_ladders.py::test_a_request_whose_texts_can_give_way_is_never_refused",
    ),
    (
        README,
        "Your agent's compaction cannot fail for its length",
        "e2e/test_compactions.py::test_an_agents_compaction_cannot_fail_for_its_length",
    ),
    (
        RULES,
        "A provider's own compaction goes out as it came, and is cut only after a refusal",
        "e2e/test_compactions.py::test_what_the_provider_compacts_itself_goes_out_as_it_came_and_is_cut_after_a_refusal",
    ),
    (
        README,
        "A request that fits goes upstream with its body byte for byte",
        "e2e/test_fitting.py::test_a_request_that_fits_arrives_with_the_same_bytes",
    ),
    (
        README,
        "unless you configure a step that acts before the window is full",
        "e2e/test_summaries.py::test_from_85_percent_on_a_summary_stands_for_old_history",
    ),
    (
        README,
        "All other headers go along, and every chunk of a stream as it comes",
        "e2e/test_fitting.py::test_headers_are_forwarded_and_ours_are_not",
    ),
    (
        README,
        "every chunk of a stream as it comes",
        "e2e/test_fitting.py::test_a_stream_is_handed_on_chunk_by_chunk",
    ),
    (
        README,
        "A tool call is never parted from its result",
        "laws/test_steps.py::test_the_laws_of_steps_hold",
    ),
    (
        README,
        "Instructions, the first user message, the last one and what you pin are never dropped",
        "hostile/test_promises.py::test_U5_what_is_never_dropped_is_never_dropped",
    ),
    (
        README,
        "Cuts go deep and then stay where they are for many turns",
        "laws/test_stability.py::test_cuts_are_seldom_deep_and_stay_where_they_are",
    ),
    (
        README,
        "the same on every replica",
        "laws/test_determinism.py::test_a_replica_that_saw_every_turn_and_one_that_sees_only_the_last_send_the_same_bytes",
    ),
    (README, "None of them is forwarded", "e2e/test_fitting.py::test_headers_are_forwarded_and_ours_are_not"),
    (
        README,
        "A request that no step can make fit gets a 400",
        "e2e/test_fitting.py::test_what_cannot_fit_is_refused_with_the_figures_and_what_takes_the_room",
    ),
    (
        DEPLOY,
        "without sending it, and without asking for a summary or embeddings",
        "hostile/test_money.py::test_F7_inspect_never_causes_one",
    ),
    (
        DEPLOY,
        "none of our own paths ever reaches the provider",
        "hostile/test_money.py::test_F16_own_paths_never_reach_the_provider",
    ),
    (
        DEPLOY,
        "and only to `POST` `chat/completions`",
        "hostile/test_money.py::test_F16_the_operators_key_goes_only_to_the_endpoints_that_it_is_meant_for",
    ),
    (
        DEPLOY,
        "A key's first request therefore goes without a summary",
        "hostile/test_money.py::test_F7_a_key_that_the_upstream_accepted_causes_them_from_its_second_request_on",
    ),
    (
        DEPLOY,
        "All of it stays within `PLIMSOLL_EXTRA_CALLS_BUDGET`",
        "hostile/test_money.py::test_F7_the_budget_ends_them_and_metrics_show_it",
    ),
    (
        DEPLOY,
        "callers take turns",
        "hostile/test_money.py::test_H9_one_tenants_texts_do_not_put_off_anothers",
    ),
    (
        DEPLOY,
        "without content or keys",
        "hostile/test_reporting.py::test_U8_neither_content_nor_keys_are_in_lines_metrics_or_headers",
    ),
    (
        README,
        "is named once in the log and counted",
        "hostile/test_reporting.py::test_U3_what_is_not_fitted_is_named_once_and_counted",
    ),
    (
        DEPLOY,
        "Only models of the table or of your rules are labels",
        "observe/metrics/test_aggregation.py::test_ten_thousand_invented_names_are_one_model",
    ),
    (
        DEPLOY,
        "Requests in progress keep the rules that they began with, and no connection closes",
        "e2e/test_reload.py::test_changed_rules_hold_for_new_requests_and_no_stream_ends",
    ),
    (
        DEPLOY,
        "Wrong files change nothing: the log has a line for each problem with file, row and reason",
        "e2e/test_reload.py::test_a_broken_file_keeps_the_old_rules_and_is_named_with_row_and_reason",
    ),
    (
        DEPLOY,
        "When a master dies, requests continue without Redis until the new one is known",
        "e2e/test_redis_failover.py::test_no_request_fails_while_the_master_dies_and_lessons_are_shared_again",
    ),
    (
        DEPLOY,
        "sampled goes with its headers as they came",
        "e2e/test_traces.py::test_a_request_that_is_not_sampled_goes_as_it_came",
    ),
    (
        DEPLOY,
        "no content, no key, nothing about the caller",
        "e2e/test_secrets.py::test_whatever_fails_nothing_is_told",
    ),
    (
        DEPLOY,
        "[runbooks](runbooks.md) says what to do then",
        "deploy/test_alerts.py::test_the_page_has_a_section_for_each_alert_in_their_order",
    ),
    (
        DEPLOY,
        "Two Grafana boards have a row for each question; all rows but the first are collapsed",
        "deploy/test_board.py::test_M20_each_row_is_a_question_and_all_but_the_first_are_collapsed",
    ),
    (
        DEPLOY,
        "A stop exports what is queued",
        "e2e/test_traces.py::test_processes_export_what_is_queued_when_they_stop",
    ),
    (
        DEPLOY,
        "A rolling restart loses no request and no stream that ends within",
        "bench/test_rolling.py::test_no_request_and_no_stream_is_lost_while_two_replicas_are_restarted",
    ),
    (
        DEPLOY,
        "Two\nversions may share one during an upgrade",
        "cache/test_recorded.py::test_what_an_earlier_version_stored_is_read",
    ),
)


@cache
def text_of(document: str) -> str:
    path = ROOT / document
    files = sorted(path.glob("*.md")) if path.is_dir() else [path]
    return " ".join(" ".join(file.read_text("utf-8") for file in files).split())


@pytest.mark.parametrize(("document", "sentence", "test"), PROMISES)
def test_each_promise_stands_in_its_document_and_has_a_test(document: str, sentence: str, test: str) -> None:
    assert " ".join(sentence.split()) in text_of(document)
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
