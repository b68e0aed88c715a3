"""In which words each provider says that a request is too long, for the simulator; it counts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.model.lenient_json import Json

SLOT = "$"  # where a body holds the message
OPENAI = {"message": SLOT, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
VLLM = {"object": "error", "message": SLOT, "type": "BadRequestError", "param": None, "code": 400}


def _in_error(**fields: Json) -> Json:
    return {"error": fields}


@dataclass(frozen=True, slots=True)
class Speech:
    """How a provider says that a request is too long: one text for a prompt that is alone over the window, one for
    prompt and reply together; without the latter it just writes less. Texts name {window}, {prompt}, {reply},
    {total} and {excess}.

    `stops` says that it stops counting a prompt one token after it is too long, `finish` that it answers 200 with
    nothing but this finish reason.
    """

    prompt: str
    together: str = ""
    status: int = 400
    body: Json = field(default_factory=lambda: {"error": OPENAI})
    stops: bool = False
    finish: str = ""

    def refusal(self, window: int, prompt: int, reply: int) -> tuple[int, bytes] | None:
        """Status and body for a prompt of so many tokens and a reply limit (0: none); None where both fit."""
        if prompt <= window and (not self.together or prompt + reply <= window):
            return None
        text = self.prompt if prompt > window or not self.together else self.together
        shown = min(prompt, window - reply + 1) if self.stops and reply < window else prompt
        total = shown + reply
        message = text.format(window=window, prompt=shown, reply=reply, total=total, excess=prompt - window)
        if not self.body:
            return self.status, b""
        return self.status, msgspec.json.encode(self.body).replace(b'"$"', msgspec.json.encode(message))


OLD_PROMPT = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens. "
    "Please reduce the length of the messages."
)
OLD_TOGETHER = (
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({prompt} in the "
    "messages, {reply} in the completion). Please reduce the length of the messages or completion."
)
NEW = "Your input exceeds the context window of this model. Please adjust your input and try again."
AT_LEAST = (
    "This model's maximum context length is {window} tokens. However, you requested {reply} output tokens and your "
    "prompt contains at least {prompt} input tokens, for a total of at least {total} tokens. Please reduce the length "
    "of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt})"
)
SPEECHES: Mapping[str, Speech] = {
    "openai": Speech(NEW, NEW),
    "openai-old": Speech(OLD_PROMPT, OLD_TOGETHER),
    "azure": Speech(
        "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in {prompt} tokens. "
        "Please reduce the length of the messages.",
        OLD_TOGETHER,
    ),
    "anthropic": Speech(
        "prompt is too long: {prompt} tokens > {window} maximum",
        "input length and `max_tokens` exceed context limit: {prompt} + {reply} > {window}, decrease input length or "
        "`max_tokens` and try again",
        body={"type": "error", "error": {"type": "invalid_request_error", "message": SLOT}},
    ),
    "mistral": Speech(
        "Prompt contains {prompt} tokens, too large for model with {window} maximum context length",
        body={"object": "error", "message": SLOT, "type": "invalid_request_error", "param": None, "code": "3051"},
    ),
    "deepseek": Speech(OLD_TOGETHER, OLD_TOGETHER, body={"error": {**OPENAI, "param": None, "code": None}}),
    "gemini": Speech(
        "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window}).",
        body=_in_error(code=400, message=SLOT, status="INVALID_ARGUMENT"),
    ),
    "xai": Speech(
        "This model's maximum prompt length is {window} but the request contains {prompt} tokens.",
        body={"code": "Client specified an invalid argument", "error": SLOT},
    ),
    "groq": Speech(*("Please reduce the length of the messages or completion.",) * 2),
    "cerebras": Speech("", status=413, body=None),
    "cohere": Speech(
        "too many tokens: size limit exceeded by {excess} tokens. Try using shorter or fewer inputs. The limit for "
        "this model is {window} tokens.",
        body={"message": SLOT},
    ),
    "bedrock": Speech("Input is too long for requested model.", body={"message": SLOT}),
    "openrouter": Speech(
        *(
            "This endpoint's maximum context length is {window} tokens. However, you requested about {total} tokens "
            "({prompt} of text input, {reply} in the output). Please reduce the length of either one.",
        )
        * 2,
        body=_in_error(message=SLOT, code=400),
    ),
    "zai": Speech("", status=200, finish="model_context_window_exceeded"),
    "vllm": Speech(OLD_TOGETHER, OLD_TOGETHER, body=VLLM),
    "vllm-2026": Speech(AT_LEAST, AT_LEAST, body={"error": {**VLLM, "param": "input_tokens"}}, stops=True),
    "sglang": Speech(
        "The input ({prompt} tokens) is longer than the model's context length ({window} tokens).",
        "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a total of "
        "{total} tokens: {prompt} tokens from the input messages and {reply} tokens for the completion.",
        body=VLLM,
    ),
    "tgi": Speech(
        *(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: {prompt} `inputs` "
            "tokens and {reply} `max_new_tokens`",
        )
        * 2,
        status=422,
        body={"error": SLOT, "error_type": "validation"},
    ),
    "llamacpp": Speech(
        "request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it",
        body=_in_error(code=400, message=SLOT, type="exceed_context_size_error"),
    ),
    "ollama": Speech(
        "prompt too long; exceeded max context length by {excess} tokens",
        body=_in_error(message=SLOT, type="invalid_request_error", param=None, code=None),
    ),
    "lmstudio": Speech(
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: {prompt} >= "
        "n_ctx: {window}). Try to load the model with a larger context length, or provide a shorter prompt.",
        body={"error": SLOT},
    ),
}
