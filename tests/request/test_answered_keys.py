"""What answers say of callers' keys, and of which answers nothing is recorded."""

from __future__ import annotations

from typing import Any, cast

import pytest

from proxy.http.memory_budget import SMALL
from proxy.request.answered_keys import AnsweredKeys
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.key_checks import KeyChecks

WITH_KEY, WITHOUT = [(b"authorization", b"Bearer k")], [(b"accept", b"*/*")]


class Seen:
    """Records who calls it, as `KeyChecks` and as `ExtraCalls`."""

    def __init__(self, checked: bool = True) -> None:
        self.checked, self.statuses = checked, list[int]()

    def record_response(self, _: Any, status: int) -> None:
        self.statuses.append(status)


def made(keys: Seen, extra: Seen | None = None, accepted: Seen | None = None) -> AnsweredKeys:
    return AnsweredKeys(cast(KeyChecks, keys), cast(ExtraCalls | None, extra), cast(ExtraCalls | None, accepted))


def test_an_answer_to_a_small_request_that_is_no_refusal_is_not_recorded() -> None:
    keys, accepted = Seen(), Seen()
    made(keys, accepted=accepted).record(WITH_KEY, 200, SMALL)
    assert keys.statuses == accepted.statuses == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_a_key_always_is(status: int) -> None:
    keys = Seen()
    made(keys).record(WITH_KEY, status, 10)
    assert keys.statuses == [status]


def test_whose_large_body_was_accepted_is_recorded_for_the_budget_and_a_small_one_is_not() -> None:
    keys, accepted = Seen(), Seen()
    made(keys, accepted=accepted).record(WITH_KEY, 200, SMALL + 1)
    made(keys, accepted=accepted).record(WITH_KEY, 401, SMALL)
    assert keys.statuses == [200, 401] and accepted.statuses == [200]


def test_where_extra_calls_depend_on_it_every_answer_is_recorded_for_them() -> None:
    keys, extra, accepted = Seen(), Seen(), Seen()
    made(keys, extra, accepted).record(WITH_KEY, 200, 10)
    assert keys.statuses == extra.statuses == [200] and accepted.statuses == []


def test_an_upstream_that_checks_no_keys_accepts_nobody_by_a_key() -> None:
    extra = Seen()
    made(Seen(checked=False), extra).record(WITH_KEY, 200, 10)
    assert extra.statuses == []
    made(Seen(checked=False), extra).record(WITHOUT, 200, 10)
    assert extra.statuses == [200]
