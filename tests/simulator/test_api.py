"""What the application knows of an API."""

from __future__ import annotations

import re

from proxy.simulator.api import Api, Held
from proxy.simulator.asgi import Response
from proxy.simulator.check import ApiError
from proxy.simulator.settings import RecordedRequest, SimulatorConfig


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    raise AssertionError(request)


def test_an_api_serves_whole_paths() -> None:
    api = Api(re.compile("/v1/a|/v1/a/b"), answer)
    assert api.serves("/v1/a") and api.serves("/v1/a/b")
    assert not any(map(api.serves, ("/v1/a/", "/v1/ab", "/v1/a\n", "x/v1/a", "")))


def test_errors_have_openais_shape_where_an_api_has_none_of_its_own() -> None:
    error = ApiError(400, "text", code="c", param="p")
    assert Api(re.compile("/v1/a"), answer).failure(error).body() == error.body()
