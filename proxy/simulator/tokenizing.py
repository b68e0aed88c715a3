"""The simulator's endpoints of servers that count prompts on request: vLLM's and llama.cpp's `/tokenize`.

A count is that of a request with the same prompt, so it is true for the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from proxy.simulator.asgi import Response
from proxy.simulator.check import ApiError
from proxy.simulator.counting import count_prompt
from proxy.simulator.json import Json
from proxy.simulator.settings import SimulatorConfig

TOKENIZE, TEMPLATE = "/tokenize", "/apply-template"
PATHS = (TOKENIZE, TEMPLATE)
JSON_HEADERS = ((b"content-type", b"application/json"),)
WORD = "token "  # of the text that stands for an applied template: as many words as the prompt has tokens


async def respond_to(path: str, raw: bytes, body: Mapping[str, Json], config: SimulatorConfig) -> Response:
    """The response to a request of one of `PATHS`. Raises `ApiError`."""
    if "content" in body:  # llama.cpp
        return _json({"tokens": list(range(len(str(body["content"]).split())))})
    if "messages" not in body:
        raise ApiError(400, "messages is required")
    named = raw if "model" in body else msgspec.json.encode({"model": "default", **body})
    tokens = await asyncio.to_thread(config.count or count_prompt, named)
    if path == TEMPLATE:
        return _json({"prompt": WORD * tokens})
    window = config.windows.get(str(body.get("model", "")), config.window)
    return _json({"count": tokens, "max_model_len": window, "tokens": list(range(tokens)), "token_strs": None})


def _json(found: Json) -> Response:
    body = msgspec.json.encode(found)
    return Response(200, (*JSON_HEADERS, (b"content-length", b"%d" % len(body))), (body,))
