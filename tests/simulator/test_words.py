"""Whether every provider that the simulator plays is understood by the proxy's own rows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from proxy.model.outcome import Refusal
from proxy.simulator.words import SPEECHES
from proxy.wire.refusals import compile_rules, recognise

RULES = compile_rules(tomllib.loads((Path(__file__).parents[2] / "rules/refusals.toml").read_text("utf-8")))
WINDOW = 8192
SILENT = {"openai", "groq", "cerebras", "bedrock"}  # they name no figures
NO_LIMIT = SILENT | {"ollama"}


def refused(speaks: str, prompt: int, reply: int) -> tuple[int, bytes]:
    found = SPEECHES[speaks].refusal(WINDOW, prompt, reply)
    assert found is not None
    return found


def known(speaks: str, prompt: int, reply: int) -> Refusal:
    found = recognise(RULES, *refused(speaks, prompt, reply))
    assert found is not None
    return found


SPEAKING = sorted(name for name, speech in SPEECHES.items() if not speech.finish)


@pytest.mark.parametrize("speaks", SPEAKING)
def test_a_prompt_over_the_window_is_refused_in_words_that_the_proxy_knows(speaks: str) -> None:
    found = known(speaks, 9000, 0)
    assert found.limit == (None if speaks in NO_LIMIT else WINDOW)
    if speaks == "vllm-2026":
        assert (found.prompt, found.at_least) == (WINDOW + 1, True)
    elif speaks == "ollama":
        assert found.excess == 9000 - WINDOW
    else:
        assert found.prompt == (None if speaks in SILENT else 9000)


@pytest.mark.parametrize("speaks", sorted(name for name, speech in SPEECHES.items() if speech.together))
def test_so_are_prompt_and_reply_together(speaks: str) -> None:
    found = known(speaks, 6000, 3000)
    if speaks in SILENT:
        assert found.limit is None
    elif speaks == "vllm-2026":
        assert (found.limit, found.prompt, found.completion, found.at_least) == (WINDOW, 5193, 3000, True)
    else:
        assert (found.limit, found.prompt, found.completion) == (WINDOW, 6000, 3000)


@pytest.mark.parametrize("speaks", sorted(SPEECHES))
def test_what_fits_to_the_token_is_not_refused(speaks: str) -> None:
    assert SPEECHES[speaks].refusal(WINDOW, 5192, 3000) is None
    assert SPEECHES[speaks].refusal(WINDOW, WINDOW, 0) is None
    assert SPEECHES[speaks].refusal(WINDOW, WINDOW + 1, 0) is not None


def test_where_a_provider_just_writes_less_a_reply_that_is_too_long_is_no_reason() -> None:
    assert SPEECHES["gemini"].refusal(WINDOW, 8000, 100_000) is None


@pytest.mark.parametrize("speaks", sorted(SPEECHES))
def test_a_body_is_json_or_empty(speaks: str) -> None:
    body = refused(speaks, 9000, 500)[1]
    assert body == b"" or (
        isinstance(msgspec.json.decode(body), dict) and b'"$"' not in body and b"{window}" not in body
    )
