"""Every wording in tests/refusals/ against the shipped rows, and how answers are read whatever their envelope."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.model.outcome import Refusal
from proxy.wire.refusals import LOOK, Rules, compile_rules, recognise, recognise_event

ROOT = Path(__file__).parents[2]
RULES = compile_rules(tomllib.loads((ROOT / "rules/refusals.toml").read_text("utf-8")))


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """One answer: `expect` holds the figures of the refusal that it is, None where it is none."""

    name: str
    status: int
    body: str
    expect: dict[str, Any] | None
    event: bool = False


CASES = {
    f"{file.stem}: {case.name}": case
    for file in sorted((ROOT / "tests/refusals").glob("*.json"))
    for case in msgspec.json.decode(file.read_bytes(), type=list[Case])
}


def outcome(case: Case) -> Refusal | None:
    body = case.body.encode()
    return recognise_event(RULES, body) if case.event else recognise(RULES, case.status, body)


def error(message: object, **more: object) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **more}})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wording_is_known_for_what_it_is(case: Case) -> None:
    found = outcome(case)
    expected = None if case.expect is None else Refusal(found.rule if found else "?", **case.expect)
    assert found == expected


def test_the_folder_of_wordings_is_not_empty() -> None:
    assert len(CASES) > 150
    assert sum(case.expect is None for case in CASES.values()) > 50


def test_every_row_is_met_by_some_wording() -> None:
    met = {found.rule for case in CASES.values() if (found := outcome(case))}
    assert {row.name for row in RULES.refusals} == met


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429])
def test_the_clearest_wording_is_no_refusal_with_a_status_that_means_something_else(status: int) -> None:
    assert recognise(RULES, status, error("prompt is too long: 9 tokens > 8 maximum")) is None


def test_a_row_that_names_a_status_is_heeded_though_it_never_means_length() -> None:
    rules = compile_rules({"never": [429], "refusal": [{"name": "r", "patterns": ["too long"], "status": [429]}]})
    assert recognise(rules, 429, b"too long") == Refusal("r")
    assert recognise(rules, 400, b"too long") is None


def test_the_first_row_that_applies_counts_and_a_veto_wins_over_all() -> None:
    rows = [{"name": "special", "patterns": ["too very long"]}, {"name": "general", "patterns": ["long"]}]
    rules = compile_rules({"refusal": rows, "veto": [{"name": "v", "patterns": ["quota"]}]})
    assert recognise(rules, 400, b"too very long") == Refusal("special")
    assert recognise(rules, 400, b"long") == Refusal("general")
    assert recognise(rules, 400, b"too very long for your quota") is None


def test_a_row_with_code_and_pattern_needs_both() -> None:
    rules = compile_rules({"refusal": [{"name": "r", "patterns": ["long"], "code": ["E7", 7]}]})
    assert recognise(rules, 400, error("long", code="e7")) == Refusal("r")
    assert recognise(rules, 400, error("long", code=7)) == Refusal("r")
    assert recognise(rules, 400, error("long", code=77)) is None
    assert recognise(rules, 400, error("short", code="e7")) is None


def test_a_rows_own_figures_win_over_those_of_all_rows() -> None:
    rules = compile_rules(
        {
            "figures": ["{limit} max", "{prompt} given"],
            "refusal": [{"name": "r", "patterns": ["long"], "figures": ["min {limit}"]}],
        }
    )
    assert recognise(rules, 400, b"long: min 3, 9 max, 12 given") == Refusal("r", limit=3, prompt=12)
    assert recognise(rules, 400, b"long: 9 max") == Refusal("r", limit=9)


def test_a_figure_that_may_be_missing_is_missing() -> None:
    rules = compile_rules({"refusal": [{"name": "r", "patterns": ["long(?: {limit})?"]}]})
    assert recognise(rules, 400, b"long 7") == Refusal("r", limit=7)
    assert recognise(rules, 400, b"long") == Refusal("r")


def test_the_prompt_is_what_the_total_leaves_beside_the_completion() -> None:
    rules = compile_rules({"refusal": [{"name": "r", "patterns": [r"{total} of {prompt}, .* and {completion}"]}]})
    assert recognise(rules, 400, b"10 of 4, 3 and 3") == Refusal("r", prompt=7, completion=3, total=10)


def test_an_excess_over_a_bound_on_the_input_tells_the_prompt_and_over_a_window_does_not() -> None:
    row = {"name": "r", "patterns": ["{excess} over {limit}"]}
    assert recognise(compile_rules({"refusal": [row]}), 400, b"2 over 8") == Refusal("r", limit=8, excess=2)
    bound = recognise(compile_rules({"refusal": [{**row, "bounds": "input"}]}), 400, b"2 over 8")
    assert bound == Refusal("r", limit=8, excess=2, prompt=10, bounds="input")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("8192", 8192), ("128,000", 128_000), ("1_048_576", 1_048_576), ("16.384", 16_384), ("128k", None), ("1M", None)],
)
def test_numbers_are_read_as_people_write_them(written: str, meant: int | None) -> None:
    found = recognise(RULES, 400, error(f"This model's maximum context length is {written} tokens."))
    assert found == Refusal("context_length", limit=meant)


@pytest.mark.parametrize(
    "body",
    [
        b'{"detail": "Prompt is too long"}',
        b'[{"a": [{"b": {"c": ["x", "prompt is too long"]}}]}]',
        b'"prompt is too long"',
        b"prompt is too long",
        b"{'error': {'message': 'prompt is too long'}}",
        b'{"error": "{\\"error\\": {\\"message\\": \\"prompt\\\\nis too long\\"}}"}',
        "‘prompt’ is “too long”".encode(),
        b"\xff\xfe prompt is too long \x00",
        b'data: {"error": {"message": "prompt is too long"}}\n\n',
    ],
)
def test_any_envelope_is_read(body: bytes) -> None:
    assert recognise(RULES, 400, body) == Refusal("too_long")


@pytest.mark.parametrize("key", ["input", "messages", "prompt", "request", "body"])
def test_what_an_error_echoes_of_the_request_is_no_refusal(key: str) -> None:
    echoed = {key: [{"role": "user", "content": "prompt is too long: 9 tokens > 8 maximum"}]}
    assert recognise(RULES, 422, msgspec.json.encode({"detail": [{"msg": "Field required", **echoed}]})) is None
    assert recognise(RULES, 422, error(f"[{{'msg': 'Field required', {str(echoed)[1:]}]")) is None
    assert recognise(RULES, 422, msgspec.json.encode({"msg": "Field required", **echoed})[:-3]) is None


def test_only_the_beginning_of_a_huge_body_is_looked_at() -> None:
    refusal = b" prompt is too long"
    assert recognise(RULES, 400, b"x" * 100 + refusal + b" x" * 5_000_000) is not None
    assert recognise(RULES, 400, b"x " * LOOK + refusal) is None


def test_a_long_value_does_not_hide_the_message_behind_it() -> None:
    assert recognise(RULES, 400, msgspec.json.encode({"trace": "x " * 10_000, "message": "prompt too long"}))


def test_a_body_of_many_values_is_read_so_far_and_no_further() -> None:
    def body(values: int) -> bytes:
        return msgspec.json.encode({"trace": ["x" * 100] * values, "message": "prompt too long"})

    assert recognise(RULES, 400, body(10))
    assert recognise(RULES, 400, body(400)) is None


def test_an_escape_within_an_escape_is_the_character_that_it_stands_for() -> None:
    inner = r'{"message": "prompt is too long: 9 tokens \u003e 8 maximum"}'
    assert recognise(RULES, 400, error(inner)) == Refusal("prompt_over_maximum", limit=8, prompt=9)


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"a":' * 20 + b'"prompt is too long"' + b"}" * 20])
def test_deep_nesting_is_nobodys_refusal(body: bytes) -> None:
    assert recognise(RULES, 400, body) is None


@pytest.mark.parametrize(
    "word", ["input ", "prompt 1 ", "tokens ", "exceeds the ", "context length 1,", "{\\", "max ", "输入 ", "1 "]
)
def test_no_text_holds_up_the_event_loop(word: str) -> None:
    started = time.process_time()
    for _ in range(60):
        recognise(RULES, 400, (word * LOOK)[:LOOK].encode())
        recognise(RULES, 400, error((word * LOOK)[:LOOK]))
    assert time.process_time() - started < 30  # 0.6 s where it was written


def test_an_answer_with_content_is_no_refusal_whatever_its_finish_reason() -> None:
    def answer(content: str | None) -> bytes:
        message = {"role": "assistant", "content": content}
        choice = {"message": message, "finish_reason": "model_context_window_exceeded"}
        return msgspec.json.encode({"choices": [choice]})

    assert recognise(RULES, 200, answer(None)) == Refusal("context_finish")
    assert recognise(RULES, 200, answer("")) == Refusal("context_finish")
    assert recognise(RULES, 200, answer("half a")) is None


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "m", "code": 503}}, 503),
        ({"error": {"message": "m", "status_code": 422}}, 422),
        ({"error": {"message": "m", "code": "413"}}, 413),
        ({"error": {"message": "m", "code": "context_length"}}, 400),
        ({"error": "m"}, 400),
        ({"error": "m", "status": 500}, 500),
        ({"object": "error", "message": "m", "code": 451}, 451),
        ({"type": "error", "message": "m"}, 400),
        ({"message": "m"}, 400),
        ({"message": {"content": ""}, "note": "m"}, 200),
    ],
)
def test_an_event_has_the_status_that_it_names(event: dict[str, object], status: int) -> None:
    def rules(statuses: list[int]) -> Rules:
        return compile_rules({"refusal": [{"name": "r", "patterns": [r"\bm\b"], "status": statuses}]})

    data = msgspec.json.encode(event)
    assert recognise_event(rules([status]), data) == Refusal("r")
    assert recognise_event(rules([200]), data, finish=True) == Refusal("r")  # the API says that it is no error
    assert recognise_event(rules([s for s in (200, 400, 413, 422, 451, 500, 503) if s != status]), data) is None


def test_the_data_of_an_event_need_not_be_json() -> None:
    assert recognise_event(RULES, b"prompt is too long") == Refusal("too_long")
    assert recognise_event(RULES, b"[DONE]") is None
