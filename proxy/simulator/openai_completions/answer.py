"""The simulated Completions API: prompts are texts or token ids; each is answered separately, and must fit alone."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import EVENT_HEADERS, Response, whole
from proxy.simulator.check import ApiError, empty_array, invalid
from proxy.simulator.counting import Prompt, counted, is_ids, tokens_of
from proxy.simulator.json import Json
from proxy.simulator.openai_server import posted
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.replies import CREATED, TOKEN, event, wants_usage
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

PATHS = re.compile(r"(?:/openai)?/v1/completions")
RECIPE = "completions"  # its name in `proxy.tokens`
DEFAULT_REPLY = 16
MAX_BEST_OF = 20
OPENAI = ("openai", "openai-old", "azure")
REFUSAL = (
    "This model's maximum context length is {window} tokens, however you requested {total} tokens ({prompt} in your "
    "prompt; {reply} for the completion). Please reduce your prompt; or completion length."
)


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    raw, body = posted(request)
    _check(body)
    prompts = prompts_of(body)
    asked = body.get("max_tokens")
    reply = DEFAULT_REPLY if asked is None else asked
    counts = [config.count(raw)] if config.count else await counted(raw, partial(_counts, body, prompts))
    window = config.window_of(body["model"])
    if config.truncates:
        counts = [read_of(count, window) for count in counts]
    longest = max(counts)
    refusal = _refusal(config.provider, window, longest, reply)
    if refusal is not None:
        return whole(*refusal)
    return _answer(body, prompts, sum(counts), reply, config)


def prompts_of(body: Mapping[str, Any]) -> list[Prompt]:
    """The prompts of a valid body."""
    prompt = body["prompt"]
    return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


def _counts(body: Mapping[str, Any], prompts: Sequence[Prompt]) -> list[int]:
    suffix = tokens_of(body["model"], body["suffix"], RECIPE) if body.get("suffix") else 0
    return [tokens_of(body["model"], prompt, RECIPE) + suffix for prompt in prompts]


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
    if not (isinstance(prompt, str) or is_ids(prompt) or _is_batch(prompt)):
        text = "Invalid type for 'prompt': expected one of a string, array of strings, array of integers or array of "
        raise invalid(text + "integer arrays.", "invalid_type", "prompt")


def _is_batch(prompt: Json) -> bool:
    if not isinstance(prompt, list):
        return False
    return all(isinstance(one, str) for one in prompt) or all(map(is_ids, prompt))


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
        return Response(
            200, EVENT_HEADERS, _events(envelope, texts, words, finish, usage if wants_usage(body) else None)
        )
    choices = [_choice(i, echo + "".join(words), finish) for i, echo in enumerate(texts)]
    return whole(200, msgspec.json.encode({**envelope, "choices": choices, "usage": usage}))


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
