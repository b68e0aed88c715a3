"""The simulated list of models: the models that have windows of their own, or one model by its name."""

from __future__ import annotations

import re

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response, whole
from proxy.simulator.check import ApiError
from proxy.simulator.openai_server import check_method
from proxy.simulator.replies import CREATED
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

PATHS = re.compile(r"/v1/models(?:/(.+))?", re.DOTALL)


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    check_method(request, "GET")
    found = PATHS.fullmatch(request.path)
    return whole(200, listed((found and found[1]) or "", config))


def listed(name: str, config: SimulatorConfig) -> bytes:
    """The list of models, or the one of this name. Raises `ApiError` (404)."""
    models = config.windows if not name else {name: config.window_of(name)}
    if name and config.windows and name not in config.windows:
        raise ApiError(404, f"The model '{name}' does not exist", code="model_not_found", param="model")
    entries = [
        {"id": model, "object": "model", "created": CREATED, "owned_by": config.owner}
        | ({config.window_field: window} if config.window_field else {})
        for model, window in models.items()
    ]
    return msgspec.json.encode(entries[0] if name else {"object": "list", "data": entries})
