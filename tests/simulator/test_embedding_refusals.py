"""What servers of embeddings say of an input that is too long, and that the proxy knows it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.simulator.embedding_refusals import EMBEDDERS, OPENAI, Refused
from proxy.simulator.openai_embeddings.answer import embeddings
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.refusals import compile_rules, recognise

RULES = compile_rules(tomllib.loads((Path(__file__).parents[2] / "rules/refusals.toml").read_text("utf-8")))
LIMIT, SENT = 600, 700
SAID = {
    "openai": (400, "Invalid 'input[1]': maximum input length is 600 tokens."),
    "openai-old": (
        400,
        "This model's maximum context length is 600 tokens, however you requested 700 tokens (700 in your prompt; 0 "
        "for the completion). Please reduce your prompt; or completion length.",
    ),
    "llamacpp": (
        500,
        "input (700 tokens) is too large to process. increase the physical batch size (current batch size: 600)",
    ),
    "tei": (413, "Input validation error: `inputs` must have less than 600 tokens. Given: 700"),
    "voyage": (
        400,
        "The example at index 1 in your batch has too many tokens and does not fit into the model's context window of "
        "600 tokens. Please lower the number of tokens in the example or use truncation.",
    ),
    "vllm": (
        400,
        "This model's maximum context length is 600 tokens. However, you requested 700 tokens in the input for "
        "embedding generation. Please reduce the length of the input.",
    ),
    "cohere": (
        400,
        "too many tokens: size limit exceeded by 100 tokens. Try using shorter or fewer inputs. The limit for this "
        "model is 600 tokens.",
    ),
}
CUT: dict[str, dict[str, Any]] = {
    "tei": {"truncate": True},
    "voyage": {},
    "vllm": {"truncate_prompt_tokens": -1},
    "cohere": {"truncate": "START"},
    "ollama": {},
}
WHOLE: dict[str, dict[str, Any]] = {"voyage": {"truncation": False}, "cohere": {"truncate": "NONE"}}


def asked(provider: str, size: int = SENT, **fields: Any) -> Any:
    """The answer to a request with a short input and one of so many tokens. Raises `Refused`."""
    config = SimulatorConfig(provider=provider, window=10_000 if provider == "llamacpp" else LIMIT, batch=LIMIT)
    return msgspec.json.decode(embeddings({"model": "emb", "input": [[7], [7] * size], **fields}, config))


@pytest.mark.parametrize("provider", SAID)
def test_an_input_that_is_too_long_is_refused_in_words_that_the_proxy_knows(provider: str) -> None:
    with pytest.raises(Refused) as caught:
        asked(provider, **WHOLE.get(provider, {}))
    status, said = SAID[provider]
    assert (caught.value.status, caught.value.message) == (status, said)
    body = caught.value.body()
    assert said.encode() in body.replace(b"\\", b"") and msgspec.json.decode(body)
    found = recognise(RULES, status, body)
    assert found is not None and found.limit == LIMIT
    assert found.prompt == (None if provider in ("openai", "voyage") else SENT)
    assert found.bounds == ("request" if provider == "llamacpp" else found.bounds)
    assert asked(provider, LIMIT)["usage"]["prompt_tokens"] == 1 + LIMIT


@pytest.mark.parametrize("provider", CUT)
def test_it_is_cut_where_the_server_or_the_request_says_so(provider: str) -> None:
    assert asked(provider, **CUT[provider])["usage"]["prompt_tokens"] == 1 + LIMIT
    assert len(asked(provider, **CUT[provider])["data"]) == 2


def test_every_server_has_its_case() -> None:
    assert set(SAID) | set(CUT) == {*EMBEDDERS, "openai-old"}
    assert OPENAI not in EMBEDDERS.values()
