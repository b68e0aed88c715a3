"""What APIs share to count prompts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from proxy.simulator.counting import EMBEDDED, THREAD_MIN_BYTES, counted, is_ids, tokens_of


def test_only_large_bodies_are_counted_in_a_thread() -> None:
    def count() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert asyncio.run(counted(b"x" * THREAD_MIN_BYTES, count))
    assert not asyncio.run(counted(b"x" * (THREAD_MIN_BYTES + 1), count))


def test_ids_count_as_they_are_and_a_text_by_its_recipe() -> None:
    assert tokens_of("text-embedding-3-small", [7, 8, 9], EMBEDDED) == 3
    assert tokens_of("text-embedding-3-small", "hello hello", EMBEDDED) == 2


@pytest.mark.parametrize("value", [[], "x", [1, "a"], [-1], [True], [1.0], None, [[1]]])
def test_what_is_no_list_of_ids(value: Any) -> None:
    assert not is_ids(value)


def test_what_is_one() -> None:
    assert is_ids([0]) and is_ids([1, 2, 3])
