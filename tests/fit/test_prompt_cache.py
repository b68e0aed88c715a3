"""The model of prompt caches: what is read of a prompt by what was sent before it."""

from __future__ import annotations

import pytest

from proxy.fit.money import BREAKPOINT, CACHES, PromptCache
from proxy.fit.prompt_cache import Hit, Pieces, PrefixStore
from proxy.model.structs import replace

OPENAI, ANTHROPIC, GEMINI, DEEPSEEK = (CACHES[name] for name in ("openai", "anthropic", "gemini", "deepseek"))
FIRST = Pieces((1, 2), (1_000, 1_500))
GROWN = Pieces((1, 2, 3), (1_000, 1_500, 1_700))


def test_the_first_prompt_reads_nothing_and_is_written() -> None:
    assert PrefixStore().add("a", FIRST, 0.0, OPENAI) == Hit(0, 1_408)  # 1,024 and three steps of 128


def test_a_prompt_that_grew_reads_its_prefix_in_whole_steps() -> None:
    store = PrefixStore()
    store.add("a", FIRST, 0.0, OPENAI)
    assert store.add("a", GROWN, 5.0, OPENAI) == Hit(1_408, 256)


def test_a_short_prefix_is_not_read() -> None:
    store = PrefixStore()
    store.add("a", FIRST, 0.0, OPENAI)
    assert store.add("a", Pieces((1, 9), (1_000, 3_000)), 5.0, OPENAI).read == 0
    store.add("b", FIRST, 0.0, DEEPSEEK)
    assert store.add("b", Pieces((1, 9), (1_000, 3_000)), 5.0, DEEPSEEK).read == 960


def test_a_prefix_that_changed_early_is_lost_and_the_rest_of_it_kept() -> None:
    store = PrefixStore()
    store.add("a", Pieces((1, 2, 3), (2_000, 4_000, 6_000)), 0.0, GEMINI)
    assert store.add("a", Pieces((1, 7, 9), (2_000, 4_000, 6_000)), 1.0, GEMINI) == Hit(2_000, 4_000)
    assert store.add("a", Pieces((8, 10, 11), (2_000, 4_000, 6_000)), 1.0, GEMINI).read == 0


@pytest.mark.parametrize(("later", "read"), [(600.0, 1_408), (601.0, 0)])
def test_a_prefix_is_forgotten_some_time_after_its_last_use(later: float, read: int) -> None:
    store = PrefixStore()
    store.add("a", FIRST, 0.0, OPENAI)
    assert store.add("a", GROWN, later, OPENAI).read == read


def test_use_keeps_a_prefix() -> None:
    store = PrefixStore()
    for at in (0.0, 500.0, 1_000.0):
        hit = store.add("a", FIRST, at, OPENAI)
    assert hit.read == 1_408


def test_scopes_share_nothing() -> None:
    store = PrefixStore()
    store.add(("ann", "gpt-4o"), FIRST, 0.0, OPENAI)
    assert store.add(("bob", "gpt-4o"), FIRST, 0.0, OPENAI).read == 0
    assert store.add(("ann", "gpt-4o-mini"), FIRST, 0.0, OPENAI).read == 0


def test_without_marks_nothing_is_cached_where_marks_are_needed() -> None:
    store = PrefixStore()
    assert store.add("a", FIRST, 0.0, ANTHROPIC) == Hit()
    assert store.add("a", FIRST, 0.0, ANTHROPIC) == Hit()


def test_what_was_marked_is_read_and_what_came_since_is_written() -> None:
    store = PrefixStore()
    assert store.add("a", Pieces((1, 2), (1_000, 1_500), (1,)), 0.0, ANTHROPIC) == Hit(0, 1_500)
    grown = Pieces((1, 2, 3, 4), (1_000, 1_500, 1_700, 1_800), (0, 2))
    assert store.add("a", grown, 1.0, ANTHROPIC) == Hit(1_500, 200)
    assert store.add("a", grown, 2.0, ANTHROPIC) == Hit(1_700, 0)


def test_a_prefix_that_was_sent_but_not_marked_is_not_read() -> None:
    store = PrefixStore()
    store.add("a", Pieces((1, 2, 3), (2_000, 3_000, 4_000), (0,)), 0.0, ANTHROPIC)
    assert store.add("a", Pieces((1, 2, 3), (2_000, 3_000, 4_000), (2,)), 1.0, ANTHROPIC) == Hit(2_000, 2_000)


def test_nothing_behind_the_last_mark_is_read() -> None:
    store = PrefixStore()
    store.add("a", Pieces((1, 2), (2_000, 3_000), (1,)), 0.0, ANTHROPIC)
    assert store.add("a", Pieces((1, 2), (2_000, 3_000), (0,)), 1.0, ANTHROPIC) == Hit(0, 2_000)


def test_a_prompt_without_pieces_costs_nothing() -> None:
    assert PrefixStore().add("a", Pieces((), ()), 0.0, OPENAI) == Hit()


AT_BREAKPOINTS = PromptCache(1024, 1, 1800.0, match=BREAKPOINT)


def test_a_cache_at_breakpoints_reads_up_to_the_newest_message_of_an_earlier_prompt() -> None:
    store = PrefixStore()
    assert store.add("a", Pieces((1, 2), (2_000, 3_000), newest=1), 0.0, AT_BREAKPOINTS) == Hit(0, 3_000)
    grown = Pieces((1, 2, 3, 4), (2_000, 3_000, 3_500, 4_000), newest=3)
    assert store.add("a", grown, 1_800.0, AT_BREAKPOINTS) == Hit(3_000, 1_000)


def test_a_cache_at_breakpoints_reads_nothing_of_a_prefix_that_ends_at_none() -> None:
    store = PrefixStore()
    store.add("a", Pieces((1, 2), (9_000, 9_500), newest=1), 0.0, AT_BREAKPOINTS)
    other = Pieces((1, 7), (9_000, 9_500), newest=1)
    assert store.add("a", other, 1.0, AT_BREAKPOINTS) == Hit(0, 9_500), "the same 9,000 tokens, another last message"
    assert store.add("b", replace(other, newest=-1), 1.0, AT_BREAKPOINTS) == Hit(), "the client turned them off"


def test_a_mark_of_the_client_is_a_breakpoint_too() -> None:
    store = PrefixStore()
    store.add("a", Pieces((1, 2), (9_000, 9_500), (0,), 1), 0.0, AT_BREAKPOINTS)
    assert store.add("a", Pieces((1, 7), (9_000, 9_500), (0,), 1), 1.0, AT_BREAKPOINTS) == Hit(9_000, 500)
