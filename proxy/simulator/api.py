"""What the application knows of an API: its paths, its answers and the shape of its errors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proxy.simulator.asgi import Response
from proxy.simulator.check import ApiError
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

Held = defaultdict[str, dict[str, Any]]  # what is held between requests, by its kind; APIs of one server share a kind
Answer = Callable[[RecordedRequest, SimulatorConfig, Held], Awaitable[Response]]


def unchanged(error: ApiError) -> ApiError:
    """The error itself: its shape is OpenAI's."""
    return error


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    `paths`: the paths that it serves, whole. `answer`: the response to a request; raises `ApiError`. `failure`: an
    error in the API's own shape. `checks_keys`: it looks for the key itself, in a header of its own. `deployed`: its
    path behind the name of one of Azure's deployments; empty where it is not deployed.
    """

    paths: re.Pattern[str]
    answer: Answer
    failure: Callable[[ApiError], ApiError] = unchanged
    checks_keys: bool = False
    deployed: str = ""

    def serves(self, path: str) -> bool:
        """Whether a path is one of this API."""
        return self.paths.fullmatch(path) is not None
