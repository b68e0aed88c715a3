"""Extra calls: who may cause one, and when the budget is spent."""

from __future__ import annotations

import pytest

from proxy.model.ports import ACCEPTED_S
from proxy.observe.log import event
from proxy.upstreams import extra_calls as module
from proxy.upstreams.extra_calls import DAY_S, MAX_CALLERS, ExtraCalls

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


def test_only_a_recently_accepted_caller_may_cause_a_call(clock: Clock) -> None:
    account = ExtraCalls(100)
    assert account.denial_reason(ALICE, True) == "unaccepted"
    account.record_response(ALICE, 400)
    assert account.denial_reason(ALICE, True) == "unaccepted"
    account.record_response(ALICE, 200)
    assert (account.denial_reason(ALICE, True), account.denial_reason(BOB, True)) == ("", "unaccepted")
    account.record_response(ALICE, 500)
    assert account.denial_reason(ALICE, True) == ""
    clock.now += ACCEPTED_S
    assert account.denial_reason(ALICE, True) == "unaccepted"


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_rejected_is_accepted_no_longer(status: int) -> None:
    account = ExtraCalls(100)
    account.record_response(ALICE, 201)
    account.record_response(ALICE, status)
    assert account.denial_reason(ALICE, True) == "unaccepted"


def test_clients_without_a_key_are_one_caller_unless_they_are_excluded() -> None:
    for keyless, why in ((True, ""), (False, "keyless")):
        account = ExtraCalls(100, keyless)
        account.record_response(b"", 200)
        assert account.denial_reason(b"", False) == why


def test_rejected_keys_evict_no_accepted_caller() -> None:
    account = ExtraCalls(100)
    account.record_response(ALICE, 200)
    for number in range(2 * MAX_CALLERS):
        account.record_response(b"%d" % number, 401)
    assert account.denial_reason(ALICE, True) == ""


def test_a_budget_that_is_spent_is_there_again_a_day_later(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    account = ExtraCalls(100, event=event)
    account.record_response(ALICE, 200)
    account.charge(60)
    account.charge(-20)
    assert account.left == 60
    account.charge(70)
    account.charge(1)
    assert (account.left, account.denial_reason(ALICE, True)) == (0, "over_budget")
    assert capfd.readouterr().err.count("the budget for extra calls is spent tokens=100 hours_left=24.0") == 1
    clock.now += DAY_S
    account.record_response(ALICE, 200)
    assert (account.left, account.denial_reason(ALICE, True)) == (100, "")
    account.charge(10)
    assert account.left == 90


def test_calls_tokens_and_seconds_are_reported_by_kind() -> None:
    account = ExtraCalls(100)
    account.record_call("summary", "ok", 10, 0.5)
    account.record_call("summary", "ok", 5, 0.25)
    account.record_call("summary", "unaccepted")
    account.record_call("embeddings", "failed", 0, 1.0)
    assert account.calls() == {("summary", "ok"): 2, ("summary", "unaccepted"): 1, ("embeddings", "failed"): 1}
    assert account.tokens() == {("summary",): 15, ("embeddings",): 0}
    assert account.seconds() == {("summary",): 0.75, ("embeddings",): 1.0}
