"""What requests cost, computed by hand for each provider's rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.fit.money import (
    BREAKPOINT,
    CACHES,
    Bill,
    Prices,
    PromptCache,
    Rates,
    Sum,
    Unpriced,
    bill,
    is_plain,
    is_unchanged,
    paid,
    price,
    used,
)
from proxy.model.outcome import MOVED, Extra, Outcome, Repeated, Usage

MILLION = 1_000_000


def rates(*dollars: float | None) -> Rates:
    """Rates from US dollars per million tokens: input, output, cache read, cache write."""
    per_input, per_output, *cache = [None if one is None else one / MILLION for one in dollars]
    assert per_input is not None and per_output is not None
    return Rates(per_input, per_output, *cache)


GPT_4O = Prices(rates(2.5, 10, 1.25), CACHES["openai"])
GPT_56 = Prices(rates(4, 20, 0.4, 5), CACHES["openai"], ((272_000, rates(8, 30, 0.8, 10)),))
CLAUDE = Prices(rates(3, 15, 0.3, 3.75), CACHES["anthropic"])
GEMINI = Prices(rates(1.25, 10, 0.125), CACHES["gemini"], ((200_000, rates(2.5, 15, 0.25, 0.25)),))


def answered(prompt: int, sent: int, usage: Usage | None, **more: Any) -> Outcome:
    """A request of `prompt` tokens that was answered after `sent` tokens were sent."""
    facts: dict[str, Any] = {"result": "fitted", "model": "m", "model_sent": "m", "attempts": 1} | more
    return Outcome("chat", status=200, prompt=prompt, prompt_sent=sent, usage=usage, **facts)


def dollars(found: Sum) -> tuple[float, float]:
    """Micro-dollars, gross and net."""
    return round(found.gross * MILLION, 6), round(found.net * MILLION, 6)


def test_openai_bills_cached_tokens_at_their_own_price() -> None:
    """10,000 at 2.50 are 25,000 millionths; 100 at 10 are 1,000; 8,064 cached cost 1.25 less each, 10,080."""
    assert dollars(GPT_4O.bill(Usage(10_000, 100, 8_064))) == (26_000, 15_920)


def test_openai_bills_what_gpt_5_6_writes_to_its_cache() -> None:
    """10,000 at 4 and 100 at 20 are 42,000. Net: 2,048 read at 0.4 (819.2), 7,040 written at 5 (35,200), 912 at 4."""
    assert dollars(GPT_56.bill(Usage(10_000, 100, 2_048, written=7_040))) == (42_000, 819.2 + 35_200 + 3_648 + 2_000)


def test_tokens_that_openai_writes_and_does_not_report_are_those_that_its_cache_can_hold() -> None:
    """Of 10,000 tokens 9,984 are a multiple of 128 beyond 1,024: 7,936 after the 2,048 that were read; 16 are input."""
    assert dollars(GPT_56.bill(Usage(10_000, 0, 2_048)))[1] == pytest.approx(819.2 + 7_936 * 5 + 16 * 4)
    assert dollars(GPT_56.bill(Usage(1_000, 0)))[1] == 4_000, "too short to be cached"


def test_M4_nothing_written_is_not_the_same_as_not_reported() -> None:
    """With writes of 0: 2,048 read at 0.4 (819.2) and 7,952 at 4 (31,808)."""
    assert dollars(GPT_56.bill(Usage(10_000, 0, 2_048, written=0)))[1] == pytest.approx(819.2 + 31_808)
    assert dollars(GPT_56.bill(Usage(10_000, 0, 2_048)))[1] > 819.2 + 31_808


def test_anthropic_bills_writes_only_as_they_are_reported() -> None:
    assert dollars(CLAUDE.bill(Usage(10_000, 100))) == (31_500, 31_500), "nothing is marked, and nothing is written"
    assert dollars(CLAUDE.bill(Usage(10_000, 100, 6_000, written=3_000))) == (31_500, 1_800 + 11_250 + 3_000 + 1_500)


def test_gemini_bills_nothing_for_writes() -> None:
    assert dollars(GEMINI.bill(Usage(10_000, 100, 4_000, written=6_000))) == (13_500, 500 + 7_500 + 1_000)


def test_a_prompt_over_a_threshold_is_billed_at_the_higher_rate_as_a_whole() -> None:
    assert dollars(GEMINI.bill(Usage(200_000, 100)))[0] == 251_000
    assert dollars(GEMINI.bill(Usage(200_001, 100)))[0] == 200_001 * 2.5 + 1_500
    assert dollars(GEMINI.bill(Usage(300_000, 0, 100_000)))[1] == 525_000, "the price for writing is not used"


@pytest.mark.parametrize(
    ("cache", "tokens", "expected"),
    [
        ("openai", 1_023, 0),
        ("openai", 1_024, 1_024),
        ("openai", 1_151, 1_024),
        ("openai", 1_152, 1_152),
        ("anthropic", 1_023, 0),
        ("anthropic", 5_001, 5_001),
        ("gemini", 1_500, 1_500),
        ("deepseek", 63, 0),
        ("deepseek", 200, 192),
    ],
)
def test_each_provider_caches_prefixes_of_its_own_length(cache: str, tokens: int, expected: int) -> None:
    assert CACHES[cache].expected(Repeated(0, tokens), tokens) == expected


def test_a_prefix_is_not_expected_after_its_time_or_where_nothing_is_known() -> None:
    cache = PromptCache(1_000, seconds=300.0)
    assert cache.expected(Repeated(2_000, 2_000, 300.0), 2_000) == 2_000
    assert cache.expected(Repeated(2_000, 2_000, 301.0), 2_000) == 0
    assert cache.expected(None, 2_000) == 0


def test_an_unchanged_request_costs_what_it_costs() -> None:
    found = bill(answered(10_000, 10_000, Usage(10_000, 100, 8_064)), Usage(10_000, 100, 8_064), GPT_4O, GPT_4O)
    assert found is not None and found.asked == found.sent
    assert dollars(found.sent) == (26_000, 15_920)


def test_a_cut_that_moves_the_prefix_may_cost_more_than_it_saves() -> None:
    """50,000 tokens, 48,000 of them sent before, are cut to 30,000 that the cache does not hold. As asked: 48,000 read
    at 0.4 and 1,920 written at 5 (both are multiples of 128), 80 at 4. As sent: 29,952 written at 5, 48 at 4."""
    o = answered(50_000, 30_000, Usage(30_000, 0), repeated=Repeated(48_000, 600))
    found = bill(o, Usage(30_000, 0), GPT_56, GPT_56)
    assert found is not None and found.asked is not None
    assert dollars(found.asked) == pytest.approx((200_000, 48_000 * 0.4 + (49_920 - 48_000) * 5 + 80 * 4))
    assert dollars(found.sent) == pytest.approx((120_000, 29_952 * 5 + 48 * 4))
    assert found.asked.gross > found.sent.gross and found.asked.net < found.sent.net


def test_a_stable_cut_saves_cached_tokens_too() -> None:
    o = answered(50_000, 30_000, Usage(30_000, 10, 29_056), repeated=Repeated(49_000, 29_100))
    found = bill(o, Usage(30_000, 10, 29_056), GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None
    cached = 49_000 // 128 * 128
    assert dollars(found.asked) == pytest.approx((125_100, cached * 1.25 + (50_000 - cached) * 2.5 + 100))
    assert dollars(found.sent) == pytest.approx((75_100, 29_056 * 1.25 + 944 * 2.5 + 100))


def test_of_an_upstream_that_caches_less_than_expected_less_is_expected() -> None:
    o = answered(4_000, 2_000, Usage(2_000), repeated=Repeated(3_072, 1_024))
    for trust, net in ((1.0, 10_000 - 3_072 * 1.25), (0.5, 10_000 - 1_536 * 1.25), (0.0, 10_000)):
        found = bill(o, Usage(2_000), GPT_4O, GPT_4O, trust)
        assert found is not None and found.asked is not None and dollars(found.asked)[1] == pytest.approx(net)


def test_without_a_history_the_same_part_is_cached_as_of_what_was_sent() -> None:
    found = bill(answered(4_000, 2_000, Usage(2_000, 0, 500)), Usage(2_000, 0, 500), GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None
    assert dollars(found.asked)[1] == pytest.approx(3_000 * 2.5 + 1_000 * 1.25)
    nothing = bill(answered(4_000, 2_000, Usage(0)), Usage(0), GPT_4O, GPT_4O)
    assert nothing is not None and nothing.asked is not None and nothing.asked.net == 0


def test_where_the_client_marks_nothing_anthropic_caches_nothing_of_the_original_either() -> None:
    o = answered(4_000, 2_000, Usage(2_000), repeated=Repeated(3_000, 1_500))
    found = bill(o, Usage(2_000), CLAUDE, CLAUDE)
    assert found is not None and found.asked is not None and dollars(found.asked) == (12_000, 12_000)
    marked = Usage(2_000, 0, 1_500, written=500)
    found = bill(answered(4_000, 2_000, marked, repeated=Repeated(3_000, 1_500)), marked, CLAUDE, CLAUDE)
    assert found is not None and found.asked is not None
    assert dollars(found.asked)[1] == pytest.approx(3_000 * 0.3 + 1_000 * 3.75)


def test_our_count_is_scaled_by_what_the_upstream_counted() -> None:
    found = bill(answered(4_000, 2_000, Usage(2_200)), Usage(2_200), GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None and dollars(found.asked)[0] == 4_400 * 2.5


def test_what_would_not_have_been_accepted_has_a_cost_only_as_sent() -> None:
    for more in ({"too_long": True}, {"healed": True}):
        found = bill(answered(4_000, 2_000, Usage(2_000), **more), Usage(2_000), GPT_4O, GPT_4O)
        assert found == Bill(None, GPT_4O.bill(Usage(2_000)))


def test_a_switched_request_is_compared_at_the_prices_of_both_models() -> None:
    o = answered(4_000, 4_100, Usage(4_100, 100), model_sent="other")
    found = bill(o, Usage(4_100, 100), GPT_56, GPT_4O)
    assert found is not None and found.asked is not None
    assert (dollars(found.asked)[0], dollars(found.sent)[0]) == (18_000, 11_250)
    assert bill(o, Usage(4_100, 100), None, GPT_4O) is None, "what the client asked for has no price"


def test_a_request_without_usage_is_billed_by_our_count_and_without_its_reply() -> None:
    assert used(answered(4_000, 2_000, Usage(5)), CACHES["openai"]) == Usage(5)
    assert used(answered(4_000, 2_000, None), CACHES["openai"]) == Usage(2_000)
    assert used(Outcome("chat", "passed", 200), CACHES["openai"]) is None


def test_without_usage_what_was_sent_before_is_expected_to_be_cached_of_both_prompts() -> None:
    """Else a stable cut would save less than it does. Half of what is expected is trusted: 640 of 1,280."""
    o = answered(4_072, 2_048, None, repeated=Repeated(3_072, 1_300))
    usage = used(o, CACHES["openai"], 0.5)
    assert usage == Usage(2_048, 0, 640) and used(o, CACHES["anthropic"]) == Usage(2_048)
    found = bill(o, usage, GPT_4O, GPT_4O, 0.5)
    assert found is not None and found.asked is not None
    assert dollars(found.sent)[1] == pytest.approx(2_048 * 2.5 - 640 * 1.25)
    assert dollars(found.asked)[1] == pytest.approx(4_072 * 2.5 - 1_536 * 1.25)


def test_only_the_same_prompt_for_the_same_model_is_unchanged() -> None:
    assert is_unchanged(answered(5, 5, None))
    assert not is_unchanged(answered(5, 4, None)) and not is_unchanged(answered(5, 5, None, model_sent="x"))
    assert not is_unchanged(answered(5, 5, None, healed=True))


def test_costs_may_be_summed_where_prices_are_the_same_for_every_token() -> None:
    small, large = Usage(1_000, 10, 500), Usage(250_000)
    assert GPT_4O.is_linear([small, large]) and not GPT_56.is_linear([small])
    assert GEMINI.is_linear([small]) and not GEMINI.is_linear([small, large])


def test_more_cached_than_there_is_is_not_billed() -> None:
    assert dollars(GPT_4O.bill(Usage(1_000, 0, 5_000))) == (2_500, 1_250)


AT_BREAKPOINTS = PromptCache(1024, 1, 1800.0, match=BREAKPOINT)


def test_a_cache_that_reads_at_breakpoints_is_expected_to_read_nothing_of_a_prompt_that_was_moved() -> None:
    kept, moved = Repeated(5_000, 4_000, 60.0, "kept"), Repeated(5_000, 4_000, 60.0, MOVED)
    assert AT_BREAKPOINTS.expected(kept, 4_000) == 4_000
    assert AT_BREAKPOINTS.expected(moved, 4_000, moved=True) == 0
    assert CACHES["openai"].expected(moved, 4_096, moved=True) == 4_096
    assert used(answered(6_000, 5_000, None, repeated=moved), AT_BREAKPOINTS) == Usage(5_000)
    assert used(answered(6_000, 5_000, None, repeated=kept), AT_BREAKPOINTS) == Usage(5_000, 0, 4_000)


def test_M19_what_another_worker_sent_before_is_seen_in_what_the_upstream_had_cached() -> None:
    """This worker saw nothing of the conversation; the upstream had 1,920 of the 2,000 tokens sent in its cache. Of the
    original as large a part is taken to be cached: 3,840 of 4,000."""
    usage = Usage(2_000, 0, 1_920)
    found = bill(answered(4_000, 2_000, usage, repeated=Repeated(0, 0, prefix="first")), usage, GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None
    assert dollars(found.asked) == pytest.approx((10_000, 160 * 2.5 + 3_840 * 1.25))
    seen = Repeated(3_072, 1_930, prefix="kept")  # this worker knows of as much: it also knows what the original has
    found = bill(answered(4_000, 2_000, usage, repeated=seen), usage, GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None
    assert dollars(found.asked)[1] == pytest.approx(10_000 - 3_072 * 1.25)


def test_M6_of_an_answer_that_broke_off_what_came_is_billed() -> None:
    broken = answered(4_000, 2_000, None, result="cancelled", came=30)
    assert used(replace(broken, result="cancelled"), CACHES["openai"]) == Usage(2_000, 30)
    begun = replace(broken, usage=Usage(2_100, 1, 500))  # as Anthropic's first event says
    assert used(begun, CACHES["anthropic"]) == Usage(2_100, 30, 500)
    assert used(replace(begun, usage=Usage(2_100, 90)), CACHES["anthropic"]) == Usage(2_100, 90)
    assert used(replace(begun, result="passed"), CACHES["anthropic"]) == Usage(2_100, 1, 500)


def test_M6_the_tier_that_is_reported_outranks_the_one_that_is_asked_for() -> None:
    flex = Prices(rates(2, 10), tiers={"flex": (rates(1, 5), ())})
    asked = answered(1_000, 1_000, Usage(1_000, 100), tier="flex")
    assert used(asked, flex.cache) == Usage(1_000, 100, tier="flex")
    assert used(replace(asked, usage=Usage(1_000, 100, tier="default")), flex.cache) == Usage(
        1_000, 100, tier="default"
    )
    assert [
        dollars(flex.bill(Usage(1_000, 100, tier=tier)))[0] for tier in ("flex", "default", "priority", "batch")
    ] == [*(1_500, 3_000, 3_000, 1_500)]
    assert not is_plain(asked) and is_plain(replace(asked, usage=Usage(1_000, 100, tier="default")))


def test_M5_a_reported_cost_outranks_ours_and_scales_what_was_not_sent() -> None:
    """By ours 2,000 tokens cost 5,000 millionths; the upstream says 4,000. The original is four fifths of ours, too."""
    usage = Usage(2_000, extra=Extra(cost=0.004))
    assert paid(GPT_4O, usage) == Sum(0.004, 0.004) == paid(None, usage)
    found = bill(answered(4_000, 2_000, usage), usage, GPT_4O, GPT_4O)
    assert found is not None and found.asked is not None and dollars(found.asked)[0] == pytest.approx(8_000)
    assert bill(answered(4_000, 2_000, usage), usage, None, None) is None, "nobody knows what the original costs"
    assert bill(answered(2_000, 2_000, usage), usage, None, None) == Bill(Sum(0.004, 0.004), Sum(0.004, 0.004))
    cached = Usage(2_000, 0, 1_000, extra=Extra(cost=0.00375))
    reported = paid(GPT_4O, cached)
    assert isinstance(reported, Sum) and dollars(reported) == (5_000, 3_750), (
        "without the cache by as much more as ours"
    )


def test_M6_audio_and_thinking_are_at_most_what_there_is() -> None:
    found = Prices(rates(2, 10, None, None, None, 20, 50, 30))
    heard = Usage(1_000, 100, reasoning=60, extra=Extra(audio=2_000, audio_reply=90))
    assert dollars(found.bill(heard))[0] == 1_000 * 20 + 60 * 30 + 40 * 50
    assert dollars(found.bill(Usage(1_000, 100, 900, extra=Extra(audio=300))))[1] == 900 * 2 + 100 * 20 + 1_000


def test_a_price_is_that_of_the_model_that_answered_where_the_named_one_has_none() -> None:
    def prices(model: str, upstream: str | None) -> Prices | None:
        return GPT_4O if (model, upstream) == ("gpt-4o", "azure") else None

    assert price(prices, "billing", "azure", Usage(1_000, model="gpt-4o")) == GPT_4O.bill(Usage(1_000))
    assert price(prices, "billing", "azure", Usage(1_000)) is Unpriced.MODEL
    assert price(prices, "gpt-4o", "azure", None) is Unpriced.TOKENS
