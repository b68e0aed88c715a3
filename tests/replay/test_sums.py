"""Sums of a replay: requests, tokens, money net of the prompt cache, agreement with recorded usage."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.money import Prices, Rates, Unpriced
from proxy.fit.prompt_cache import Pieces
from proxy.model.outcome import Extra, Usage
from proxy.model.structs import replace
from proxy.replay.engine import Result
from proxy.replay.order import Placed
from proxy.replay.plan_worker import Cut, Planned, Step
from proxy.replay.prices import no_prices
from proxy.replay.recorded import Figures, Recorded
from proxy.replay.sums import MAX_GROUPS, OTHERS, UNNAMED, FiguresOnly, Tally, WithoutPrice
from proxy.replay.values import MAX_NAME

PRICES = Prices(Rates(1.0, 10.0, 0.1))


def pieces(*ends: tuple[int, int]) -> Pieces:
    """Pieces of digests and tokens."""
    return Pieces([digest for digest, _ in ends], [tokens for _, tokens in ends])


LONG = pieces((1, 2_048), (2, 4_096), (3, 8_192))
CUT = pieces((1, 2_048), (9, 4_096))


def result(planned: Planned, at: float = 0.0, cut: bool = False, **recorded: object) -> Result:
    """The result of one request."""
    placed = Placed(at, 0, int(at), int(at), Recorded(at=at, **recorded))  # type: ignore[arg-type]
    return Result(placed, (planned,), (Cut(planned, []) if cut else None,))


def planned(prompt: int = 8_192, sent: int | None = None, **more: object) -> Planned:
    """A planned request; one of which tokens were removed was changed by a step."""
    steps = () if sent is None else (Step("prune_history", prompt, sent),)
    made = {"asked": LONG, "sent": None if sent is None else CUT, **more}
    return Planned("chat", "m", "m", prompt, prompt if sent is None else sent, 10_000, steps=steps, **made)  # type: ignore[arg-type]


def tally(*found: Result) -> Tally:
    """The sums of these results; every model has a price."""
    made = Tally(lambda recorded: lambda model, upstream: PRICES)
    for one in found:
        made.add(one, 0)
    return made


def test_requests_are_counted_by_how_near_they_are() -> None:
    found = tally(
        result(planned(load=0.5)),
        result(planned(load=0.8)),
        result(planned(load=0.99, guessed=True)),
        result(planned(sent=4_096, load=1.2, over=True, too_long=True)),
        result(planned(load=1.2, over=True, too_long=True, possible=False), status=400),
        result(planned(sent=4_096, load=1.2, over=True, too_long=True), status=400),
        result(Planned(unplanned="no JSON")),
    ).total
    assert (found.requests, found.planned, found.guessed) == (7, 6, 1)
    assert (found.near, found.over, found.cut) == (1, 3, 2)
    assert (found.too_long, found.answered, found.unfit) == (3, 2, 1)
    assert (found.refused, found.refused_answered) == (2, 1)


def test_a_repeated_prompt_is_paid_at_the_price_of_the_cache() -> None:
    found = tally(result(planned(), 0.0), result(planned(), 5.0, usage=Usage(8_192, 100, 8_064))).total
    assert found.cached_asked == found.cached_sent == 8_192
    assert found.asked_net == found.sent_net == pytest.approx(8_192 + 819.2 + 1_000)
    assert found.asked_gross == pytest.approx(2 * 8_192 + 1_000) and found.priced == 2


def test_a_cut_that_moves_the_prefix_can_cost_more() -> None:
    found = tally(result(planned(), 0.0), result(planned(sent=4_096), 5.0)).total
    assert found.asked_net - found.sent_net == pytest.approx(819.2 - (2_048 * 0.1 + 2_048))
    assert found.asked_net < found.sent_net and found.asked_gross > found.sent_gross
    assert (found.cut_prompt, found.cut_cached_asked, found.cut_cached_sent) == (4_096, 8_192, 2_048)


def test_a_cut_that_stays_keeps_its_prefix() -> None:
    found = tally(*(result(planned(sent=4_096), at) for at in (0.0, 5.0))).total
    assert found.cut_cached_sent == 4_096 and found.asked_net > found.sent_net


def test_what_would_have_been_refused_has_no_cost_as_it_was_sent_and_fills_no_cache() -> None:
    found = tally(*(result(planned(sent=4_096, too_long=True, over=True), at) for at in (0.0, 5.0))).total
    assert found.asked_net == found.sent_net == found.cached_asked == 0
    assert found.rescued_net == pytest.approx(4_096 + 409.6) and found.cached_sent == 4_096


def test_what_cannot_be_sent_costs_nothing() -> None:
    found = tally(result(planned(over=True, possible=False, too_long=True))).total
    assert (found.priced, found.unpriced, found.cached_sent) == (0, 0, 0)


def test_callers_do_not_share_a_cache() -> None:
    assert tally(result(planned(), caller="ann"), result(planned(), 1.0, caller="bob")).total.cached_asked == 0


def test_a_model_without_a_price_has_tokens_only() -> None:
    made = Tally(no_prices)
    made.add(result(planned()), 0)
    assert (made.total.unpriced, made.total.prompt, made.total.asked_net) == (1, 8_192, 0.0)


def test_a_model_of_no_table_caches_as_its_api_does() -> None:
    marked = pieces((1, 2_048), (2, 4_096))
    made = Tally(no_prices)
    for at, api in enumerate(("messages", "messages", "chat", "chat")):
        made.add(result(Planned(api, f"{api}-model", "", 4_096, 4_096, asked=marked), float(at)), 0)
    assert (made.models["messages-model"].cached_asked, made.models["chat-model"].cached_asked) == (0, 4_096)


def test_groups_and_steps_have_sums_of_their_own() -> None:
    found = tally(result(planned(sent=4_096), app="a"), result(planned(), 1.0))
    assert found.models["m"].requests == 2 and found.apps["a"].cut == 1 and found.apps[UNNAMED].cut == 0
    assert (found.steps["prune_history"].requests, found.steps["prune_history"].tokens) == (1, 4_096)


def test_groups_are_bounded() -> None:
    found = tally(*(result(planned(), float(i), app=f"app {i}") for i in range(MAX_GROUPS + 5)))
    assert len(found.apps) == MAX_GROUPS + 1 and found.apps[OTHERS].requests == 5


def test_reasons_are_bounded() -> None:
    found = tally(*(result(Planned(unplanned=f"reason {i}")) for i in range(MAX_GROUPS + 5)))
    assert len(found.unplanned) == MAX_GROUPS + 1 and found.unplanned[OTHERS] == 5
    again = [result(Planned(unplanned=why)) for why in (*map(str, range(MAX_GROUPS)), "0", "new", "0")]
    assert tally(*again).unplanned.most_common(2) == [("0", 3), ("1", 1)], "a known reason is counted as itself"


def test_what_is_kept_of_models_is_bounded_though_clients_name_them() -> None:
    names = [f"{i}" + "x" * 10_000 for i in range(2 * MAX_GROUPS)]
    made = [replace(planned(), model=name, model_sent=name) for name in names]
    found = tally(*(result(one, usage=Usage(8_192, 1, 4_096)) for one in made))
    for kept in (found.models, found.counts, found.caches, found._trust):
        assert len(kept) == MAX_GROUPS + 1 and OTHERS in kept and max(map(len, kept)) == MAX_NAME


def test_counts_and_cache_are_compared_with_what_was_reported() -> None:
    usage = Usage(8_000, 1, 7_936)
    found = tally(result(planned(), 0.0, usage=Usage(8_192)), result(planned(), 1.0, usage=usage))
    counts, caches = found.counts["m"], found.caches["m"]
    assert (counts.count, counts.estimated, counts.reported, counts.within) == (2, 16_384, 16_192, 1)
    assert (caches.count, caches.estimated, caches.reported) == (2, 8_000, 7_936)
    assert caches.quantile(0.5) == 0.0 and counts.quantile(1.0) == 0.024


@pytest.mark.parametrize(
    "recorded",
    [
        {"usage": None},
        {"usage": Usage(0)},
        {"usage": Usage(9), "figures": Figures(9, 5)},
    ],
)
def test_what_was_not_sent_as_it_is_recorded_is_not_compared(recorded: dict[str, Any]) -> None:
    found = tally(result(planned(), **recorded))
    assert found.counts == found.caches == {}


def test_without_the_tools_the_share_that_is_cached_is_compared() -> None:
    usage = Usage(16_384, 0, 16_000)
    found = tally(*(result(planned(), float(i), usage=usage, missing=("tools",)) for i in range(2)))
    assert found.counts == {} and (found.caches["m"].estimated, found.caches["m"].reported) == (16_384, 32_000)


def test_a_provider_that_reports_fewer_cached_tokens_is_expected_to_hold_fewer() -> None:
    usages = (Usage(8_192), Usage(8_192, 0, 4_096), None)
    found = tally(*(result(planned(), float(i), usage=usage) for i, usage in enumerate(usages))).total
    assert found.asked_net == pytest.approx(8_192 + 819.2 + (4_096 * 0.1 + 4_096))
    assert found.cached_asked == 2 * 8_192


def test_the_worst_cuts_are_kept_one_of_each_conversation() -> None:
    talks = ((4_000, 1), (1_000, 2), (8_000, 3), (2_000, 4), (900, 2), (950, 2))
    cuts = (result(planned(sent=sent, talk=talk), float(i), cut=True) for i, (sent, talk) in enumerate(talks))
    found = tally(*cuts)
    assert [cut.planned.prompt_sent for _, cut in found.worst] == [900, 2_000, 4_000]


def test_figures_alone_are_those_of_the_recording() -> None:
    only = FiguresOnly()
    steps = (("prune_history", 900, 500),)
    for model, figures in (
        ("a", Figures(900, 500, 1.1, steps)),
        ("a", Figures(800, 800, 0.85)),
        ("b", Figures()),
        ("b", Figures(10, 10, 0.1)),
    ):
        only.add(Recorded(model=model, figures=figures))
    sums = only.total
    assert (sums.requests, sums.planned, sums.over, sums.near, sums.cut) == (4, 3, 1, 1, 1)
    assert (sums.prompt, sums.prompt_sent, only.models["a"].prompt) == (1_710, 1_310, 1_700)
    assert (only.steps["prune_history"].requests, only.steps["prune_history"].tokens) == (1, 400)


def test_steps_are_bounded() -> None:
    only = FiguresOnly()
    for number in range(MAX_GROUPS + 5):
        only.add(Recorded(model="m", figures=Figures(9, 5, 1.0, ((f"step {number}", 9, 5),))))
    assert len(only.steps) == MAX_GROUPS + 1 and only.steps[OTHERS].requests == 5


def costs(*found: Result, prices: Prices | None = PRICES) -> Tally:
    """The sums of these results at these prices."""
    made = Tally(lambda recorded: lambda model, upstream: prices)
    for one in found:
        made.add(one, 0)
    return made


def test_M6_a_tier_costs_what_it_costs_whether_it_was_asked_for_or_reported() -> None:
    tiered = replace(PRICES, tiers={"flex": (Rates(0.5, 5.0, 0.05), ())})
    asked = costs(result(planned(tier="flex")), prices=tiered).total
    told = costs(result(planned(), usage=Usage(8_192, tier="flex")), prices=tiered).total
    usual = costs(result(planned(tier="flex"), usage=Usage(8_192, tier="default")), prices=tiered).total
    assert (asked.asked_net, told.asked_net, usual.asked_net) == (4_096, 4_096, 8_192)


def test_M6_what_is_billed_otherwise_counts() -> None:
    usage = Usage(8_192, 10, reasoning=4, written=100, extra=Extra(written_hour=50, searches=2))
    rich = Prices(Rates(1.0, 10.0, 0.1, 2.0, 4.0, reasoning=20.0), search=100.0)
    found = costs(result(planned(), usage=usage), prices=rich).total
    half = 8_192 // 2
    assert found.asked_net == pytest.approx(half * 2.0 + half * 4.0 + 6 * 10 + 4 * 20 + 200)


def test_M5_a_reported_cost_outranks_the_prices_and_scales_what_was_not_sent() -> None:
    usage = Usage(8_192, 0, extra=Extra(cost=16_384.0))
    same, cut = costs(result(planned(), usage=usage)).total, costs(result(planned(sent=4_096), usage=usage)).total
    assert same.asked_net == same.sent_net == pytest.approx(16_384)
    assert cut.asked_net == pytest.approx(16_384) and cut.sent_net == pytest.approx(8_192)


def test_a_reported_cost_needs_no_price_for_what_is_sent_as_it_was() -> None:
    usage = Usage(8_192, 0, extra=Extra(cost=2.5))
    same = costs(result(planned(), usage=usage), prices=None)
    cut = costs(result(planned(sent=4_096), usage=usage), prices=None)
    assert (same.total.priced, same.total.asked_net, dict(same.unpriced)) == (1, 2.5, {})
    assert (cut.total.unpriced, [one.model for one in cut.unpriced]) == (1, ["m"])


def test_U26_models_without_a_price_are_named_with_where_and_why() -> None:
    rows = (
        result(planned(), upstream="own"),
        result(planned(), provider="groq"),
        result(planned(), provider="groq"),
        result(replace(planned(), model="x" * 10_000, model_sent="x" * 10_000)),
    )
    found = costs(*rows, prices=None).unpriced
    assert found[WithoutPrice("m", "groq", Unpriced.MODEL)] == 2
    assert found[WithoutPrice("m", "own", Unpriced.MODEL)] == 1
    assert max(len(one.model) for one in found) == MAX_NAME
    searched = costs(result(planned(), usage=Usage(8_192, extra=Extra(searches=1)))).unpriced
    assert list(searched) == [WithoutPrice("m", "", Unpriced.SEARCHES)]


def test_models_without_a_price_are_bounded() -> None:
    made = [replace(planned(), model=f"m{i}", model_sent=f"m{i}") for i in range(MAX_GROUPS + 5)]
    found = costs(*map(result, made), prices=None).unpriced
    assert len(found) == MAX_GROUPS + 1 and found[WithoutPrice(OTHERS, "", Unpriced.MODEL)] == 5


def test_a_model_in_place_of_the_recorded_one_has_nothing_of_where_that_was_sent() -> None:
    asked: list[tuple[str, str | None]] = []

    def prices(model: str, upstream: str | None) -> Prices | None:
        asked.append((model, upstream))
        return None

    usage = Usage(8_192, model="another")
    for moved in (False, True):
        Tally(lambda recorded: prices, moved).add(result(planned(), upstream="groq", usage=usage), 0)
    assert asked == [("m", "groq"), ("another", "groq"), ("m", None)]


def test_U27_requests_are_counted_by_the_name_of_their_caller() -> None:
    found = tally(
        result(planned(caller="team-a"), name="ann", app="ann", caller="00f9"),
        result(planned(), name="bob", app="bob", caller="00f9"),
        result(planned(), app="search", caller="00f9"),
        result(planned(), caller="00f9"),
        result(planned(possible=False, changes=False, too_long=True), caller="00f9"),
    )
    assert {name: sums.requests for name, sums in found.callers.items()} == {
        "team-a": 1,
        "bob": 1,
        "search": 1,
        "00f9": 2,
    }
    assert found.rules == {"team-a": 1} and (found.total.held, found.total.unfit) == (1, 0)


def test_U27_figures_alone_have_money_and_callers() -> None:
    only = FiguresOnly(prices=lambda recorded: lambda model, upstream: PRICES if model == "cheap" else None)
    for name, model in (("ann", "cheap"), ("ann", "dear"), ("bob", "cheap")):
        only.add(Recorded(model="dear", model_sent=model, name=name, usage=Usage(100, 2), figures=Figures(200, 100)))
    only.add(Recorded(model="cheap", name="bob", figures=Figures(200, 100)))
    ann, bob = only.callers["ann"], only.callers["bob"]
    assert (ann.requests, ann.priced, ann.unpriced, ann.sent_net) == (2, 1, 1, 120)
    assert (bob.requests, bob.priced, bob.unpriced, bob.sent_net) == (2, 1, 0, 120)
