"""The proxy's rules recognise the refusals of every provider that the simulator knows."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import msgspec
import pytest

from proxy.model.outcome import Refusal
from proxy.simulator.app import SimulatorConfig, simulator
from proxy.simulator.refusals import PROVIDERS, read_of
from proxy.wire.refusals import compile_rules, recognise
from tests.simulator.test_app import exchange

RULES = compile_rules(tomllib.loads((Path(__file__).parents[2] / "rules/refusals.toml").read_text("utf-8")))
WINDOW = 8192
SILENT = {"openai", "groq", "cerebras", "bedrock"}  # they name no figures
NO_PROMPT = SILENT | {"gemini-openai"}
NO_LIMIT = SILENT | {"ollama"}


def refused(provider: str, prompt: int, reply: int) -> tuple[int, bytes]:
    found = PROVIDERS[provider].refusal(WINDOW, prompt, reply)
    assert found is not None
    return found


def known(provider: str, prompt: int, reply: int) -> Refusal:
    found = recognise(RULES, *refused(provider, prompt, reply))
    assert found is not None
    return found


SPEAKING = sorted(name for name, format_ in PROVIDERS.items() if not format_.finish)


@pytest.mark.parametrize("provider", SPEAKING)
def test_a_prompt_over_the_window_is_refused_in_words_that_the_proxy_knows(provider: str) -> None:
    found = known(provider, 9000, 0)
    assert found.limit == (None if provider in NO_LIMIT else WINDOW)
    if provider == "vllm-2026":
        assert (found.prompt, found.at_least) == (WINDOW + 1, True)
    elif provider == "ollama":
        assert found.excess == 9000 - WINDOW
    else:
        assert found.prompt == (None if provider in NO_PROMPT else 9000)


@pytest.mark.parametrize("provider", sorted(name for name, format_ in PROVIDERS.items() if format_.total_text))
def test_so_are_prompt_and_reply_together(provider: str) -> None:
    found = known(provider, 6000, 3000)
    if provider in SILENT:
        assert found.limit is None
    elif provider == "vllm-2026":
        assert (found.limit, found.prompt, found.completion, found.at_least) == (WINDOW, 5193, 3000, True)
    else:
        assert (found.limit, found.prompt, found.completion) == (WINDOW, 6000, 3000)


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_what_fits_to_the_token_is_not_refused(provider: str) -> None:
    assert PROVIDERS[provider].refusal(WINDOW, 5192, 3000) is None
    assert PROVIDERS[provider].refusal(WINDOW, WINDOW, 0) is None
    assert PROVIDERS[provider].refusal(WINDOW, WINDOW + 1, 0) is not None


def test_where_a_provider_just_writes_less_a_reply_that_is_too_long_is_no_reason() -> None:
    assert PROVIDERS["gemini"].refusal(WINDOW, 8000, 100_000) is None


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_a_body_is_json_or_empty(provider: str) -> None:
    body = refused(provider, 9000, 500)[1]
    assert body == b"" or (
        isinstance(msgspec.json.decode(body), dict | list) and b'"$"' not in body and b"{window}" not in body
    )


def test_a_server_that_truncates_says_nothing_of_it() -> None:
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "word " * 200}]})

    def read(window: int) -> int:
        app = simulator(SimulatorConfig(window=window, truncates=True, provider="ollama"))
        return int(asyncio.run(exchange(app, body=body)).json["usage"]["prompt_tokens"])

    assert read(100) == read_of(101, 100) == 50
    assert read(1_000) > 200 and read_of(100, 100) == 100
