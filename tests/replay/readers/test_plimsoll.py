"""The proxy's own recordings."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.outcome import Extra, Usage
from tests.replay.readers.reading import body, request, skipped, survives

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
LINE: dict[str, Any] = {
    "v": 1,
    "time": 1_763_000_010.5,
    "api": "chat",
    "path": "/v1/chat/completions",
    "caller": "0123456789abcdef",
    "model": "gpt-4o",
    "result": "fitted",
    "status": 200,
    "window": 128_000,
    "prompt": 9_000,
    "prompt_sent": 5_000,
    "reserve": 107_480,
    "steps": [{"step": "prune_history", "tokens_before": 9_000, "tokens_after": 5_000}],
    "controls": {"window": 6_000, "ladder": "chat", "pins": [1, 2]},
    "usage": {"prompt": 5_001, "completion": 20, "cached": 1_024},
    "ms": {"own": 100.0, "upstream": 400.0, "first_byte": 200.0},
}


def test_a_line_with_a_body_is_a_request_from_when_it_began() -> None:
    found = request("plimsoll", {**LINE, "content": "bodies", "request": BODY})
    assert body(found) == BODY and found.at == 1_763_000_010.0 and not found.redacted
    assert (found.caller, found.path, found.status) == ("0123456789abcdef", "/v1/chat/completions", 200)
    assert found.usage == Usage(5_001, 20, 1_024)
    assert dict(found.headers) == {
        b"x-plimsoll-ladder": b"chat",
        b"x-plimsoll-window": b"6000",
        b"x-plimsoll-pin": b"1,2",
    }


def test_what_is_billed_otherwise_is_read_with_where_it_was_sent() -> None:
    reported = {"prompt": 50, "completion": 9, "reasoning": 4, "tier": "flex", "model": "gpt-4o-2024-08-06"}
    extra = {"written_hour": 7, "audio": 3, "searches": 2, "cost": 0.25}
    line = {**LINE, "usage": {**reported, "extra": extra}, "upstream": "groq", "caller_keys": ["key:12ab:0f"]}
    found = request("plimsoll", {**line, "caller_name": "search", "model_sent": "gpt-4o-mini"})
    assert found.usage == Usage(
        50, 9, reasoning=4, tier="flex", model="gpt-4o-2024-08-06", extra=Extra(7, 3, 0, 2, 0.25)
    )
    assert (found.upstream, found.keys, found.name) == ("groq", ("key:12ab:0f",), "search")
    assert (found.model_sent, request("plimsoll", LINE).upstream) == ("gpt-4o-mini", "")
    assert request("plimsoll", {**LINE, "usage": {"prompt": 5, "tier": "free"}}).usage == Usage(5)


def test_a_line_without_a_body_has_figures_only() -> None:
    found = request("plimsoll", LINE)
    assert found.body == b"" and found.model == "gpt-4o" and found.figures is not None
    assert (found.figures.prompt, found.figures.prompt_sent, found.figures.load) == (9_000, 5_000, 0.91)
    assert found.figures.steps == (("prune_history", 9_000, 5_000),)


@pytest.mark.parametrize(
    ("recorded", "load"),
    [
        ({"window": 10_000, "reserve": 3_000}, 1.0),
        ({"window": 8_000, "reserve": 3_000}, 1.1875),
        ({"window": 10_000, "reserve": 500, "max_tokens": 2_000}, 1.1),
        ({"window": 10_000, "reserve": 0, "max_tokens": 2_000}, 0.9),
        ({"window": 0}, None),
    ],
)
def test_the_load_is_that_of_what_the_client_sent(recorded: dict[str, int], load: float | None) -> None:
    found = request("plimsoll", {**LINE, **recorded})
    assert found.figures is not None and found.figures.load == load


def test_a_prompt_that_was_sent_as_it_came_is_written_once() -> None:
    found = request("plimsoll", {key: said for key, said in LINE.items() if key != "prompt_sent"})
    assert found.figures is not None and found.figures.prompt_sent == 9_000


def test_a_line_names_the_model_where_its_body_does_not() -> None:
    bare = {"messages": BODY["messages"]}
    azure = {**LINE, "path": "/openai/deployments/x/chat/completions"}
    assert request("plimsoll", {**LINE, "request": BODY}).model == ""
    assert request("plimsoll", {**LINE, "request": bare}).model == "gpt-4o"
    assert request("plimsoll", {**azure, "request": BODY}).model == "gpt-4o"


def test_redacted_words_are_told() -> None:
    assert request("plimsoll", {**LINE, "content": "redacted", "request": BODY}).redacted


def test_a_body_that_is_no_json_is_a_text() -> None:
    assert request("plimsoll", {**LINE, "request_text": "{oops"}).body == b"{oops"


def test_paths_that_are_not_fitted_and_other_versions_are_no_requests() -> None:
    assert skipped("plimsoll", {**LINE, "api": "passthrough"}) == ["a request of a path that is not fitted"]
    assert skipped("plimsoll", {**LINE, "v": 2}) == ["a recording of another version of Plimsoll"]


def test_wrong_types_are_survived() -> None:
    survives("plimsoll", {**LINE, "request": BODY})
