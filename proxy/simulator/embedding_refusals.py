"""How each server of embeddings refuses an input that is too long, or cuts it: wording, and the field that asks for the
cut. It does not count tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from proxy.simulator.check import ApiError
from proxy.simulator.json import Json
from proxy.simulator.refusals import MESSAGE, VLLM

ERROR = {"message": MESSAGE, "type": "invalid_request_error", "param": None, "code": None}
NO_CUT = ("NONE", "none", False, 0, None)  # values of a field that cut nothing


class Refused(ApiError):
    """A refusal in the shape of its own server."""

    def __init__(self, status: int, message: str, shape: Json) -> None:
        super().__init__(status, message)
        self.shape = shape

    def body(self) -> bytes:
        """Its JSON."""
        return msgspec.json.encode(self.shape).replace(b'"$"', msgspec.json.encode(self.message))


@dataclass(frozen=True, slots=True)
class EmbeddingRefusal:
    """How one server treats an input that is longer than its limit.

    `text` may use {index}, {limit}, {prompt} and {excess}, in tokens. `truncate`: the field of a request that asks for
    a cut of the input at one end; empty where there is none. `cuts`: it cuts where the request does not say. `batch`:
    its limit is the one of a single pass, and not the window.
    """

    text: str
    status: int = 400
    body: Json = field(default_factory=lambda: {"error": ERROR})
    truncate: str = ""
    cuts: bool = False
    batch: bool = False

    def allows(self, body: Mapping[str, Json]) -> bool:
        """Whether inputs that are too long are cut, for a request."""
        if self.truncate and self.truncate in body:
            return body[self.truncate] not in NO_CUT
        return self.cuts

    def limit(self, window: int, batch: int) -> int:
        """Its limit, of a window and of the size of a pass."""
        return batch if self.batch else window

    def refusal(self, index: int, limit: int, prompt: int) -> Refused:
        """The refusal of one input. All sizes are in tokens."""
        message = self.text.format(index=index, limit=limit, prompt=prompt, excess=prompt - limit)
        return Refused(self.status, message, self.body)


OPENAI = EmbeddingRefusal(
    "This model's maximum context length is {limit} tokens, however you requested {prompt} tokens ({prompt} in your "
    "prompt; 0 for the completion). Please reduce your prompt; or completion length."
)
LLAMACPP = {"code": 500, "message": MESSAGE, "type": "server_error"}
EMBEDDERS: Mapping[str, EmbeddingRefusal] = {
    "openai": EmbeddingRefusal("Invalid 'input[{index}]': maximum input length is {limit} tokens."),
    "llamacpp": EmbeddingRefusal(
        "input ({prompt} tokens) is too large to process. increase the physical batch size (current batch size: "
        "{limit})",
        500,
        {"error": LLAMACPP},
        batch=True,
    ),
    "tei": EmbeddingRefusal(
        "Input validation error: `inputs` must have less than {limit} tokens. Given: {prompt}",
        413,
        {"error": MESSAGE, "error_type": "Validation"},
        "truncate",
    ),
    "voyage": EmbeddingRefusal(
        "The example at index {index} in your batch has too many tokens and does not fit into the model's context "
        "window of {limit} tokens. Please lower the number of tokens in the example or use truncation.",
        body={"detail": MESSAGE},
        truncate="truncation",
        cuts=True,
    ),
    "vllm": EmbeddingRefusal(
        "This model's maximum context length is {limit} tokens. However, you requested {prompt} tokens in the input "
        "for embedding generation. Please reduce the length of the input.",
        body=VLLM,
        truncate="truncate_prompt_tokens",
    ),
    "cohere": EmbeddingRefusal(
        "too many tokens: size limit exceeded by {excess} tokens. Try using shorter or fewer inputs. The limit for "
        "this model is {limit} tokens.",
        body={"message": MESSAGE},
        truncate="truncate",
        cuts=True,
    ),
    "ollama": EmbeddingRefusal("the input length exceeds the context length", cuts=True),
}


def embedder(provider: str) -> EmbeddingRefusal:
    """How a provider's embeddings refuse; as OpenAI's did where it has no wording of its own."""
    return EMBEDDERS.get(provider, OPENAI)
