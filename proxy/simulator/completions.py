"""The simulated Completions API: prompts are texts or token ids; each is answered separately, and must fit alone."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.simulator.asgi import Headers, Response
from proxy.simulator.check import ApiError, empty_array, invalid
from proxy.simulator.json import Json
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.replies import CREATED, TOKEN, event
from proxy.simulator.settings import SimulatorConfig
from proxy.tokens.meter import prompt_tokens

API = "completions"
PATHS = ("/v1/completions", "/openai/v1/completions")
DEFAULT_REPLY = 16
MAX_BEST_OF = 20
THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
JSON: Headers = ((b"content-type", b"application/json"),)
EVENTS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
OPENAI = ("openai", "openai-old", "azure")
REFUSAL = (
    "This model's maximum context length is {window} tokens, however you requested {total} tokens ({prompt} in your "
    "prompt; {reply} for the completion). Please reduce your prompt; or completion length."
)

Prompt = str | Sequence[int]


async def respond_to(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> Response:
    """The response to a request. Raises `ApiError`."""
    _check(body)
    prompts = prompts_of(body)
    asked = body.get("max_tokens")
    reply = DEFAULT_REPLY if asked is None else asked
    count = config.count
    if count is not None:
        counts = [count(raw)]
    elif len(raw) > THREAD_MIN_BYTES:
        counts = await asyncio.to_thread(_counts, body, prompts)
    else:
        counts = _counts(body, prompts)
    window = config.windows.get(body["model"], config.window)
    if config.truncates:
        counts = [read_of(count, window) for count in counts]
    longest = max(counts)
    refusal = _refusal(config.provider, window, longest, reply)
    if refusal is not None:
        return _json(*refusal)
    return _answer(body, prompts, sum(counts), reply, config)


def prompts_of(body: Mapping[str, Any]) -> list[Prompt]:
    """The prompts of a valid body."""
    prompt = body["prompt"]
    return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


def tokens_of(model: str, text: Prompt, api: str = API) -> int:
    """Tokens of one text or list of ids."""
    return len(text) if isinstance(text, list) else prompt_tokens(model, {}, [[("", msgspec.json.encode(text))]], api)


def _counts(body: Mapping[str, Any], prompts: Sequence[Prompt]) -> list[int]:
    suffix = tokens_of(body["model"], body["suffix"]) if body.get("suffix") else 0
    return [tokens_of(body["model"], prompt) + suffix for prompt in prompts]


def _refusal(provider: str, window: int, prompt: int, reply: int) -> tuple[int, bytes] | None:
    if provider not in OPENAI:
        return chat_format(provider).refusal(window, prompt, reply)
    if prompt + reply <= window:
        return None
    text = REFUSAL.format(window=window, total=prompt + reply, prompt=prompt, reply=reply)
    code = None if provider == "openai-old" else "context_length_exceeded"
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": code}
    return 400, msgspec.json.encode({"error": error})


def _check(body: Mapping[str, Any]) -> None:
    """Raises `ApiError` for a request that OpenAI would refuse, whatever its length."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise ApiError(400, "you must provide a model parameter")
    _check_prompt(body.get("prompt"))
    for name, least, most in (("max_tokens", 0, None), ("n", 1, 128), ("best_of", 0, MAX_BEST_OF)):
        _check_number(name, body.get(name), least, most)
    if (body.get("best_of") or body.get("n") or 1) < (body.get("n") or 1):
        raise ApiError(400, "You requested that the server return more choices than it will generate (n > best_of).")
    if body.get("max_tokens") == 0 and not body.get("echo"):
        raise invalid("max_tokens must be at least 1 unless echo is set.", "integer_below_min_value", "max_tokens")
    if body.get("suffix") is not None and not isinstance(body["suffix"], str):
        raise invalid("Invalid type for 'suffix': expected a string.", "invalid_type", "suffix")
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise invalid(text, "", "stream_options")


def _check_prompt(prompt: Json) -> None:
    if prompt == []:
        raise empty_array("prompt")
    if not (isinstance(prompt, str) or _is_ids(prompt) or _is_batch(prompt)):
        text = "Invalid type for 'prompt': expected one of a string, array of strings, array of integers or array of "
        raise invalid(text + "integer arrays.", "invalid_type", "prompt")


def _is_ids(prompt: Json) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(i) is int and i >= 0 for i in prompt)


def _is_batch(prompt: Json) -> bool:
    if not isinstance(prompt, list):
        return False
    return all(isinstance(one, str) for one in prompt) or all(map(_is_ids, prompt))


def _check_number(name: str, value: Json, least: int, most: int | None) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise invalid(f"Invalid type for '{name}': expected an integer.", "invalid_type", name)
    if value < least or (most is not None and value > most):
        raise invalid(f"Invalid '{name}': {value} is out of range.", "integer_below_min_value", name)


def _answer(
    body: Mapping[str, Any], prompts: Sequence[Prompt], tokens: int, reply: int, config: SimulatorConfig
) -> Response:
    seed = zlib.crc32(msgspec.json.encode(body))
    envelope = {"id": f"cmpl-sim{seed:08x}", "object": "text_completion", "created": CREATED, "model": body["model"]}
    words = TOKEN.findall(config.text or f" the simulator read {tokens} tokens.")
    finish, words = "stop" if reply >= len(words) else "length", words[:reply]
    texts = [_echo(prompt, body) for prompt in prompts for _ in range(body.get("n") or 1)]
    completion = len(words) * len(texts)
    usage = {"prompt_tokens": tokens, "completion_tokens": completion, "total_tokens": tokens + completion}
    if body.get("stream"):
        options = body.get("stream_options")
        wants = isinstance(options, dict) and options.get("include_usage") is True
        return Response(200, EVENTS, _events(envelope, texts, words, finish, usage if wants else None))
    choices = [_choice(i, echo + "".join(words), finish) for i, echo in enumerate(texts)]
    return _json(200, msgspec.json.encode({**envelope, "choices": choices, "usage": usage}))


def _echo(prompt: Prompt, body: Mapping[str, Any]) -> str:
    if not body.get("echo"):
        return ""
    return prompt if isinstance(prompt, str) else f"<{len(prompt)} tokens>"


def _choice(index: int, text: str, finish: str | None) -> dict[str, Json]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


def _events(
    envelope: Mapping[str, Json], echoes: Sequence[str], words: Sequence[str], finish: str, usage: Json
) -> Iterator[bytes]:
    for i, echo in enumerate(echoes):
        for text in (*((echo,) if echo else ()), *words):
            yield event({**envelope, "choices": [_choice(i, text, None)]})
        yield event({**envelope, "choices": [_choice(i, "", finish)]})
    if usage is not None:
        yield event({**envelope, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _json(status: int, encoded: bytes) -> Response:
    middle = len(encoded) // 2  # two chunks, so that a response can be aborted in the middle
    chunks: Iterable[bytes] = (encoded[:middle], encoded[middle:])
    return Response(status, (*JSON, (b"content-length", b"%d" % len(encoded))), chunks)
