"""Runs with screenshots in them: PNGs of a size and with a content, and requests of each API that have media."""

from __future__ import annotations

import base64
import itertools
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from proxy.apis import apis
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.conversation import Message, Prompt
from proxy.model.limits import Window
from proxy.model.plan import Facts, Plan
from proxy.tokens.meter import meter_for

Json = Any
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
MODELS = {"chat": "gpt-4o", "messages": "claude-sonnet-4-5", "responses": "gpt-4o"}
FIELDS = {"chat": "messages", "messages": "messages", "responses": "input"}
SIZES = ((1024, 768), (1280, 800), (1440, 900))
DEFAULT = load_rules(None).ladders["default"]
_COUNTS: Bounded[bytes, tuple[int, ...]] = Bounded(100_000)


def png(width: int, height: int, content: int = 0) -> str:
    """A valid PNG in black and white, in base64."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = b"\0" + content.to_bytes(4, "big") + bytes(-(-width // 8) - 4)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row * height))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


def shot(number: int) -> str:
    """The screenshot of a step."""
    return png(*SIZES[number % len(SIZES)], number)


def api_named(name: str) -> Api:
    return next(api for api in apis() if api.name == name)


def chat_image(data: str, **more: Json) -> dict[str, Json]:
    url = data if ":" in data else f"data:image/png;base64,{data}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}, **more}


def anthropic_image(data: str, **more: Json) -> dict[str, Json]:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": {"type": "url", "url": data} if ":" in data else source, **more}


def chat_step(number: int, data: str, said: str) -> list[Json]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "computer", "arguments": "{}"}}
    content = [{"type": "text", "text": said}, chat_image(data)]
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": content},
    ]


def anthropic_step(number: int, data: str, said: str) -> list[Json]:
    call = {"type": "tool_use", "id": f"call_{number}", "name": "computer", "input": {"step": number}}
    content = [{"type": "text", "text": said}, anthropic_image(data)]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def responses_step(number: int, data: str, said: str) -> list[Json]:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "high"}
    output = [{"type": "input_text", "text": said}, image]
    return [
        {"type": "function_call", "call_id": f"call_{number}", "name": "computer", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": output},
    ]


def computer_step(number: int, data: str, said: str) -> list[Json]:
    """A step of OpenAI's own tool for computers, which answers with nothing but a screenshot."""
    call = {"type": "computer_call", "id": f"cu_{number}", "call_id": f"call_{number}", "status": "completed"}
    picture = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{data}"}
    return [
        call | {"action": {"type": "screenshot"}, "pending_safety_checks": []},
        {"type": "computer_call_output", "call_id": f"call_{number}", "output": picture},
    ]


STEPS = {"chat": chat_step, "messages": anthropic_step, "responses": responses_step}


def said_at(number: int) -> str:
    return f"Step {number}: clicked on the button {number * 7}."


def run(name: str, shots: Sequence[str], words: int = 0, **more: Json) -> dict[str, Json]:
    """An agent's run of an API with a screenshot at each step."""
    steps = [STEPS[name](i, data, said_at(i) + " more" * words) for i, data in enumerate(shots)]
    task = {"role": "user", "content": "File the invoices of last month."}
    return body(name, [task, *itertools.chain.from_iterable(steps)], **more)


def body(name: str, messages: Sequence[Json], **more: Json) -> dict[str, Json]:
    """A request of an API with these messages."""
    limit = {"max_output_tokens": 500} if name == "responses" else {"max_tokens": 500}
    tools = {"tools": [{"name": "computer", "input_schema": {"type": "object"}}]} if name == "messages" else {}
    return {"model": MODELS[name], **limit, **tools, FIELDS[name]: list(messages), **more}


def parsed(name: str, request: Json) -> Prompt:
    return api_named(name).request.parse(json.dumps(request).encode())


def planned(name: str, request: Json, window: int, prompt: Prompt | None = None) -> Plan:
    """The plan of the default ladder, with the real counts."""
    prompt = prompt or parsed(name, request)
    return plan(prompt, DEFAULT, Facts(Window(window), meter_for(prompt, prompt.model, _COUNTS)))


def sent(name: str, request: Json, window: int) -> Json:
    """The body that is sent."""
    prompt = parsed(name, request)
    made = planned(name, request, window, prompt)
    assert made.fits
    return json.loads(api_named(name).request.render(prompt, made)) if made.changed else request


def texts_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts())


def images_in(value: Json) -> list[str]:
    """The data of the images in a body, in order."""
    if isinstance(value, dict):
        here = [value["data"]] if value.get("type") == "base64" else []
        return here + [one for each in value.values() for one in images_in(each)]
    if isinstance(value, list):
        return [one for each in value for one in images_in(each)]
    return [value.partition(",")[2]] if isinstance(value, str) and value.startswith("data:image") else []
