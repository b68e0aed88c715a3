"""The proxy as it is shipped, on a real socket before any upstream; and the requests that tests send through it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.app import create_app
from proxy.config.settings import read_settings
from proxy.model.limits import LearnedLimits, Proof
from proxy.model.outcome import Outcome
from proxy.services import Services, build
from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from proxy.upstreams.internal_client import tenant_of
from tests.serving import Reply, ask, eventually, post, serving

PATH = b"/v1/chat/completions"
KEY = b"authorization: Bearer sk-test"
# Fields that fit no window of 8,192: the reply must be larger than what is to be thought.
TOO_MUCH: dict[str, Any] = {"max_tokens": 9001, "thinking": {"type": "enabled", "budget_tokens": 9000}}
TENANT = tenant_of([(b"authorization", b"Bearer sk-test")])


@dataclass(slots=True)
class Running:
    """A proxy, and what it told of the requests to it."""

    services: Services
    port: int
    outcomes: list[Outcome] = field(default_factory=list)

    async def chat(self, body: bytes, *headers: bytes) -> Reply:
        """The answer to one chat request."""
        return await ask(self.port, post(body, b"content-type: application/json", KEY, *headers, target=PATH))

    def learned(self, model: str) -> LearnedLimits:
        """What refusals proved of a model for the one who asks with `KEY`."""
        return self.services.cache.learned_limits(model, TENANT)

    def teach(self, model: str, learned: LearnedLimits) -> None:
        """As if a refusal had proved it."""
        self.services.cache.record_proof(model, TENANT, learned, Proof(0, 0))

    async def told(self, count: int = 1) -> Outcome:
        """The newest of so many outcomes; waits for it."""
        await eventually(lambda: len(self.outcomes) >= count, 30)
        return self.outcomes[count - 1]


@contextlib.asynccontextmanager
async def plimsoll(url: str, **environment: str) -> AsyncIterator[Running]:
    """A proxy before the upstream at `url`. Its rules find keys in `environment`."""
    outcomes: list[Outcome] = []
    services = build(
        read_settings({"PLIMSOLL_UPSTREAM": url, **environment}), outcomes.append, variables=lambda: environment
    )
    async with serving(create_app(services)) as server:
        yield Running(services, server.ports[0], outcomes)


@contextlib.asynccontextmanager
async def simulating(config: SimulatorConfig | None = None) -> AsyncIterator[tuple[Simulator, str]]:
    """A simulator, and its URL."""
    app = simulator(config)
    async with serving(app) as server:
        yield app, f"http://127.0.0.1:{server.ports[0]}/v1"


@contextlib.asynccontextmanager
async def before_simulator(config: SimulatorConfig, **environment: str) -> AsyncIterator[tuple[Simulator, Running]]:
    """A simulator, and a proxy before it."""
    async with simulating(config) as (app, url), plimsoll(url, **environment) as running:
        yield app, running


def ours(reply: Reply) -> dict[str, str]:
    """The x-plimsoll-* headers of an answer, without their prefix."""
    prefix = b"x-plimsoll-"
    return {n[len(prefix) :].decode(): v.decode() for n, v in reply.headers if n.lower().startswith(prefix)}


def error(reply: Reply) -> dict[str, Any]:
    """What stands under "error" in an answer: all four keys of OpenAI's shape are there."""
    found: dict[str, Any] = json.loads(reply.body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def sentence(number: int, words: int = 40) -> str:
    """A text of about one token a word, unlike any other number's."""
    return f"Entry {number}: " + " ".join(
        ("tide crane cargo pilot ballast harbour ledger rope".split() * words)[:words]
    )


def talk(turns: int, words: int = 40) -> list[dict[str, str]]:
    """A conversation: a system message, so many turns of some 47 tokens, a question."""
    said = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": sentence(i, words)} for i in range(turns - turns % 2)
    ]
    return [{"role": "system", "content": "Be brief."}, *said, {"role": "user", "content": "What is the last entry?"}]


def body(messages: Sequence[Any], model: str = "gpt-4", **fields: Any) -> bytes:
    """A request's JSON, its fields in the order in which they are given."""
    return json.dumps({"model": model, **fields, "messages": list(messages)}).encode()
