"""A finished request as the page shows it."""

from __future__ import annotations

import msgspec
import pytest

from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.entries import entry, matching, phases_ms
from proxy.observe.recent import Recent, Shown

NOTES = (
    Note("prune_history", 900, 400),
    Note("clamp_output", 400, 400, 4096, 100),
    Note("switch_model", 400, 420, model_before="gpt-4", model_after="gpt-4o"),
)
OUTCOME = Outcome(
    "chat",
    "fitted",
    200,
    "fit",
    "default",
    "gpt-4\n\x1b[31m",
    "gpt-4o",
    8192,
    "litellm",
    "exact",
    900,
    420,
    load_before=1.23456,
    notes=NOTES,
    usage=Usage(400, 7, 3, written=2),
    own_seconds=0.0015,
    first_byte_seconds=0.25,
    phases=(("plan", 0.001),),
)


def shown(outcome: Outcome, kept: Shown | None = None) -> dict[str, object]:
    recent = Recent(lambda: 1000.25)
    recent.add(outcome, kept)
    return entry(recent, next(recent.since()))


def test_a_request_has_its_figures_with_units() -> None:
    found = shown(OUTCOME, Shown(b"x"))
    assert found["id"] == "0-f433a-1" and found["at"] == 1000.25
    assert (found["cut"], found["load_before"], found["own_ms"], found["first_byte_ms"]) == (480, 1.2346, 1.5, 250.0)
    assert found["usage"] == {"prompt": 400, "completion": 7, "cached": 3, "written": 2}
    assert found["count_error"] == 0.05
    assert (found["has_rows"], found["has_texts"]) == (True, False)
    assert found["steps"] == [
        {"step": "prune_history", "tokens_before": 900, "tokens_after": 400},
        {
            "step": "clamp_output",
            "tokens_before": 400,
            "tokens_after": 400,
            "max_tokens_before": 4096,
            "max_tokens_after": 100,
        },
        {
            "step": "switch_model",
            "tokens_before": 400,
            "tokens_after": 420,
            "model_before": "gpt-4",
            "model_after": "gpt-4o",
        },
    ]
    assert phases_ms(OUTCOME) == {"plan": 1.0}
    assert msgspec.json.encode(found)


def test_what_a_client_named_is_printable() -> None:
    assert shown(OUTCOME)["model"] == "gpt-4??[31m"


def test_what_is_not_known_is_null() -> None:
    found = shown(Outcome("passthrough", "passed", 200))
    assert [found[name] for name in ("prompt", "usage", "count_error", "load_before", "first_byte_ms")] == [None] * 5


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({}, True),
        ({"result": "healed, fitted"}, True),
        ({"result": "passed"}, False),
        ({"endpoint": "chat,messages"}, True),
        ({"endpoint": "messages"}, False),
        ({"model": "4O"}, True),
        ({"model": "claude"}, False),
        ({"cut": "1"}, True),
        ({"min_load": "1.2"}, True),
        ({"min_load": "1.3"}, False),
    ],
)
def test_requests_are_filtered(asked: dict[str, str], passes: bool) -> None:
    assert matching(asked)(OUTCOME) is passes


def test_a_filter_that_is_wrong_is_named() -> None:
    assert not matching({"cut": "1"})(Outcome("chat", "passed", 200))
    with pytest.raises(ValueError, match="could not convert"):
        matching({"min_load": "much"})
