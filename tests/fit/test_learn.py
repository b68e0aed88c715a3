"""What a refusal teaches of its own request, and what it proves for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.learn import (
    AGAIN_REFUSED_SHRINK,
    LEAST_SUPPOSED,
    PLAUSIBLE,
    UNKNOWN_REFUSAL_SHRINK,
    apply_learned,
    learn,
    proven,
    suspicion,
)
from proxy.fit.plan import plan
from proxy.model.conversation import Block
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Margin, Quality, Suspicion, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Drop, Facts
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, draft, facts, ladder, prompt, user, words

LONG = [user(words(50)) for _ in range(4)]


def sent(window: int = 1000, guessed: bool = False, max_tokens: int = 100) -> tuple[Facts, Draft]:
    known = replace(facts(window), window=Window(window, guessed=guessed))
    return known, plan(prompt(LONG, max_tokens=max_tokens), ladder(), known).draft


def test_a_refusal_teaches_the_window_it_names() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=219))
    assert taught is not None and taught.window.tokens == 300 and taught.learned == LearnedLimits(window=300)
    assert taught.window.source == "refusal"


def test_a_refusal_teaches_the_bound_on_the_prompt_alone() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=200, bounds="input"))
    assert taught is not None and (taught.window.tokens, taught.window.max_input) == (1000, 200)


def test_a_bound_that_the_request_was_under_by_our_count_shrinks_what_is_sent() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=900, bounds="input"))
    assert taught is not None and taught.window.excess(what.prompt, 100, Margin(0)) > 0
    assert taught.learned.supposed and taught.learned.max_input == taught.learned.window == taught.window.tokens


def test_a_refusal_that_counts_more_than_we_did_scales_our_counts() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, prompt=438))
    assert taught is not None and taught.learned.scale == 2.0
    assert taught.meter.costs(prompt(LONG).messages)[:1] == (108,)


def test_the_prompt_is_worked_out_from_a_total() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, total=538, completion=100))
    assert taught is not None and taught.learned.scale == 2.0


def test_a_completion_that_the_refusal_names_goes_before_what_was_sent() -> None:
    known, what = sent()
    for said, prompt_tokens in ((Refusal("r", total=438, completion=0), 438), (Refusal("r", total=538), 438)):
        taught = learn(known, what, said)
        assert taught is not None and taught.learned.scale == prompt_tokens / 219
    unlimited = replace(what, reply=None)
    taught = learn(known, unlimited, Refusal("r", total=438, completion=0))
    assert taught is not None and taught.learned.scale == 2.0


def test_a_count_that_cannot_be_true_scales_nothing() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=219 * 9))
    assert taught is not None and taught.learned == LearnedLimits(window=300)


def test_a_count_cut_short_teaches_more_than_it_says() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=1000, prompt=438, at_least=True))
    assert taught is not None and taught.learned.scale > 2.0


def test_an_excess_alone_gives_the_window() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", excess=19))
    assert taught is not None and taught.window.tokens == 300


def test_a_guessed_window_is_8192_where_the_refusal_names_none() -> None:
    known, what = sent(window=8192, guessed=True, max_tokens=9000)
    taught = learn(known, what, Refusal("r"))
    assert taught is not None and taught.window.tokens == 8192 and not taught.window.guessed


def test_an_unknown_window_is_no_less_than_what_was_answered_before() -> None:
    known = replace(facts(8_192), window=Window(8_192, guessed=True))
    what = replace(draft([user("?"), assistant(words(20_000)), user("?")], 8_192, max_tokens=100), window=known.window)

    def window(answered: int, gently: bool = False) -> int:
        taught = learn(replace(known, answered=answered), what, Refusal("silent"), gently)
        assert taught is not None
        return taught.window.tokens

    assert window(0) == window(5_000) == 8_192 and window(15_000) == 15_000
    assert window(30_000) == 8_192  # it was answered as much: that is no bound
    assert window(0, gently=True) == int(0.7 * (what.prompt + 100)) and window(18_000, gently=True) == 18_000


def test_what_must_get_through_is_as_short_as_any_window_once_a_second_try_was_refused() -> None:
    window = Window(70_000, source="supposed")
    known = replace(facts(70_000), window=window)
    told = [user("?"), assistant(words(60_000)), user("?")]
    what = replace(draft(told, 70_000, max_tokens=100), window=window)
    first, second = (learn(known, what, Refusal("silent"), gently) for gently in (False, True))
    assert first is not None and second is not None
    assert first.window.tokens == (what.prompt + 100) // 2 and second.window.tokens == 8_192


def test_a_window_that_was_guessed_by_its_name_is_that_guess_where_the_refusal_names_none() -> None:
    told = [user(words(4000)), assistant(words(40_000)), user("?")]
    guess = Facts(Window(40_960, source="guess", guessed=True), WordMeter())
    taught = learn(guess, plan(prompt(told), ladder(), guess).draft, Refusal("r"))
    assert taught is not None and taught.window.tokens == 40_960 and taught.learned.supposed


def test_a_guessed_window_is_a_share_of_what_was_sent_where_8192_cannot_hold_what_must_stay() -> None:
    told = [user(words(9000)), assistant(words(20_000)), user("?")]
    guess = Facts(Window(8192, guessed=True), WordMeter())
    what = plan(prompt(told), ladder(), guess).draft
    taught = learn(guess, what, Refusal("r"))
    assert taught is not None
    assert taught.window.tokens == int(UNKNOWN_REFUSAL_SHRINK * (what.prompt + what.least_reply))
    assert taught.learned.supposed


def test_a_refusal_without_figures_teaches_less_than_was_sent() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r"))
    assert taught is not None and taught.window.tokens == int(UNKNOWN_REFUSAL_SHRINK * 319)
    assert taught.learned.supposed and taught.window.source == "supposed"


def test_a_figure_that_follows_is_no_supposition_any_more() -> None:
    known, what = sent()
    once = learn(known, what, Refusal("r"))
    assert once is not None
    twice = learn(once, replace(what, window=once.window), Refusal("r", limit=150))
    assert twice is not None and twice.learned == LearnedLimits(window=150)


def test_a_bound_in_bytes_is_none_in_tokens() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=300, prompt=900, bounds="body"))
    assert taught is not None and taught.learned == LearnedLimits(
        window=int(UNKNOWN_REFUSAL_SHRINK * 319), supposed=True, refused=319
    )


def test_a_guess_is_no_bound_on_the_prompt_alone() -> None:
    known, what = sent(window=8192, guessed=True, max_tokens=9000)
    taught = learn(known, what, Refusal("r", bounds="input"))
    assert taught is not None and taught.learned == LearnedLimits(window=8192, supposed=True, refused=9219)


def test_a_refusal_of_what_cannot_be_smaller_teaches_nothing() -> None:
    known, what = sent(window=1, max_tokens=1)
    known = replace(known, learned=LearnedLimits(window=1))
    assert learn(known, what, Refusal("r")) is None


def test_a_refusal_of_neighbours_teaches_that_roles_alternate_where_they_did_not() -> None:
    known, refusal = facts(1000), Refusal("r", bounds="roles")
    assert learn(known, draft([user("a")], 1000), refusal) is None  # they did: it means something else
    users = draft([user("a"), user("b")], 1000)
    taught = learn(known, users, refusal)
    assert taught is not None and taught.window.alternates and taught.learned == LearnedLimits(alternates=True)
    assert taught.window.tokens == 1000 and learn(taught, users, refusal) is None


def test_a_refusal_of_reasoning_behind_a_change_teaches_that_it_is_bound() -> None:
    known, refusal = facts(1000), Refusal("r", bounds="reasoning")
    untouched = draft([user("a"), user("b")], 1000)
    assert learn(known, untouched, refusal) is None  # it is the client's own
    for what in (replace(untouched, drops=(Drop(3, "old"),)), untouched.with_blocks([changed(untouched)])):
        taught = learn(known, what, refusal)
        assert taught is not None and taught.window.binds and taught.learned == LearnedLimits(binds=True)
        assert learn(taught, what, refusal) is None
        assert proves(what, refusal) == LearnedLimits(binds=True)


def changed(found: Draft) -> Block:
    (message,) = found.blocks[0].messages
    return replace(found.blocks[0], messages=(replace(message, why="shortened"),))


def test_a_refusal_that_adds_the_reply_teaches_that_it_counts() -> None:
    window = Window(1000, separate=True)
    known = replace(facts(1000), window=window)
    what = replace(draft([user(words(300))], 1000, max_tokens=900), window=window)
    assert what.excess <= 0
    refusal = Refusal("r", limit=1000, prompt=307, completion=900)
    taught = learn(known, what, refusal)
    assert taught is not None and taught.window == Window(1000) and taught.learned == LearnedLimits(shared=True)
    assert proven(what, refusal, taught.learned, window, opaque=False) == LearnedLimits(shared=True)
    alone = learn(known, what, Refusal("r", limit=250, prompt=307))
    assert alone is not None and alone.window.separate and alone.window.tokens == 250


def test_what_was_learned_lies_over_the_table() -> None:
    known = apply_learned(facts(1000, max_input=900), LearnedLimits(window=500, max_input=2000, scale=1.5))
    assert (known.window.tokens, known.window.max_input) == (2000, 900)
    assert known.meter.text("one two") == 3


def test_a_bound_of_one_request_alone_heals_that() -> None:
    known, what = sent()
    taught = learn(known, what, Refusal("r", limit=250, bounds="request"))
    assert taught is not None and taught.window.tokens == 250


def test_a_lower_count_of_the_upstreams_corrects_an_estimate() -> None:
    """18,196 estimated, 14,244 told, a window of 4,096: what is sent next is measured by their count."""
    known = replace(facts(8_192), meter=WordMeter(quality=Quality.ESTIMATED))
    what = plan(prompt([user(words(1_000))]), ladder(), known).draft
    taught = learn(known, what, Refusal("r", limit=600, prompt=800))
    assert taught is not None and taught.learned.scale == pytest.approx(800 / what.prompt)
    for quality, refusal in (
        (Quality.EXACT, Refusal("r", limit=600, prompt=800)),  # we know better
        (Quality.ESTIMATED, Refusal("r", limit=900, prompt=800)),  # it is under the limit: figures of something else
        (Quality.ESTIMATED, Refusal("r", limit=600, prompt=800, at_least=True)),  # it was cut short
        (Quality.ESTIMATED, Refusal("r", limit=100, prompt=200)),  # no tokenizer is so far off
    ):
        other = replace(known, meter=WordMeter(quality=quality))
        taught = learn(other, plan(prompt([user(words(1_000))]), ladder(), other).draft, refusal)
        assert taught is not None and taught.learned.scale == 1.0


def test_what_a_refusal_says_outweighs_our_count() -> None:
    """It names a limit under which we think that the request fits: something smaller is tried all the same."""
    known, what = sent(window=1_000)
    for refusal in (Refusal("r", limit=2_000), Refusal("r", limit=900), Refusal("r", limit=800, prompt=200)):
        taught = learn(known, what, refusal)
        assert taught is not None and replace(what, window=taught.window, meter=taught.meter).excess > 0


# What is proven for later requests.


def asked(tokens: int, reply: int | None = None, quality: Quality = Quality.EXACT, **window: int | bool | str) -> Draft:
    """A request of so many tokens, as it was sent."""
    meter = WordMeter(quality=quality, margin=Margin(100, 0.0 if quality is Quality.EXACT else 0.1))
    known = replace(facts(8_192), window=Window(**{"tokens": 8_192, **window}), meter=meter)  # type: ignore[arg-type]
    fields = {} if reply is None else {"max_tokens": reply}
    return plan(prompt([user(words(tokens - 7))], **fields), ladder(), known).draft


def proves(what: Draft, refusal: Refusal, *, opaque: bool = False) -> LearnedLimits:
    known = Facts(what.window, what.meter)
    taught = learn(known, what, refusal)
    after = NOTHING_LEARNED if taught is None else taught.learned
    return proven(what, refusal, after, what.window, opaque=opaque)


def suspects(what: Draft, refusal: Refusal, *, opaque: bool = False) -> Suspicion | None:
    taught = learn(Facts(what.window, what.meter), what, refusal)
    return None if taught is None else suspicion(what, refusal, taught.learned, opaque=opaque)


def test_a_limit_is_proven_where_the_request_was_over_it() -> None:
    assert proves(asked(5_000), Refusal("r", limit=4_096, prompt=5_010)).window == 4_096
    assert proves(asked(5_000), Refusal("r", limit=4_096)).window == 4_096
    assert proves(asked(3_000, 2_000), Refusal("r", limit=4_096)).window == 4_096
    assert proves(asked(5_000), Refusal("r", limit=4_096, bounds="input")) == LearnedLimits(max_input=4_096)
    assert proves(asked(5_000), Refusal("r", excess=1_000)).window == 4_500


@pytest.mark.parametrize("bounds", ["window", "input"])
@pytest.mark.parametrize("tokens", [50, 150, 190])
def test_a_request_that_was_not_over_a_limit_proves_none(tokens: int, bounds: str) -> None:
    assert proves(asked(tokens), Refusal("r", limit=300, bounds=bounds)) == NOTHING_LEARNED
    assert proves(asked(tokens), Refusal("r", limit=300, prompt=5_000, bounds=bounds)) == NOTHING_LEARNED
    assert proves(asked(tokens), Refusal("r", limit=300, total=5_000, completion=10, bounds=bounds)) == NOTHING_LEARNED


def test_an_upstreams_count_that_may_be_true_proves_a_limit_and_by_how_much_ours_is_off() -> None:
    estimate = asked(3_500, quality=Quality.ESTIMATED)
    assert proves(estimate, Refusal("r", limit=8_000, prompt=9_000)) == LearnedLimits(8_000, scale=9_000 / 3_500)
    assert proves(asked(3_500), Refusal("r", limit=8_000, prompt=9_000)) == NOTHING_LEARNED
    assert proves(asked(3_500), Refusal("r", limit=4_096, prompt=4_200)) == LearnedLimits(4_096, scale=4_200 / 3_500)
    assert proves(estimate, Refusal("r", limit=4_096, prompt=4_200), opaque=True) == LearnedLimits(4_096)


def test_what_is_stated_already_is_not_proven() -> None:
    assert proves(asked(9_000), Refusal("r", limit=8_192)) == NOTHING_LEARNED
    guessed = asked(9_000, guessed=True)
    assert proves(guessed, Refusal("r", limit=8_192)).window == 8_192
    assert proves(asked(9_000, max_input=700), Refusal("r", limit=700, bounds="input")) == NOTHING_LEARNED


def test_a_second_refusal_without_figures_shrinks_more() -> None:
    what = asked(5_000, source="supposed")
    taught = learn(replace(facts(8_192), window=what.window), what, Refusal("r"))
    assert taught is not None and taught.window.tokens == int(AGAIN_REFUSED_SHRINK * 5_500)


def test_what_was_answered_before_is_the_next_try_and_what_was_refused_since_is_the_last() -> None:
    known, what = sent()
    size, silent = what.prompt + 100, Refusal("r")

    def window(answered: int = 0, refused: int = 0) -> int:
        taught = learn(replace(known, answered=answered, refused=refused), what, silent)
        assert taught is not None and taught.learned.refused == taught.window.refused == size
        return taught.window.tokens

    assert window(size - 9) == size - 9
    assert (
        window(100) == window(size) == int(UNKNOWN_REFUSAL_SHRINK * size)
    )  # it was answered as much: that is no bound
    assert window(refused=200) == window(150, 200) == 100
    assert window(250, 200) == 250  # answered since


def test_what_is_smaller_than_what_was_refused_may_go_out_though_the_supposed_window_does_not_hold_it() -> None:
    window = Window(300, source="supposed", refused=500)
    what = replace(asked(390), window=window, reply=100)
    assert what.possible and not replace(what, window=replace(window, refused=None)).possible
    assert not replace(what, prompt=400).possible
    taught = learn(replace(facts(8_192), window=window), what, Refusal("r"))
    assert taught is not None and taught.window.tokens == 150  # it was refused, too: there may be one more


def test_a_refusal_without_figures_proves_nothing_itself_and_is_a_suspicion() -> None:
    silent = Refusal("r")
    for what in (asked(5_000), asked(5_000, guessed=True), asked(3_000, source="supposed")):
        assert proves(what, silent) == NOTHING_LEARNED
        assert suspects(what, silent) is not None
    assert suspects(asked(5_000), silent) == Suspicion(5_500, int(UNKNOWN_REFUSAL_SHRINK * 5_500), "r")
    assert suspects(asked(9_000, guessed=True), silent) == Suspicion(9_500, 8_192, "r")
    assert suspects(asked(5_000), silent, opaque=True) == Suspicion(
        5_500, int(UNKNOWN_REFUSAL_SHRINK * 5_500), "r", shared=False
    )
    assert suspects(asked(800), silent) is None  # no window is so small
    assert suspects(asked(5_000), Refusal("r", limit=4_000)) is None


def test_W4_a_refusal_that_names_only_the_known_window_is_a_suspicion_as_one_without_figures() -> None:
    what = asked(5_000)
    shrunk = int(UNKNOWN_REFUSAL_SHRINK * 5_500)
    assert suspects(what, Refusal("r", limit=what.window.tokens)) == Suspicion(5_500, shrunk, "r")
    assert suspects(what, Refusal("r", excess=1_000)) == Suspicion(5_500, 4_500, "r")
    assert suspects(what, Refusal("r", limit=what.window.tokens, prompt=9_000)) is None


@pytest.mark.parametrize("bounds", ["body", "request", "together", "inputs", "roles", "reasoning"])
def test_what_bounds_no_window_is_no_suspicion(bounds: str) -> None:
    assert suspects(asked(5_000, guessed=True), Refusal("r", bounds=bounds)) is None


def test_W23_a_limit_of_one_pass_is_the_bound_of_an_input_that_is_embedded() -> None:
    one_pass = Refusal("r", limit=512, prompt=600, bounds="request")
    apart = replace(asked(600), apart=True)
    assert proves(apart, one_pass) == LearnedLimits(max_input=512)
    assert proves(apart, replace(one_pass, limit=None)) == proves(asked(600), one_pass) == NOTHING_LEARNED


@pytest.mark.parametrize("bounds", ["body", "request"])
def test_what_bounds_no_window_proves_nothing(bounds: str) -> None:
    assert proves(asked(5_000, guessed=True), Refusal("r", limit=4_096, prompt=5_000, bounds=bounds)) == NOTHING_LEARNED


def test_that_roles_alternate_is_proven() -> None:
    what = draft([user("a"), user("b")], 1000)
    assert proves(what, Refusal("r", bounds="roles")) == LearnedLimits(alternates=True)


figures = st.none() | st.integers(0, 20_000)


@given(
    tokens=st.integers(10, 9_000),
    reply=st.none() | st.integers(1, 4_000),
    quality=st.sampled_from(list(Quality)),
    refusal=st.builds(
        Refusal,
        st.just("r"),
        figures,
        st.sampled_from(["window", "input", "body", "request", "roles"]),
        figures,
        figures,
        figures,
        figures,
        st.booleans(),
    ),
    guessed=st.booleans(),
)
def test_no_refusal_proves_more_than_its_request_bears_out(
    tokens: int, reply: int | None, quality: Quality, refusal: Refusal, guessed: bool
) -> None:
    what = asked(tokens, reply, quality, guessed=guessed)
    proved, most = proves(what, refusal), PLAUSIBLE[quality]
    assert 1 / most <= proved.scale <= most
    for limit in (proved.window, proved.max_input):
        assert limit is None or 0 < limit <= max(1.3, most) * tokens + (reply or 500) + 100
    assert not proved.supposed
    found = suspects(what, refusal)
    assert found is None or LEAST_SUPPOSED <= found.window < found.size
