"""What usage teaches of counts: steady for one tenant, and hardly moved by one caller for others."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.calibration import (
    LEAST_OFFSET,
    MARGIN_SAMPLES,
    MARGINS,
    MAX_DEVIATION,
    MAX_SAMPLES,
    MAX_VOTES,
    MIN_SAMPLES,
    MOST_OFFSET,
    Calibration,
    Consensus,
    Line,
    Pair,
    Vote,
    Votes,
    corrections,
    pack,
    pack_votes,
    unpack,
    unpack_votes,
)
from proxy.model.conversation import Prompt
from proxy.model.limits import CLOSE_REACH, Correction, Corrections, LearnedLimits, Margin, Shape
from proxy.tokens.families import Families, parse_family
from proxy.tokens.meter import meter_for
from tests.tokens.remembering import Remembering

FAMILY = Correction(1.0, 0.25)
LONG = 10_000
pairs = st.tuples(st.integers(100, 200_000), st.integers(64, 600_000))


def taught(given: Iterable[Pair], start: Correction | None = FAMILY) -> Line:
    """What these answers taught, one after the other."""
    found = Line()
    for pair in given:
        found = found.with_sample(pair, start)
    return found


def of_ratios(*ratios: float) -> Line:
    """What answers to prompts of 10,000 tokens taught."""
    return taught((LONG, round(LONG * ratio)) for ratio in ratios)


def told(line: Line, size: int = LONG, family: float = 1.0) -> float:
    """The tokens that a prompt of a size is counted as."""
    assert line.correction is not None
    found = line.correction.at(size)
    return found.offset + (found.ratio or family) * size


def caller(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_nothing_is_known_before_the_first_answer() -> None:
    assert Line().correction is None and corrections(Calibration(), Consensus(), FAMILY) is None


def test_the_first_answer_of_a_long_prompt_corrects_and_the_familys_margin_holds_until_the_third() -> None:
    assert told(of_ratios(1.104)) == pytest.approx(11_040, rel=0.01) and of_ratios(1.104).share is None
    assert of_ratios(*[1.1] * (MARGIN_SAMPLES - 1)).share is None
    assert of_ratios(*[1.1] * MARGIN_SAMPLES).share == 0.02


def test_S2_a_line_is_sure_after_several_answers() -> None:
    for count in (1, MIN_SAMPLES - 1, MIN_SAMPLES):
        found = of_ratios(*[1.1] * count).correction
        assert found is not None and found.sure is (count >= MIN_SAMPLES)


def test_one_odd_answer_moves_no_line() -> None:
    assert told(of_ratios(*[1.1] * 5, 2.9)) == pytest.approx(11_000, rel=0.02)
    assert told(of_ratios(*[1.1] * 13, *[0.7] * 8)) == pytest.approx(11_000, rel=0.03)
    assert told(taught([(n, n + 230) for n in range(1_000, 2_000, 50)] + [(1_500, 4_400)]), 1_500) == pytest.approx(
        1_730, rel=0.03
    )


def test_a_model_that_changed_is_found_again() -> None:
    assert told(of_ratios(*[1.1] * 100, *[1.5] * MAX_SAMPLES)) == pytest.approx(15_000, rel=0.01)


def test_a_line_stays_while_the_truth_is_near_it() -> None:
    found = of_ratios(*[1.1] * 30)
    for wobble in (1.13, 1.07, 1.11, 1.125, 1.075):
        before = found
        for _ in range(MAX_SAMPLES):
            found = found.with_sample((LONG, round(LONG * wobble)), FAMILY)
        assert (found.offset, found.ratio) == (before.offset, before.ratio)


def test_W3_short_prompts_beside_long_ones_tell_an_offset_from_a_ratio() -> None:
    rng = random.Random(7)
    for offset, ratio in ((0, 1.2), (300, 1.0), (-300, 1.1), (230, 1.15)):
        sizes = [rng.randint(*bounds) for _ in range(12) for bounds in ((500, 2_000), (10_000, 40_000))]
        given = [(n, round(offset + ratio * n * rng.gauss(1, 0.01))) for n in sizes]
        found = taught(given)
        assert found.offset == pytest.approx(offset, abs=60)
        assert found.ratio == pytest.approx(ratio, abs=0.025)


CONSTANTS = (-400, -230, -100, 100, 230, 300)
FAMILIES = (1.02, 1.05, 1.12, 1.2, 1.45)  # of five families


MOST_HIDDEN = 0.08  # of a prompt up to three times those that taught; it costs one refusal (`hostile/test_margins.py`)


def of_small_prompts(constant: int, ratio: float, seed: int, answers: int = 12, noise: float = 0.02) -> list[Pair]:
    """Answers to prompts of 1k to 2k tokens with a hidden constant."""
    rng = random.Random(seed)
    sizes = [rng.randint(1_000, 2_000) for _ in range(answers)]
    return [(n, round(constant + ratio * n * rng.gauss(1, noise))) for n in sizes]


@pytest.mark.parametrize("constant", CONSTANTS)
def test_W3_a_hidden_constant_is_learned_as_one_where_counts_are_exact(constant: int) -> None:
    for seed in range(10):
        found = taught(of_small_prompts(constant, 1.0, seed, noise=0.0), None)
        assert (found.offset, found.ratio, found.share) == (constant, None, 0.0)
        assert told(found, 90_000) == 90_000 + constant


def product_margin(found: Correction, family: float, margin: Margin) -> Margin:
    """The margin that a model of a family with a ratio and a margin has with a correction."""
    row = {
        **{"name": "mine", "models": ["*"], "ratio": family, "images": {"formula": "crops"}},
        "overhead": {"prompt": 4, "message": 4, "tools": 0, "tool_json": 1},
        "margin": {"base": margin.base, "share": margin.share},
    }
    learned = LearnedLimits(correction=Corrections(found))
    families = Families((parse_family(row),))
    return meter_for(Prompt("mine", (), {}), "mine", Remembering(), learned, families=families).margin


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("margin", [Margin(40, 0.07), Margin(120, 0.12), Margin(320, 0.25)])
def test_W3_after_a_hidden_constant_in_short_prompts_a_long_one_is_within_its_margin(
    margin: Margin, constant: int, family: float
) -> None:
    start = Correction(family, margin.share)
    for seed in range(10):
        line = taught(of_small_prompts(constant, family, seed), start)
        correction = line.correction
        assert correction is not None
        for size in (1_500, 2_500, 3_500, 5_000, 7_500, 90_000):
            found = correction.at(size)
            counted, truth = round(found.offset + (found.ratio or family) * size), constant + family * size
            missing = truth - counted - product_margin(found, family, margin).of(counted)
            if size <= 1_500 or size > CLOSE_REACH * 2_000:
                assert missing <= 0, (size, found)
            else:  # errors that were seen decide (R7): what a constant that is counted too high hides stays hidden
                assert missing <= (0 if constant > 0 else MOST_HIDDEN * truth), (size, found)
            assert abs(counted - truth) <= margin.share * truth + 100, (size, found)
        assert abs(told(line, 90_000, family) / (constant + family * 90_000) - 1) < 0.01


@pytest.mark.parametrize("factor", [0.85, 1.1, 1.15])
def test_W15_short_prompts_are_counted_right_after_forty_answers(factor: float) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        sizes = [rng.randint(380, 420) for _ in range(40)]
        found = taught((n, round(factor * n * rng.gauss(1, 0.01))) for n in sizes)
        assert told(found, 400) == pytest.approx(factor * 400, rel=0.04)


def median_ratio(given: list[Pair]) -> float:
    """What took the place of a line before: the median of the latest ratios."""
    return median([used / n for n, used in given[-MAX_SAMPLES:]])


@pytest.mark.parametrize(("offset", "ratio"), [(0, 1.15), (0, 0.9), (0, 1.03), (230, 1.0), (-300, 1.1), (150, 1.2)])
def test_W3_conversations_that_grow_are_counted_as_well_as_by_a_ratio_alone(offset: int, ratio: float) -> None:
    """From 1.5k to 60k tokens in forty turns: the error of the next prompt's count, the median of all turns."""
    for seed in range(6):
        rng, line, size = random.Random(seed), Line(), 1_500
        given: list[Pair] = []
        errors, before = [], []
        for _ in range(40):
            truth = offset + ratio * size * rng.gauss(1, 0.01)
            if given:
                errors.append(abs(told(line, size) / truth - 1))
                before.append(abs(median_ratio(given) * size / truth - 1))
            given.append((size, round(truth)))
            line = line.with_sample(given[-1], FAMILY)
            size = round(size * rng.uniform(1.02, 1.18))
        assert median(errors) <= median(before) + 0.02 and median(errors[20:]) < 0.04


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 0.02), (0.005, 0.02), (0.02, 0.05), (0.05, 0.10), (0.1, 0.15), (0.5, 0.25)]
)
def test_R7_the_margin_follows_from_the_errors_that_were_seen(error: float, share: float) -> None:
    assert of_ratios(*[1.0, 1.0, 1.0 + error, 1.0] * 3).share == share


def test_the_margin_rises_at_once_and_falls_where_it_is_far_too_large() -> None:
    found = of_ratios(*[1.0] * MIN_SAMPLES)
    assert found.share == 0.02
    found = found.with_sample((LONG, 10_500), FAMILY)
    assert found.share == 0.10
    for _ in range(2 * MAX_SAMPLES):
        found = found.with_sample((LONG, LONG), FAMILY)
    assert found.share == 0.02


def test_the_familys_line_stays_where_it_is_good_enough() -> None:
    family, found = Correction(1.07, 0.10), Line()
    for ratio in (1.06, 1.08, 1.075, 1.05, 1.09, 1.07) * 10:
        found = found.with_sample((LONG, round(ratio * LONG)), family)
        assert (found.offset, found.ratio) == (0, 1.07)


def test_one_of_many_answers_that_is_far_above_is_left_out() -> None:
    assert of_ratios(*[1.0] * 20, 1.3).share == 0.02
    assert of_ratios(*[1.0] * 20, 1.3, 1.3).share == 0.25


def test_where_counts_are_exact_a_few_tokens_are_noise() -> None:
    found = taught([(n, n + n % 24) for n in range(1_000, 9_000, 250)], None)
    assert found.correction == Correction(None, 0.0, 0, True)


def test_where_counts_are_exact_an_alias_of_another_model_has_a_wide_margin_and_no_ratio() -> None:
    found = taught([(n, round(1.18 * n)) for n in range(1_000, 9_000, 400)], None)
    assert found.ratio is None and found.share == 0.25 and LEAST_OFFSET <= found.offset <= MOST_OFFSET


@given(st.lists(pairs, min_size=1, max_size=60), st.sampled_from([None, FAMILY, Correction(1.2, 0.25)]))
def test_figures_stay_within_their_bounds(seen: list[Pair], start: Correction | None) -> None:
    found = taught(seen, start)
    assert LEAST_OFFSET <= found.offset <= MOST_OFFSET and (found.ratio is None or 0.05 < found.ratio < 20)
    assert found.share is None or found.share in MARGINS
    assert len(found.latest) <= MAX_SAMPLES and found.count == len(seen)


def test_of_two_replicas_lines_that_of_more_answers_holds() -> None:
    few, many = of_ratios(1.5), of_ratios(1.1, 1.1)
    assert few.merged(many) is many and many.merged(few) is many and many.merged(many) is many
    one, two = Calibration(few, many), Calibration(many, few)
    assert one.merged(two) == Calibration(many, many) == two.merged(one) and one.merged(one) is one


def test_prompts_with_tools_have_a_line_of_their_own() -> None:
    found = Calibration().with_sample(Shape.TOOLS, (LONG, 11_000), FAMILY)
    assert found.text == Line() and found.tools.count == 1
    learned = corrections(found, None, FAMILY)
    assert learned is not None and learned.text is None and learned.of(Shape.TOOLS) == found.tools.correction


@given(st.lists(pairs, max_size=60), st.lists(pairs, max_size=3))
def test_a_calibration_survives_its_bytes(text: list[Pair], tools: list[Pair]) -> None:
    found = Calibration(taught(text), taught(tools, None))
    assert unpack(pack(found)) == found and len(pack(found)) <= 500


FIGURES = [[[5, 5]], 1, 0, 1.0, 0.1]


@pytest.mark.parametrize(
    "foreign",
    [
        *(b"", b"\xc1", [], 5, [FIGURES]),
        *([[[[5, 5]] * 25, *FIGURES[1:]], FIGURES], [[[[-5, 5]], *FIGURES[1:]], FIGURES]),
        *([[[], -1, 0, 1.0, None], FIGURES], [[[], 1, 0, 1.0, 7.0], FIGURES], [[[], 1, 0, 0.0, None], FIGURES]),
        *([[[], 1, -401, 1.0, None], FIGURES], [[[], 1, 1_901, 1.0, None], FIGURES]),
        *([[[], 1, 0, float("nan"), None], FIGURES], [[[], 1, 0, float("inf"), None], FIGURES]),
    ],
)
def test_what_is_no_record_is_a_miss(foreign: object) -> None:
    payload = foreign if isinstance(foreign, bytes) else msgspec.msgpack.encode(foreign)
    assert unpack(payload) is None and unpack_votes(payload) is None


@pytest.mark.parametrize("vote", [[-401, 1.0, 5, 6], [0, 50.0, 5, 6], [0, 1.0, -5, 6], [0, 1.0, 5, -6], [0, 1.0, 5]])
def test_what_is_no_vote_is_a_miss(vote: list[float]) -> None:
    assert unpack_votes(msgspec.msgpack.encode([{caller(1): vote}, {}])) is None


# What callers agree on.


def agreed(*ratios: float, answers: int = MIN_SAMPLES) -> Consensus:
    """What so many callers agree on, each of whom was taught one ratio."""
    found = Consensus()
    for number, ratio in enumerate(ratios):
        found = found.with_vote(caller(number), Shape.TEXT, of_ratios(*[ratio] * answers))
    return found


def ratio_of(found: Consensus, family: float = 1.0) -> float | None:
    """The ratio for a newcomer's prompts of 10,000 tokens."""
    learned = found.correction(Shape.TEXT, Correction(family, 0.25))
    return None if learned is None else (learned.offset + (learned.ratio or family) * LONG) / LONG


@pytest.mark.parametrize("count", range(1, 6))
def test_R7_a_few_callers_change_nothing_for_others(count: int) -> None:
    assert ratio_of(agreed(*[1.5] * count)) is None


def test_S2_a_vote_needs_several_answers() -> None:
    assert agreed(*[1.5] * 40, answers=MIN_SAMPLES - 1) == Consensus()


def test_many_callers_are_believed() -> None:
    assert ratio_of(agreed(*[1.1] * 10)) == pytest.approx(1.1, abs=0.01)
    assert ratio_of(agreed(*[1.1] * 7, *[1.3] * 5)) == pytest.approx(1.1, abs=0.01)
    assert ratio_of(agreed(1.0, 0.9, 0.92, 0.9, 1.1, 2.9)) == pytest.approx(1.0, abs=0.01)


def test_W3_callers_agree_on_an_offset_and_for_prompts_like_theirs() -> None:
    found = Consensus()
    for number in range(10):
        found = found.with_vote(caller(number), Shape.TEXT, taught(of_small_prompts(230, 1.0, number, 30, 0.0), None))
    learned = found.correction(Shape.TEXT, None)
    assert learned is not None and (learned.offset, learned.ratio, learned.share) == (230, None, None)
    assert 1_800 <= learned.taught <= 2_000
    assert found.correction(Shape.TOOLS, None) is None


def test_no_agreement_is_far_from_the_familys_row() -> None:
    for ratio, bound in ((2.9, 1 + MAX_DEVIATION), (0.35, 1 - MAX_DEVIATION)):
        found = agreed(*[ratio] * 20).correction(Shape.TEXT, FAMILY)
        assert found is not None and found.ratio == pytest.approx(bound)


@given(honest=st.lists(st.floats(1.0, 1.2), min_size=9, max_size=12), liar=st.floats(0.4, 2.9))
def test_R7_one_caller_moves_others_no_further_than_the_next_callers_vote(honest: list[float], liar: float) -> None:
    lied = agreed(*honest).with_vote(caller(999), Shape.TEXT, of_ratios(*[liar] * 40))
    with_liar = lied.correction(Shape.TEXT, FAMILY)
    assert with_liar is not None and with_liar.ratio is not None and 0.98 <= with_liar.ratio <= 1.22


def test_a_caller_has_one_vote_however_often_it_is_answered() -> None:
    found, known = Consensus(), Line()
    for _ in range(100):
        known = known.with_sample((LONG, 15_000), FAMILY)
        found = found.with_vote(caller(1), Shape.TEXT, known)
    assert len(found.text) == 1 and found.with_vote(caller(1), Shape.TEXT, known) is found
    assert found.with_vote(caller(2), Shape.TEXT, Line()) is found
    for _ in range(MAX_SAMPLES):
        known = known.with_sample((LONG, 11_000), FAMILY)
    assert known.ratio is not None and found.with_vote(caller(1), Shape.TEXT, known).text == {
        caller(1): Vote(known.offset, known.ratio, LONG, 124)
    }


def test_where_there_are_too_many_the_votes_of_the_fewest_answers_go() -> None:
    found = Consensus({caller(n): Vote(0, 1.1, LONG, 100) for n in range(MAX_VOTES)})
    assert found.with_vote(caller(999), Shape.TEXT, of_ratios(*[1.3] * 10)) is found
    after = found.with_vote(caller(999), Shape.TEXT, of_ratios(*[1.3] * 101))
    assert caller(999) in after.text and len(after.text) == MAX_VOTES


a_vote = st.builds(Vote, st.integers(-400, 1_900), st.floats(0.1, 10), st.integers(0, 9), st.integers(1, 9))
votes = st.dictionaries(st.integers(0, 80).map(caller), a_vote, max_size=MAX_VOTES)


@given(votes, votes)
def test_replicas_come_to_the_same_votes_of_each_caller(ours: Votes, theirs: Votes) -> None:
    one, two = Consensus(ours).merged(Consensus(theirs)), Consensus(theirs).merged(Consensus(ours))
    assert {key: vote.count for key, vote in one.text.items()} == {key: vote.count for key, vote in two.text.items()}
    assert len(one.text) <= MAX_VOTES and one.merged(one) is one


@given(votes, votes)
def test_an_agreement_survives_its_bytes(text: Votes, tools: Votes) -> None:
    found = Consensus(text, tools)
    assert unpack_votes(pack_votes(found)) == found and len(pack_votes(found)) <= 4_096
