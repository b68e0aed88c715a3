"""The simulator's list of models."""

from __future__ import annotations

import asyncio

from proxy.simulator.app import SimulatorConfig, simulator
from tests.simulator.test_app import exchange


def test_models_are_listed_with_their_windows() -> None:
    app = simulator(SimulatorConfig(windows={"a": 1000, "b": 2000}, window_field="context_length"))
    listed = asyncio.run(exchange(app, "GET", "/v1/models")).json
    assert [(m["id"], m["object"], m["context_length"]) for m in listed["data"]] == [
        ("a", "model", 1000),
        ("b", "model", 2000),
    ]
    assert asyncio.run(exchange(app, "GET", "/v1/models/b")).json["context_length"] == 2000
    assert asyncio.run(exchange(app, "GET", "/v1/models/c")).status == 404
    silent = simulator(SimulatorConfig(window_field=""))
    assert set(asyncio.run(exchange(silent, "GET", "/v1/models/c")).json) == {"id", "object", "created", "owned_by"}
