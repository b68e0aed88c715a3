"""Which part of a prompt was sent before: as the client sent it, and as it went upstream."""

from __future__ import annotations

from proxy.model.outcome import FIRST, KEPT, MOVED, Repeated
from proxy.request.sent_prefixes import Prefixes, SentPrefixes

A, B = b"a" * 16, b"b" * 16
SAME = ("gpt-4o", "gpt-4o")


def test_a_conversation_that_grows_repeats_what_was_sent() -> None:
    seen = SentPrefixes()
    assert seen.add(A, SAME, Prefixes([1, 2], [900, 1_500]), None, 10.0) == Repeated(0, 0)
    assert seen.add(A, SAME, Prefixes([1, 2, 3, 4], [1_800, 2_000]), None, 15.0) == Repeated(1_500, 1_500, 5.0)


def test_a_prompt_with_another_last_message_repeats_what_stood_before_it() -> None:
    seen = SentPrefixes()
    seen.add(A, SAME, Prefixes([1, 2], [900, 1_500]), None, 10.0)
    assert seen.add(A, SAME, Prefixes([1, 9], [900, 1_700]), None, 11.0) == Repeated(900, 900, 1.0)


def test_neither_another_tenant_nor_another_model_repeats_it() -> None:
    seen = SentPrefixes()
    seen.add(A, SAME, Prefixes([1, 2], [900, 1_500]), None, 10.0)
    assert seen.add(B, SAME, Prefixes([1, 2, 3], [2_000]), None, 11.0) == Repeated(0, 0)
    assert seen.add(A, ("gpt-4o", "gpt-5"), Prefixes([1, 2, 3], [2_000]), None, 11.0) == Repeated(1_500, 0, 1.0)


def test_a_new_cut_moves_the_prefix_and_a_replayed_one_keeps_it() -> None:
    seen = SentPrefixes()

    def turn(count: int, prompt: int, digests: list[int], tokens: list[int]) -> Repeated:
        return seen.add(A, SAME, Prefixes(range(1, count), [prompt]), Prefixes(digests, tokens), count - 5.0)

    seen.add(A, SAME, Prefixes([1, 2, 3, 4], [7_000, 8_000]), None, 0.0)
    assert turn(6, 9_000, [11, 14, 15], [500, 3_000, 4_000]) == Repeated(8_000, 0, 1.0, MOVED)
    assert turn(7, 9_900, [11, 14, 15, 16], [500, 3_000, 4_000, 4_900]) == Repeated(9_000, 4_000, 1.0, KEPT)
    most = turn(8, 10_900, [11, 14, 17, 18], [500, 3_000, 3_400, 4_000])
    assert most == Repeated(9_900, 3_000, 1.0, KEPT), "all but a quote and the question, which are new at every turn"
    assert turn(9, 11_900, [11, 24, 25, 26], [500, 2_000, 3_000, 4_000]) == Repeated(10_900, 500, 1.0, MOVED)


def test_the_first_turn_that_is_seen_is_not_held_against_the_cut() -> None:
    assert SentPrefixes().add(A, SAME, Prefixes([1, 2], [9_000]), Prefixes([1, 3], [500, 4_000]), 0.0).prefix == FIRST


def test_what_a_client_asked_counts_whether_it_was_cut_or_not() -> None:
    seen = SentPrefixes()
    seen.add(A, SAME, Prefixes([1, 2], [9_000]), Prefixes([1, 3], [500, 4_000]), 0.0)
    seen.add(A, SAME, Prefixes([1], [500]), None, 1.0)
    assert seen.add(A, SAME, Prefixes([1, 2, 4], [9_500]), None, 3.0) == Repeated(9_000, 500, 2.0)
