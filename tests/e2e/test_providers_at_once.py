"""Clients of two APIs, and upstreams of two APIs and behind litellm, all at once: every simulator is as strict as its
provider, has a key of its own, and must never see another one's."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from proxy.model.structs import replace
from proxy.simulator.app import Simulator, SimulatorConfig
from tests.e2e.client_scripts import CALLS, RESULTS
from tests.e2e.services import Running, plimsoll, sentence, simulating, talk
from tests.serving import eventually, run

anthropic: Any = pytest.importorskip("anthropic", reason="of the dev group: make sure that it is installed")

pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
MINE = "canary-of-the-client"  # the key of the default upstream
KEYS = {"large": "canary-large", "claude": "canary-claude", "behind": "canary-behind", "far": "canary-far"}
CLAUDE, LARGE, FAR = "claude-sonnet-4-5", "large-1", "far-1"
ROWS: Mapping[str, tuple[str, ...]] = {
    "large": ('models = ["large-*"]',),
    "claude": ('models = ["claude-*"]', 'api = "anthropic"', 'key_header = "x-api-key"'),
    "behind": ('models = ["claude-*"]', 'api = "litellm"', 'provider = "anthropic"'),
    "far": ('models = ["far-*"]', 'api = "litellm"', 'provider = "openai"'),
}
HELLO: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a load line? ⚓"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
FULL = talk(64)  # 3,400 tokens: with the reply past 90 % of 4,096
LONG = talk(120)  # 6,400 tokens


@dataclass(slots=True)
class Providers:
    """The simulators by the name of their upstream, and a proxy before them."""

    simulators: dict[str, Simulator]
    proxy: Running

    def asked(self, name: str) -> int:
        """How many requests for a model an upstream got."""
        return sum(request.method == "POST" for request in self.simulators[name].received)

    def sent(self, name: str) -> Any:
        """The newest request that an upstream got."""
        return self.simulators[name].received[-1].json()

    async def metrics(self) -> str:
        """The proxy's metrics."""
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{self.proxy.port}/metrics", timeout=20)).text

    def ai(self, **headers: str) -> openai.AsyncOpenAI:
        """A client of OpenAI's API, with the client's own key."""
        bare = openai.DefaultAsyncHttpxClient(verify=False)
        url = f"http://127.0.0.1:{self.proxy.port}/v1"
        own: Any = {"max_retries": 0, "default_headers": {"cookie": f"session={MINE}", **headers}}
        return openai.AsyncOpenAI(api_key=MINE, base_url=url, http_client=bare, **own)

    def messages(self) -> Any:
        """A client of Anthropic's."""
        return anthropic.AsyncAnthropic(api_key=MINE, base_url=f"http://127.0.0.1:{self.proxy.port}", max_retries=0)


@contextlib.asynccontextmanager
async def providers(folder: Path, allowed: str = "", **configs: SimulatorConfig) -> AsyncIterator[Providers]:
    """All of them; `allowed` are the models that requests may be moved to."""
    async with contextlib.AsyncExitStack() as stack:
        found: dict[str, Simulator] = {}
        urls = {}
        for name in ("default", *ROWS):
            key = KEYS.get(name, MINE)
            config = configs.get(name, SimulatorConfig(window=4_096 if name == "default" else 200_000))
            found[name], urls[name] = await stack.enter_async_context(simulating(replace(config, api_key=key)))
        rows = []
        for name, fields in ROWS.items():
            url = urls[name].removesuffix("/v1") if name == "behind" else urls[name]
            always = (f'key = "{name.upper()}_KEY"', 'callers = "any"')
            rows.append("\n".join(("[[upstream]]", f'name = "{name}"', f'url = "{url}"', *fields, *always)))
        (folder / "upstreams.toml").write_text("\n".join(rows))
        sizes = {LARGE: 100_000, FAR: 100_000, "gpt-4": 4_096}
        (folder / "windows.toml").write_text(
            "".join(f'[[window]]\nmodel = "{name}"\ntokens = {size}\n' for name, size in sizes.items())
        )
        settings = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": allowed} if allowed else {}
        keys = {f"{name.upper()}_KEY": key for name, key in KEYS.items()}
        proxy = await stack.enter_async_context(
            plimsoll(urls["default"], PLIMSOLL_RULES=str(folder), **keys, **settings)
        )
        yield Providers(found, proxy)


def check_canaries(all_of_them: Providers) -> None:
    """Each upstream got its own key with every request for a model, and nothing of another one's."""
    keys = {name: KEYS.get(name, MINE).encode() for name in all_of_them.simulators}
    for name, simulator in all_of_them.simulators.items():
        for request in simulator.received:
            headers = b"\n".join(key + b": " + value for key, value in request.headers)
            everything = b"\n".join((request.path.encode(), request.query, request.body, headers))
            assert keys[name] in headers or request.method == "GET", name
            assert not any(key in everything for other, key in keys.items() if other != name), name
            assert b"x-plimsoll" not in headers, name


async def text(stream: Any) -> str:
    """What the pieces of a chat stream say."""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


def test_every_client_gets_its_answer_and_no_key_goes_astray(tmp_path: Path) -> None:
    async def chat(ai: openai.AsyncOpenAI, model: str, i: int) -> str:
        asked: Any = {"model": model, "messages": [*HELLO, {"role": "assistant", "content": f"{i}"}, HELLO[1]]}
        if i % 2:
            return await text(await ai.chat.completions.create(**asked, stream=True))
        return (await ai.chat.completions.create(**asked)).choices[0].message.content or ""

    async def message(ai: Any, i: int) -> str:
        asked: Any = {"model": CLAUDE, "max_tokens": 100, "messages": [HELLO[1]], "system": f"Entry {i}."}
        if i % 2:
            async with ai.messages.stream(**asked) as events:
                return str(await events.get_final_text())
        return str((await ai.messages.create(**asked)).content[0].text)

    async def check() -> None:
        async with providers(tmp_path) as all_of_them:
            there = {"x-plimsoll-upstream": "large"}
            async with all_of_them.ai() as ai, all_of_them.ai(**there) as named, all_of_them.messages() as messages:
                said = await asyncio.gather(
                    *(chat(ai, model, i) for model in ("gpt-4", LARGE, CLAUDE, FAR) for i in range(4)),
                    *(chat(named, "gpt-4o", i) for i in range(4)),
                    *(message(messages, i) for i in range(4)),
                )
                with pytest.raises(openai.BadRequestError, match="default, large, claude, behind, far"):
                    await ai.chat.completions.create(
                        model="gpt-4", messages=HELLO, extra_headers={"x-plimsoll-upstream": "nowhere"}
                    )
            assert all(one.startswith("The simulator read") for one in said)
            counts = {name: all_of_them.asked(name) for name in all_of_them.simulators}
            assert counts == {"default": 4, "large": 8, "claude": 4, "behind": 4, "far": 4}
            check_canaries(all_of_them)
            await eventually(lambda: len(all_of_them.proxy.outcomes) >= 25, 30)
            told = await all_of_them.metrics()
            for name, count in counts.items():
                assert f'plimsoll_upstream_requests_total{{status="200",upstream="{name}"}} {count}.0' in told

    run(check())


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("model", "name"), [(LARGE, "large"), (CLAUDE, "behind"), (FAR, "far")])
def test_past_90_percent_a_request_moves_to_the_larger_model_of_another_provider(
    tmp_path: Path, model: str, name: str, streams: bool
) -> None:
    async def check() -> None:
        async with providers(tmp_path, model) as all_of_them, all_of_them.ai() as ai:
            asked: Any = {"model": "gpt-4", "messages": FULL, "max_tokens": 400}
            raw = await ai.chat.completions.with_raw_response.create(**asked, stream=streams)
            found: Any = raw.parse()
            said = await text(found) if streams else found.choices[0].message.content
            assert said.startswith("The simulator read")
            assert (raw.headers["x-plimsoll-model"], raw.headers["x-plimsoll-upstream"]) == (model, name)
            assert all_of_them.asked("default") == 0 and all_of_them.asked(name) == 1
            sent = all_of_them.sent(name)
            assert sent["messages"][-1]["role"] == "user" and model in sent["model"]
            check_canaries(all_of_them)

    run(check())


def agent_run(count: int) -> list[Any]:
    """A run of tools: a task, then so many calls with their results, two at once every third time."""
    told: list[Any] = [{"role": "system", "content": "You read files."}, {"role": "user", "content": sentence(0, 20)}]
    for i in range(count):
        ids = [f"call_{i}_{j}" for j in range(2 if i % 3 == 2 else 1)]
        calls = [
            {"id": ident, "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
            for ident in ids
        ]
        told.append({"role": "assistant", "content": None, "tool_calls": calls})
        told += [{"role": "tool", "tool_call_id": ident, "content": RESULTS[i % (CALLS - 1)]} for ident in ids]
    return told


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("model", "name"), [(f"{CLAUDE}-", "behind"), ("far-2-", "far")])
def test_a_run_of_tools_behind_litellm_is_healed_past_a_window_that_nobody_knew(
    tmp_path: Path, model: str, name: str, streams: bool
) -> None:
    """litellm raises its ContextWindowExceededError: the client sees none of it, and what it taught is that upstream's
    alone."""

    async def check() -> None:
        config: Any = {name: SimulatorConfig(window=6_000)}
        async with providers(tmp_path, **config) as all_of_them, all_of_them.ai() as ai:
            for count in (4, 14, 16):
                asked: Any = {"model": f"{model}sim-tools-loop", "messages": agent_run(count), "max_tokens": 500}
                made: Any = await ai.chat.completions.create(**asked, tools=[TOOL], stream=streams)
                if streams:
                    chunks = [chunk async for chunk in made]
                    finish = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
                    names = [
                        call.function.name
                        for c in chunks
                        if c.choices
                        for call in c.choices[0].delta.tool_calls or ()
                        if call.function.name
                    ]
                else:
                    finish = made.choices[0].finish_reason
                    names = [call.function.name for call in made.choices[0].message.tool_calls]
                assert (finish, names) == ("tool_calls", ["read_file"])
            results = [(await all_of_them.proxy.told(n)).result for n in (1, 2, 3)]
            assert (results[0], results[1], results[2] in ("fitted", "healed")) == ("passed", "healed", True)
            routes = all_of_them.proxy.services.routes
            assert routes is not None
            learned = {one: bool(backend.knowledge.cache.proofs()) for one, backend in routes.backends.items()}
            assert learned[name] and not any(found for one, found in learned.items() if one != name)
            check_canaries(all_of_them)

    run(check())


def test_an_upstream_that_fails_is_the_matter_of_its_own_requests_alone(tmp_path: Path) -> None:
    async def check() -> None:
        failing: Any = {name: SimulatorConfig(window=200_000, status=503) for name in ("behind", "claude")}
        async with providers(tmp_path, CLAUDE, **failing) as all_of_them:
            async with all_of_them.ai() as ai, all_of_them.messages() as messages:
                for _ in range(3):
                    with pytest.raises(openai.InternalServerError) as failed:
                        await ai.chat.completions.create(model=CLAUDE, messages=HELLO)
                    assert failed.value.status_code == 503
                    with pytest.raises(anthropic.APIStatusError) as refused:
                        await messages.messages.create(model=CLAUDE, max_tokens=10, messages=[HELLO[1]])
                    assert refused.value.status_code == 503 and refused.value.body["type"] == "error"
                    for model in ("gpt-4", LARGE, FAR):
                        assert (await ai.chat.completions.create(model=model, messages=HELLO)).choices
                asked: Any = {"model": "gpt-4", "messages": LONG, "max_tokens": 400}
                raw = await ai.chat.completions.with_raw_response.create(**asked)  # moved, refused there, and cut here
                assert "x-plimsoll-upstream" not in raw.headers and "prune_history" in raw.headers["x-plimsoll-steps"]
            told = await all_of_them.metrics()
            for name, status in (("behind", 503), ("claude", 503), ("large", 200), ("far", 200)):
                assert f'plimsoll_upstream_requests_total{{status="{status}",upstream="{name}"}} 3.0' in told
            check_canaries(all_of_them)

    run(check())


def test_a_conversation_of_messages_moves_between_upstreams_of_its_own_api_only(tmp_path: Path) -> None:
    """A chat model is no place for it, even one that litellm translates for."""

    async def check() -> None:
        async with providers(tmp_path, f"{LARGE},{FAR},claude-opus-4-6") as all_of_them:
            async with all_of_them.messages() as ai:
                told = [{"role": "user" if i % 2 == 0 else "assistant", "content": sentence(i)} for i in range(121)]
                raw = await ai.messages.with_raw_response.create(model="gpt-4", max_tokens=400, messages=told)
            assert (raw.headers["x-plimsoll-model"], raw.headers["x-plimsoll-upstream"]) == (
                "claude-opus-4-6",
                "claude",
            )
            assert all_of_them.sent("claude")["messages"] == json.loads(json.dumps(told))
            assert [all_of_them.asked(name) for name in ("default", "large", "behind", "far")] == [0, 0, 0, 0]
            check_canaries(all_of_them)

    run(check())


def test_a_key_that_is_refused_is_not_tried_again_by_any_client(tmp_path: Path) -> None:
    async def check() -> None:
        async with providers(tmp_path) as all_of_them:
            for name in ("large", "claude", "behind", "far"):
                simulator = all_of_them.simulators[name]
                simulator.config = replace(simulator.config, api_key="another-one")
            async with all_of_them.ai() as ai, all_of_them.messages() as messages:
                for model in (LARGE, CLAUDE, FAR):
                    with pytest.raises(openai.InternalServerError) as failed:
                        await ai.with_options(max_retries=2).chat.completions.create(model=model, messages=HELLO)
                    assert failed.value.code == "upstream_key_refused"
                with pytest.raises(anthropic.InternalServerError, match="refused the key"):
                    asked: Any = {"model": CLAUDE, "max_tokens": 10, "messages": [HELLO[1]]}
                    await messages.with_options(max_retries=2).messages.create(**asked)
            assert [all_of_them.asked(name) for name in ("large", "claude", "behind", "far")] == [1, 1, 1, 1]

    run(check())
