"""Paths that are not fitted: what is logged of them, once each and not without end."""

from __future__ import annotations

import pytest

from proxy.config.settings import read_settings
from proxy.request.unfitted import MAX_NAMED, Unfitted
from proxy.services import build


def unfitted() -> Unfitted:
    return build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), lambda outcome: None).unfitted


def test_a_path_is_logged_once_and_clients_cannot_fill_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    one = unfitted()
    for _ in range(2):
        one.log_unfitted("GET", b"/v1/files")
    for number in range(2 * MAX_NAMED):
        one.log_unfitted("GET", b"/v1/audio/%d" % number)
    assert capfd.readouterr().err.count("endpoint=GET /v1/files") <= 1
    assert len(list(one.unfitted)) <= MAX_NAMED and "GET /v1/files" in one.unfitted


def test_under_other_rules_it_knows_what_it_has_logged() -> None:
    one = unfitted()
    one.log_unfitted("GET", b"/v1/files")
    other = one.with_rules(one.routes, one.models, one.reporter, None)
    assert list(other.unfitted) == list(one.unfitted)
