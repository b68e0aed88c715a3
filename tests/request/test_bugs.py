"""A failure of the proxy's own code: it is counted and logged with its type and place, never with its text."""

from __future__ import annotations

import pytest

from proxy.request.bugs import FAILED, report_bug
from proxy.request.stages import Record

CANARY = "canary-2718"


def test_a_bug_is_logged_by_its_type_and_the_place_that_raised_it(capfd: pytest.CaptureFixture[str]) -> None:
    def deep() -> None:
        raise KeyError(CANARY)

    record, line = Record(result="fitted"), deep.__code__.co_firstlineno + 1
    try:
        deep()
    except KeyError as error:
        report_bug(record, error)
    logged = capfd.readouterr().err
    assert record.result == "bug"
    assert f"a bug of ours was caught kind=KeyError at=test_bugs.py:{line}" in logged and CANARY not in logged


def test_an_exception_that_was_never_raised_has_no_place(capfd: pytest.CaptureFixture[str]) -> None:
    report_bug(record := Record(), ValueError(CANARY))
    logged = capfd.readouterr().err
    assert record.result == "bug" and "kind=ValueError at=" in logged and CANARY not in logged


def test_the_client_is_told_that_the_proxy_failed_and_nothing_else() -> None:
    assert (FAILED.status, FAILED.code) == (500, "proxy_error") and "proxy" in str(FAILED.message)
