"""What an answer teaches: corrections of counts, limits that it disproves, prompts that were cut silently."""

from __future__ import annotations

import pytest

from proxy.cache.calibration import MAX_SAMPLES
from proxy.model.limits import Correction, LearnedLimits, Proof, Shape
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.services import Services
from proxy.upstreams.internal_client import tenant_of
from tests.e2e.services import body, talk
from tests.request.planned import TENANT, Arrived, arrived, count, prepared, services


def counted(turns: int, model: str = "gpt-4") -> tuple[Services, Arrived, int]:
    """A request that was planned and sent, and the count of its prompt as it was sent."""
    made = services()
    context = arrived(body(talk(turns), model))
    prepared(made.gateway.default.planner, context)
    if context.proven:
        count(made.gateway.default.planner, context)
    context.record.attempts = 1  # what was never sent has no count of what was
    sent = context.outcome().prompt_sent
    assert sent is not None
    return made, context, sent


def learn(made: Services, context: Arrived, outcome: Outcome) -> None:
    """Learns from the answer to a request."""
    figures = context.figures or context.figures_now()
    made.gateway.default.learning.learn(context.received, context.answered, figures, outcome)


def test_a_prompt_that_was_cut_silently_corrects_no_counts() -> None:
    made, context, sent = counted(100, "claude-3-opus")
    outcome = replace(context.outcome(), usage=Usage(int(0.9 * sent)), status=200, truncated=True)
    learn(made, context, outcome)
    assert made.cache.correction(outcome.model_sent, TENANT, START, False) is None


def test_under_load_a_line_that_is_full_takes_one_answer_of_many() -> None:
    made, context, sent = counted(100, "claude-3-opus")
    outcome = replace(context.outcome(), usage=Usage(int(0.9 * sent)), status=200)
    context.figures = replace(context.figures_now(), tenant=TENANT)
    for _ in range(10 * MAX_SAMPLES):
        learn(made, context, outcome)
    shown = [found for found in made.cache.calibrations(outcome.model_sent) if found.shape is Shape.TEXT]
    assert len(shown) == 1 and MAX_SAMPLES <= shown[0].answers < 5 * MAX_SAMPLES


@pytest.mark.parametrize("mode", [Mode.FIT, Mode.OBSERVE])
def test_an_answer_to_more_than_was_learned_takes_the_lesson_back(mode: Mode) -> None:
    made = services()
    made.cache.record_proof("gpt-4", TENANT, LearnedLimits(window=4_096), Proof(0, 0))
    context = arrived(body(talk(100)), mode)
    prepared(made.gateway.default.planner, context)
    for usage, status, left in ((4_096, 200, 4_096), (4_097, 400, 4_096), (4_097, 200, None)):
        learn(made, context, replace(context.outcome(), usage=Usage(usage), status=status))
        assert made.cache.learned_limits("gpt-4", TENANT).window == left


# Counts.

START = Correction(1.18, 0.15)  # of the family of claude-3-opus


def told(made: Services, context: Arrived, usage: int, status: int = 200) -> float | None:
    """The ratio that an answer's usage taught of the model that it came from."""
    outcome = replace(context.outcome(), usage=Usage(usage), status=status)
    learn(made, context, outcome)
    found = made.cache.correction(outcome.model_sent, tenant_of(()), START, False)
    if found is None or found.text is None or found.text.ratio is None:
        return None
    unit = (context.figures or context.figures_now()).unit
    assert unit is not None and outcome.prompt_sent is not None
    encoded = unit.encoded(outcome.prompt_sent)
    return (found.text.offset + found.text.ratio * encoded) / encoded


@pytest.mark.parametrize("turns", [100, 8_000])
def test_usage_corrects_the_counts_of_what_was_sent(turns: int) -> None:
    made, context, sent = counted(turns, "claude-3-opus")
    assert told(made, context, int(sent * 1.1)) == pytest.approx(1.18 * 1.1, rel=0.01)


@pytest.mark.parametrize("status", [200, 400])
def test_a_short_prompt_and_a_failed_answer_teach_nothing(status: int) -> None:
    made = services()
    context = arrived(body(talk(2 if status == 200 else 100), "claude-3-opus"))
    prepared(made.gateway.default.planner, context)
    count(made.gateway.default.planner, context)
    assert told(made, context, 50, status) is None
