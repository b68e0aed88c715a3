"""The simulator's endpoints of servers that count prompts on request: vLLM's and llama.cpp's `/tokenize`.

A count is that of a request with the same prompt, so it is true for the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from proxy.simulator.asgi import JSON_HEADERS, Response
from proxy.simulator.check import ApiError
from proxy.simulator.counting import counted
from proxy.simulator.json import Json
from proxy.simulator.openai_chat.counting import count_prompt
from proxy.simulator.settings import SimulatorConfig

TOKENIZE, TEMPLATE = "/tokenize", "/apply-template"
PATHS = (TOKENIZE, TEMPLATE)
WORD = "token "  # of the text that stands for an applied template: as many words as the prompt has tokens


async def respond_to(path: str, raw: bytes, body: Mapping[str, Json], config: SimulatorConfig) -> Response:
    """The response to a request of one of `PATHS`. Raises `ApiError`."""
    if "content" in body:  # llama.cpp
        return _json({"tokens": list(range(len(str(body["content"]).split())))})
    if "messages" not in body:
        raise ApiError(400, "messages is required")
    named = raw if "model" in body else msgspec.json.encode({"model": "default", **body})
    tokens = await counted(named, partial(config.count or count_prompt, named))
    if path == TEMPLATE:
        return _json({"prompt": WORD * tokens})
    window = config.window_of(str(body.get("model", "")))
    return _json({"count": tokens, "max_model_len": window, "tokens": list(range(tokens)), "token_strs": None})


def _json(found: Json) -> Response:
    body = msgspec.json.encode(found)
    return Response(200, (*JSON_HEADERS, (b"content-length", b"%d" % len(body))), (body,))
