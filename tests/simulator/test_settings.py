"""The simulator's configuration, and what a request changes of it."""

from __future__ import annotations

import asyncio
import gzip

import msgspec
import pytest

from proxy.simulator.app import SimulatorConfig, simulator
from proxy.simulator.settings import OVERRIDES, RecordedRequest, with_overrides
from tests.simulator.test_app import COUNTED, USER, asked, exchange


def overridden(config: SimulatorConfig, *headers: tuple[bytes, bytes]) -> SimulatorConfig:
    return with_overrides(config, RecordedRequest("POST", "/v1/x", b"", headers, b""))


VALUES = {"provider": "tgi", "refusal_event": "error", "text": "Yes.", "in_stream": True, "truncates": True}


@pytest.mark.parametrize("header", OVERRIDES)
def test_every_override_sets_its_field_for_one_request(header: bytes) -> None:
    name = OVERRIDES[header][0]
    value = VALUES.get(name, 1)
    sent = str(int(value) if isinstance(value, bool) else value).encode()
    assert getattr(overridden(SimulatorConfig(), (header, sent)), name) == value
    assert getattr(SimulatorConfig(), name) != value


def test_a_window_of_one_request_is_that_of_every_model() -> None:
    config = SimulatorConfig(window=10, windows={"m": 20})
    assert [config.window_of(model) for model in ("m", "x")] == [20, 10]
    assert overridden(config, (b"x-sim-window", b"5")).window_of("m") == 5


def test_an_unknown_provider_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown provider klingon; known are openai, "):
        SimulatorConfig(provider="klingon")


@pytest.mark.parametrize(("name", "value"), [(b"x-sim-window", b"many"), (b"x-sim-provider", b"klingon")])
def test_a_behaviour_that_does_not_exist_is_refused(name: bytes, value: bytes) -> None:
    got = asked(simulator(COUNTED), headers=[(name, value)])
    assert (got.status, got.told[:21]) == (400, "Invalid x-sim header:")


def test_a_packed_body_is_read_and_one_that_only_says_so_is_taken_as_it_is() -> None:
    app, packed = simulator(COUNTED), [(b"content-encoding", b"gzip")]
    body = msgspec.json.encode({"model": "m", "messages": [USER]})
    assert asyncio.run(exchange(app, body=gzip.compress(body), headers=packed)).status == 200
    assert asyncio.run(exchange(app, body=body, headers=packed)).status == 200
