"""Azure's paths of deployments: the path names what runs, the query the version, and the key has its own header."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import msgspec

from proxy.simulator.check import ApiError
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

PREFIX = "/openai/deployments/"
NO_KEY = (
    "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an "
    "active subscription and use a correct regional API endpoint for your resource."
)
NO_DEPLOYMENT = (
    "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, "
    "please wait a moment and try again."
)


def serves(path: str) -> bool:
    """Whether a path is one of a deployment."""
    return path.startswith(PREFIX)


def authorize(request: RecordedRequest, config: SimulatorConfig) -> None:
    """Raises `ApiError` (401) for a wrong key."""
    bearer = request.header(b"authorization") == f"Bearer {config.api_key}".encode()
    if config.api_key and not bearer and request.header(b"api-key") != config.api_key.encode():
        raise ApiError(401, NO_KEY, code="401")


def as_openai(request: RecordedRequest, config: SimulatorConfig, deployed: Container[str]) -> RecordedRequest:
    """The same request for the model that the deployment runs. `deployed`: the paths behind the names of deployments.

    Raises `ApiError` (404).
    """
    name, _, rest = request.path.removeprefix(PREFIX).partition("/")
    if rest not in deployed or not parse_qs(request.query.decode("latin-1")).get("api-version"):
        raise ApiError(404, "Resource not found", code="404")
    model = config.deployments.get(name)
    if model is None:
        raise ApiError(404, NO_DEPLOYMENT, code="DeploymentNotFound")
    body = _decoded(request.decompressed())
    headers = tuple(header for header in request.headers if header[0] != b"content-encoding")
    content = request.body if body is None else msgspec.json.encode({**body, "model": model})
    return replace(request, path=f"/v1/{rest}", body=content, headers=request.headers if body is None else headers)


def _decoded(body: bytes) -> Mapping[str, Any] | None:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
