"""How each provider refuses a request that is too long: status, body and wording. It does not count tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.simulator.json import Json

MESSAGE = "$"  # stands for the message in a body
OPENAI = {"message": MESSAGE, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
VLLM = {"object": "error", "message": MESSAGE, "type": "BadRequestError", "param": None, "code": 400}


def _in_error(**fields: Json) -> Json:
    return {"error": fields}


@dataclass(frozen=True, slots=True)
class RefusalFormat:
    """How one provider refuses a request that is too long.

    `prompt_text` is the message where the prompt alone exceeds the window, `total_text` where prompt and reply together
    do. Without `total_text` the provider shortens the reply instead. Texts may use {window}, {prompt}, {reply}, {total}
    and {excess}, all in tokens. `stops_counting`: the provider stops counting at the first token too many. `finish`:
    the provider answers 200 with an empty reply and this finish reason.
    """

    prompt_text: str
    total_text: str = ""
    status: int = 400
    body: Json = field(default_factory=lambda: {"error": OPENAI})
    stops_counting: bool = False
    finish: str = ""

    def refusal(self, window: int, prompt: int, reply: int) -> tuple[int, bytes] | None:
        """Status and body of the refusal; None where prompt and reply fit. All arguments are in tokens; `reply` is the
        request's reply limit, 0 for none."""
        if prompt <= window and (not self.total_text or prompt + reply <= window):
            return None
        text = self.prompt_text if prompt > window or not self.total_text else self.total_text
        counted = min(prompt, window - reply + 1) if self.stops_counting and reply < window else prompt
        total = counted + reply
        message = text.format(window=window, prompt=counted, reply=reply, total=total, excess=prompt - window)
        if not self.body:
            return self.status, b""
        return self.status, msgspec.json.encode(self.body).replace(b'"$"', msgspec.json.encode(message))


def read_of(prompt: int, window: int) -> int:
    """Tokens that are read of a prompt by a server that cuts without a word: half a window of what is too long."""
    return prompt if prompt <= window else window // 2


LEGACY_PROMPT = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens. "
    "Please reduce the length of the messages."
)
LEGACY_TOTAL = (
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({prompt} in the "
    "messages, {reply} in the completion). Please reduce the length of the messages or completion."
)
CURRENT = "Your input exceeds the context window of this model. Please adjust your input and try again."
AT_LEAST = (
    "This model's maximum context length is {window} tokens. However, you requested {reply} output tokens and your "
    "prompt contains at least {prompt} input tokens, for a total of at least {total} tokens. Please reduce the length "
    "of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt})"
)
PROVIDERS: Mapping[str, RefusalFormat] = {
    "openai": RefusalFormat(CURRENT, CURRENT),
    "openai-old": RefusalFormat(LEGACY_PROMPT, LEGACY_TOTAL),
    "azure": RefusalFormat(
        "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in {prompt} tokens. "
        "Please reduce the length of the messages.",
        LEGACY_TOTAL,
    ),
    "anthropic": RefusalFormat(
        "prompt is too long: {prompt} tokens > {window} maximum",
        "input length and `max_tokens` exceed context limit: {prompt} + {reply} > {window}, decrease input length or "
        "`max_tokens` and try again",
        body={"type": "error", "error": {"type": "invalid_request_error", "message": MESSAGE}},
    ),
    "mistral": RefusalFormat(
        "Prompt contains {prompt} tokens, too large for model with {window} maximum context length",
        body={"object": "error", "message": MESSAGE, "type": "invalid_request_error", "param": None, "code": "3051"},
    ),
    "deepseek": RefusalFormat(LEGACY_TOTAL, LEGACY_TOTAL, body={"error": {**OPENAI, "param": None, "code": None}}),
    "gemini": RefusalFormat(
        "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window}).",
        body=_in_error(code=400, message=MESSAGE, status="INVALID_ARGUMENT"),
    ),
    "gemini-openai": RefusalFormat(  # behind its path for clients of OpenAI's API
        "The input token count exceeds the maximum number of tokens allowed {window}.",
        body=[_in_error(code=400, message=MESSAGE, status="INVALID_ARGUMENT")],
    ),
    "xai": RefusalFormat(
        "This model's maximum prompt length is {window} but the request contains {prompt} tokens.",
        body={"code": "Client specified an invalid argument", "error": MESSAGE},
    ),
    "groq": RefusalFormat(*("Please reduce the length of the messages or completion.",) * 2),
    "cerebras": RefusalFormat("", status=413, body=None),
    "cohere": RefusalFormat(
        "too many tokens: size limit exceeded by {excess} tokens. Try using shorter or fewer inputs. The limit for "
        "this model is {window} tokens.",
        body={"message": MESSAGE},
    ),
    "bedrock": RefusalFormat("Input is too long for requested model.", body={"message": MESSAGE}),
    "copilot": RefusalFormat(
        "prompt token count of {prompt} exceeds the limit of {window}",
        body=_in_error(message=MESSAGE, code="model_max_prompt_tokens_exceeded"),
    ),
    "openrouter": RefusalFormat(
        *(
            "This endpoint's maximum context length is {window} tokens. However, you requested about {total} tokens "
            "({prompt} of text input, {reply} in the output). Please reduce the length of either one.",
        )
        * 2,
        body=_in_error(message=MESSAGE, code=400),
    ),
    "zai": RefusalFormat("", status=200, finish="model_context_window_exceeded"),
    "vllm": RefusalFormat(LEGACY_TOTAL, LEGACY_TOTAL, body=VLLM),
    "vllm-2026": RefusalFormat(
        AT_LEAST, AT_LEAST, body={"error": {**VLLM, "param": "input_tokens"}}, stops_counting=True
    ),
    "sglang": RefusalFormat(
        "The input ({prompt} tokens) is longer than the model's context length ({window} tokens).",
        "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a total of "
        "{total} tokens: {prompt} tokens from the input messages and {reply} tokens for the completion.",
        body=VLLM,
    ),
    "tgi": RefusalFormat(
        *(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: {prompt} `inputs` "
            "tokens and {reply} `max_new_tokens`",
        )
        * 2,
        status=422,
        body={"error": MESSAGE, "error_type": "validation"},
    ),
    "llamacpp": RefusalFormat(
        "request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it",
        body=_in_error(code=400, message=MESSAGE, type="exceed_context_size_error"),
    ),
    "ollama": RefusalFormat(
        "prompt too long; exceeded max context length by {excess} tokens",
        body=_in_error(message=MESSAGE, type="invalid_request_error", param=None, code=None),
    ),
    "lmstudio": RefusalFormat(
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: {prompt} >= "
        "n_ctx: {window}). Try to load the model with a larger context length, or provide a shorter prompt.",
        body={"error": MESSAGE},
    ),
}


def chat_format(provider: str) -> RefusalFormat:
    """The refusals of a provider's chats; OpenAI's where it serves embeddings alone."""
    return PROVIDERS.get(provider, PROVIDERS["openai-old"])
