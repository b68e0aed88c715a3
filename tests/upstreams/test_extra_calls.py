"""The account of extra calls: who may cause one, and when the budget is spent."""

from __future__ import annotations

import pytest

from proxy.upstreams import extra_calls as module
from proxy.upstreams.extra_calls import ACCEPTED_SECONDS, DAY, MOST_CALLERS, Extras

ALICE, BOB = b"alice", b"bob"


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_only_who_was_accepted_lately_may_cause_a_call(clock: Clock) -> None:
    account = Extras(100)
    assert account.why_not(ALICE, True) == "unaccepted"
    account.saw(ALICE, 400)
    assert account.why_not(ALICE, True) == "unaccepted"
    account.saw(ALICE, 200)
    assert (account.why_not(ALICE, True), account.why_not(BOB, True)) == ("", "unaccepted")
    account.saw(ALICE, 500)
    assert account.why_not(ALICE, True) == ""
    clock.now += ACCEPTED_SECONDS
    assert account.why_not(ALICE, True) == "unaccepted"


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_rejected_is_accepted_no_longer(status: int) -> None:
    account = Extras(100)
    account.saw(ALICE, 201)
    account.saw(ALICE, status)
    assert account.why_not(ALICE, True) == "unaccepted"


def test_clients_without_a_key_are_one_caller_unless_they_are_none() -> None:
    for keyless, why in ((True, ""), (False, "keyless")):
        account = Extras(100, keyless)
        account.saw(b"", 200)
        assert account.why_not(b"", False) == why


def test_rejected_keys_push_nobody_out() -> None:
    account = Extras(100)
    account.saw(ALICE, 200)
    for number in range(2 * MOST_CALLERS):
        account.saw(b"%d" % number, 401)
    assert account.why_not(ALICE, True) == ""


def test_a_budget_that_is_spent_is_there_again_a_day_later(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    account = Extras(100)
    account.saw(ALICE, 200)
    account.take(60)
    account.take(-20)
    assert account.left == 60
    account.take(70)
    account.take(1)
    assert (account.left, account.why_not(ALICE, True)) == (0, "over_budget")
    assert capfd.readouterr().err.count("the budget for extra calls is spent tokens=100 hours_left=24.0") == 1
    clock.now += DAY
    account.saw(ALICE, 200)
    assert (account.left, account.why_not(ALICE, True)) == (100, "")
    account.take(10)
    assert account.left == 90


def test_it_tells_calls_tokens_and_seconds_by_kind() -> None:
    account = Extras(100)
    account.note("summary", "ok", 10, 0.5)
    account.note("summary", "ok", 5, 0.25)
    account.note("summary", "unaccepted")
    account.note("embeddings", "failed", 0, 1.0)
    assert account.calls() == {("summary", "ok"): 2, ("summary", "unaccepted"): 1, ("embeddings", "failed"): 1}
    assert account.tokens() == {("summary",): 15, ("embeddings",): 0}
    assert account.seconds() == {("summary",): 0.75, ("embeddings",): 1.0}
