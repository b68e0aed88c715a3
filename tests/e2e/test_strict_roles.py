"""Upstreams that are strict about who speaks after whom: what they take straight they take when it was cut, too."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.simulator.app import SimulatorConfig
from proxy.simulator.check import validate
from proxy.simulator.openai_chat.validation import checks_for
from tests.e2e.services import before_simulator, body, sentence
from tests.makers import assistant, system, tool_round, user
from tests.serving import run

WINDOW = 8_000
MANY = 12
LADDERS = sorted(name for name, ladder in load_rules(None).ladders.items() if ladder.steps)
UPSTREAMS = (
    ("mistral", "mistral-medium-latest"),
    ("vllm", "mistralai/Mistral-7B-Instruct-v0.3"),
    ("vllm", "google/gemma-3-27b-it"),
)


def conversation(seed: int) -> list[dict[str, Any]]:
    """Sixty turns: a question, one or two rounds of tools in most of them, an answer; or answers alone."""
    drawn = random.Random(seed)
    told: list[dict[str, Any]] = [system("You help.")] if seed % 3 else []
    for turn in range(60):
        told.append(user(sentence(turn, drawn.choice((5, 40, 90)))))
        for i in range(drawn.choice((0, 1, 1, 2)) if seed % 4 else 0):
            told += tool_round(f"abc{turn:04d}{i:02d}", sentence(turn, drawn.choice((60, 400))))
        told.append(assistant(sentence(turn, drawn.choice((3, 60, 150)))))
    return [*told, user("What about entry 7 and its harbour?")]


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize(("provider", "model"), UPSTREAMS)
def test_what_a_strict_upstream_takes_straight_it_takes_cut(provider: str, model: str, ladder: str) -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(provider=provider, window=WINDOW)) as (up, proxy):
            for seed in range(MANY):
                sent = body(conversation(seed), model, max_tokens=500)
                assert validate(json.loads(sent), checks_for(provider)) is None
                window = b"x-plimsoll-window: %d" % WINDOW
                reply = await proxy.chat(sent, window, b"x-plimsoll-ladder: " + ladder.encode())
                assert reply.status == 200, reply.body
                assert len(up.received[-1].body) < len(sent)

    run(check(), 60)
