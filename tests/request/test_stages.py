"""The stages of a request, and the record of its times."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.model.limits import Window
from proxy.model.outcome import Usage
from proxy.model.plan import Mode
from proxy.model.scan import Scan
from proxy.request.stages import Answered, Counted, Planned, Received, Record, Scanned
from proxy.wire.tap import Tap
from tests.request.test_context import request


def test_the_upstreams_time_is_only_that_between_sending_and_its_end() -> None:
    record = Record()
    record.stop_waiting()
    assert record.upstream_seconds == 0.0
    record.attempt((), "")
    time.sleep(0.01)
    record.stop_waiting()
    once = record.upstream_seconds
    assert once >= 0.01
    record.stop_waiting()
    assert record.upstream_seconds == once
    record.attempt((), "")
    record.stop_waiting()
    assert record.upstream_seconds > once


@pytest.mark.parametrize("mode", Mode)
def test_only_fit_and_strict_change_anything(mode: Mode) -> None:
    assert Received(API, mode).may_change == (mode in ("fit", "strict"))


def test_usage_is_what_the_tap_read() -> None:
    tap = Tap(API, "application/json")
    tap.feed(b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}')
    context = request()
    context.answered = Answered(200, tap=tap)
    assert context.outcome().usage == Usage(5, 2)


def test_the_stages_cannot_be_changed() -> None:
    scan = Scan("m", None, False, 1)
    received = Received(API, Mode.FIT)
    stages: list[Any] = [received, Scanned(b"", scan), Counted(Window(1)), Planned(received), Answered(200)]
    for stage in stages:
        with pytest.raises(AttributeError):
            setattr(stage, type(stage).__struct_fields__[0], None)
