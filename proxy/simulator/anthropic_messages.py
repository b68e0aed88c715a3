"""The simulator's Messages API: counts, refuses as Anthropic does, and replies by a fixed script.

Its parser is its own: a message that the proxy loses or groups wrongly has to show up in the count.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from proxy.simulator.anthropic_context import COMPACTED, Read, as_read, compaction
from proxy.simulator.anthropic_request import AnthropicError, Request, blocks_of
from proxy.simulator.anthropic_thinking import sign, transformations
from proxy.simulator.anthropic_threads import Threads, hold, whole
from proxy.simulator.anthropic_validation import validate
from proxy.simulator.asgi import Response
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json, decode_object
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.replies import PARALLEL, TOKEN, TOOL_MODEL, goes_on, sample
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.tokens.meter import prompt_tokens

PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
MAX_BYTES = 32 << 20  # of a request
PATHS = (PATH, COUNT_PATH)
API = "messages"  # the name of its recipe in `proxy.tokens`
THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
REQUEST_ID = (b"request-id", b"req_simulator")
SSE_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), REQUEST_ID)
JSON_HEADERS = ((b"content-type", b"application/json"), REQUEST_ID)
COMPATIBLE = ("bedrock", "vllm", "vllm-2026", "llamacpp", "sglang")  # servers with errors of their own
LONG_BETA = "context-1m-"  # makes the windows of these models longer, ...
LONG_MODEL = re.compile(r"sonnet-4(?:-5|-2\d{7}|-0)?(?!-?\d)")
LONGER = 5  # ... so many times
SUMMARY_TOKENS = 20  # of what a compaction writes
CACHED, WRITTEN = 2, 4  # parts of a prompt with marks: a half of it is read from the cache, a quarter written to it
THOUGHT = "The simulator thinks."

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: its blocks, why it stopped, and the tokens of prompt and reply. `marked`: the prompt has marks of
    caching. `summarised`: tokens that were compacted first. `more`: what else the answer reports."""

    id: str
    model: str
    blocks: tuple[dict[str, Any], ...]
    stop: str
    prompt: int
    completion: int
    marked: bool
    summarised: int = 0
    more: Mapping[str, Json] = field(default_factory=dict)

    def usage(self, output: int) -> dict[str, Json]:
        """The `usage` object. What was cached is not in `input_tokens`."""
        read, written = (self.prompt // CACHED, self.prompt // WRITTEN) if self.marked else (0, 0)
        steps = (("compaction", self.summarised, SUMMARY_TOKENS), ("message", self.prompt, output))
        listed = [{"type": kind, "input_tokens": given, "output_tokens": said} for kind, given, said in steps]
        return {
            **({"iterations": listed} if self.summarised else {}),
            "input_tokens": self.prompt - read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "output_tokens": output,
        }


async def answer(request: RecordedRequest, config: SimulatorConfig, threads: Threads) -> Response:
    """The response to a request of one of `PATHS`; `threads` are what it holds. Raises `ApiError`."""
    if request.method != "POST":
        raise AnthropicError(405, "Method Not Allowed")
    if config.api_key and config.api_key.encode() not in _keys(request):
        raise AnthropicError(401, "invalid x-api-key")
    if request.header(b"anthropic-version") is None:
        raise AnthropicError(400, "anthropic-version: header is required")
    raw = request.decompressed()
    if len(raw) > MAX_BYTES:
        raise AnthropicError(413, "Request exceeds the maximum size")
    body = decode_object(raw)
    if body is None:
        raise AnthropicError(400, "The request body is not valid JSON")
    if body.get("thread"):
        body = whole(body, threads)
        raw = msgspec.json.encode(body)
    counting = request.path == COUNT_PATH
    betas = tuple((request.header(b"anthropic-beta") or b"").decode("latin-1").replace(" ", "").split(","))
    version = (request.header(b"anthropic-version") or b"").decode("latin-1")
    asked = Request(body, betas, config.max_output, counting, version)
    error = validate(asked)
    if error is not None:
        raise error
    read = await _read(raw, body, config)
    if counting:
        managed = {"context_management": {"original_input_tokens": read.original}} if read.managed else {}
        return _json(msgspec.json.encode({"input_tokens": read.prompt, **managed}))
    return _complete(asked, read, config, threads)


async def _read(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> Read:
    """What the model reads of a request."""
    if config.count is not None:
        tokens = config.count(raw)
        return Read(body, tokens, tokens)
    counted = partial(as_read, body, lambda shown: count_prompt(raw if shown is body else msgspec.json.encode(shown)))
    return await asyncio.to_thread(counted) if len(raw) > THREAD_MIN_BYTES else counted()


def _keys(request: RecordedRequest) -> tuple[bytes, ...]:
    """The keys that a client sent, in either header."""
    bearer = (request.header(b"authorization") or b"").removeprefix(b"Bearer ")
    return request.header(b"x-api-key") or b"", bearer


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a request's JSON. Raises `ApiError` (400) for a body that it cannot parse."""
    try:
        fields = _FIELDS.decode(body)
        model = msgspec.json.decode(fields.pop("model"), type=str)
        messages = [(API, bytes(raw)) for raw in _LIST.decode(fields.pop("messages"))]
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnthropicError(400, f"Invalid request: {error}") from None
    system = fields.pop("system", None)
    told = messages if system is None else [(API, bytes(system)), *messages]
    return prompt_tokens(model, {key: bytes(raw) for key, raw in fields.items()}, [[m] for m in told], API)


def _complete(asked: Request, read: Read, config: SimulatorConfig, threads: Threads) -> Response:
    """The response to a valid request."""
    body, model, separate = asked.body, asked.model, asked.separate
    window = config.windows.get(model, config.window)
    if LONG_MODEL.search(model) and asked.may(LONG_BETA):
        window = LONGER * window
    prompt = SUMMARY_TOKENS if read.compacts and not read.ends else read.prompt
    if config.truncates:
        prompt = read_of(prompt, window)
    refusal = _refusal(body, prompt, window, separate, config)
    if refusal is not None:
        return refusal
    if read.ends:
        reply = Reply(_ident(body), model, (compaction(),), COMPACTED, prompt, SUMMARY_TOKENS, False)
    else:
        reply = reply_to(body, prompt, config.text, window - prompt if separate else None)
    if read.compacts and not read.ends:
        reply = replace(reply, blocks=(compaction(), *reply.blocks), summarised=read.prompt)
    edits = {"context_management": {"applied_edits": list(read.edits)}} if read.managed else {}
    dropped = transformations(body)
    reply = replace(reply, more={**edits, **({"input_transformations": dropped} if dropped else {})})
    hold(body, reply.id, reply.blocks, threads)
    if body.get("stream"):
        return Response(200, SSE_HEADERS, _failing(events(reply), config.fail_after))
    return _json(message(reply))


def _refusal(
    body: Mapping[str, Any], prompt: int, window: int, separate: bool, config: SimulatorConfig
) -> Response | None:
    """The refusal of a prompt that is too long. Raises `AnthropicError`; servers with an envelope of their own
    answer."""
    own = config.provider in COMPATIBLE
    reply = 0 if separate and not own else body["max_tokens"]
    refusal = chat_format(config.provider if own else "anthropic").refusal(window, prompt, reply)
    if refusal is None:
        return None
    status, text = refusal
    if own:
        return _json(text, status)
    error = AnthropicError(status, msgspec.json.decode(text)["error"]["message"])
    if not (config.in_stream and body.get("stream")):
        raise error
    return Response(200, SSE_HEADERS, (event("error", error=msgspec.json.decode(error.body())["error"]),))


def _failing(told: Iterator[bytes], after: int | None) -> Iterator[bytes]:
    """The events of a stream that may break off: after so many, it says that the provider is overloaded."""
    yield from islice(told, after)
    if after is not None:
        yield event("error", error={"type": "overloaded_error", "message": "Overloaded"})


def _ident(body: Mapping[str, Any]) -> str:
    return f"msg_sim{zlib.crc32(msgspec.json.encode(body)):08x}"


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "", room: int | None = None) -> Reply:
    """The reply to a valid request: tool calls or JSON where the request requires them, else `text`. `room`: tokens
    until the window is full, where the reply may end."""
    seed = zlib.crc32(msgspec.json.encode(body))
    blocks: list[dict[str, Any]] = []
    if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        signature = sign(body, len(body["messages"]), THOUGHT)
        blocks.append({"type": "thinking", "thinking": THOUGHT, "signature": signature})
    calls = _calls(body, seed)
    stop = "tool_use" if calls else "end_turn"
    size = sum(len(TOKEN.findall(str(call["input"]))) for call in calls)
    if not calls:
        words = TOKEN.findall(_json_text(body) or text or f"The simulator read {len(body['messages'])} messages.")
        size = min(len(words), body["max_tokens"], len(words) if room is None else room)
        if size < len(words):
            stop = "max_tokens" if size == body["max_tokens"] else "model_context_window_exceeded"
        blocks += [{"type": "text", "text": "".join(words[:size])}] if size else []
    marked = b'"cache_control"' in msgspec.json.encode(body)
    return Reply(_ident(body), body["model"], (*blocks, *calls), stop, prompt, size, marked)


def _calls(body: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """The calls of a reply: of a required or named tool, or those that the model's name selects."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict) and "input_schema" in tool]
    choice, model = body.get("tool_choice") or {}, body["model"]
    last = body["messages"][-1]
    results = any(block.get("type") == "tool_result" for block in blocks_of(last))
    answered = results and not goes_on(model, last)
    if choice.get("type") == "tool":
        tools = [tool for tool in tools if tool.get("name") == choice.get("name")]
    elif choice.get("type") == "none" or not (choice.get("type") == "any" or (TOOL_MODEL in model and not answered)):
        return []
    count = 2 if PARALLEL in model and not choice.get("disable_parallel_tool_use") else 1
    return [
        {"type": "tool_use", "id": f"toolu_{seed:08x}{i}", "name": tool["name"], "input": sample(tool["input_schema"])}
        for i, tool in enumerate(islice((tool for _ in range(count) for tool in tools), count))
    ]


def _json_text(body: Mapping[str, Any]) -> str:
    """JSON where the request requires it, else an empty text."""
    form = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    return msgspec.json.encode(sample(form["schema"])).decode() if "schema" in form else ""


def message(reply: Reply) -> bytes:
    """The reply as the JSON of a response that is not streamed."""
    return msgspec.json.encode(_envelope(reply, reply.blocks, reply.stop, reply.completion))


def _envelope(reply: Reply, blocks: Json, stop: str | None, output: int) -> dict[str, Json]:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": reply.usage(output),
        **({} if stop is None else reply.more),
    }


def events(reply: Reply) -> Iterator[bytes]:
    """The reply as server-sent events."""
    yield event("message_start", message=_envelope(reply, [], None, 1))
    yield event("ping")
    for index, block in enumerate(reply.blocks):
        yield event("content_block_start", index=index, content_block=_opened(block))
        for delta in _deltas(block):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    usage = {"output_tokens": reply.completion}
    yield event("message_delta", delta={"stop_reason": reply.stop, "stop_sequence": None}, usage=usage, **reply.more)
    yield event("message_stop")


def event(kind: str, **fields: Json) -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _opened(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as its first event has it: without what its deltas bring."""
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}, "content": None}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Json]]:
    if block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        for part in TOKEN.findall(msgspec.json.encode(block["input"]).decode()):
            yield {"type": "input_json_delta", "partial_json": part}
    elif block["type"] == COMPACTED:
        yield {"type": "compaction_delta", "content": block["content"], "signature": block["signature"]}
    else:
        for word in TOKEN.findall(block["text"]):
            yield {"type": "text_delta", "text": word}


def failure(error: ApiError) -> AnthropicError:
    """An error of the simulator's in Anthropic's envelope."""
    return error if isinstance(error, AnthropicError) else AnthropicError(error.status, error.message)


def _json(body: bytes, status: int = 200) -> Response:
    middle = len(body) // 2  # two chunks, so that `abort_after=1` aborts in the middle
    return Response(status, (*JSON_HEADERS, (b"content-length", b"%d" % len(body))), (body[:middle], body[middle:]))
