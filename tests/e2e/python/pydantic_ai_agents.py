"""The pydantic-ai package: its agents run on Responses, on chat and on Messages."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.e2e.python.harness import LATE, NARROW, QUESTION, arrived, reader, released, run

pydantic_ai: Any = importlib.import_module("pydantic_ai")
pydantic: Any = importlib.import_module("pydantic")
openai: Any = importlib.import_module("openai")
anthropic: Any = importlib.import_module("anthropic")
openai_models: Any = importlib.import_module("pydantic_ai.models.openai")
anthropic_models: Any = importlib.import_module("pydantic_ai.models.anthropic")
OpenAIProvider: Any = importlib.import_module("pydantic_ai.providers.openai").OpenAIProvider
AnthropicProvider: Any = importlib.import_module("pydantic_ai.providers.anthropic").AnthropicProvider

warnings.simplefilter("ignore", DeprecationWarning)  # of the models' names
MODELS = {"responses": "gpt-4o", "chat": "gpt-4o", "messages": "claude-sonnet-4-5"}
Mark = pydantic.create_model("Mark", name=(str, ...), freeboard=(float, ...), certified=(bool, ...))


def client(url: str, tag: str, headers: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return url, {"api_key": "sk-canary", "default_headers": {"x-scenario": tag, **headers}}


@asynccontextmanager
async def model(api: str, name: str, made: tuple[str, dict[str, Any]]) -> AsyncIterator[Any]:
    """The model with a client of its own."""
    url, own = made
    if api == "messages":
        async with anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), **own) as ai:
            yield anthropic_models.AnthropicModel(name, provider=AnthropicProvider(anthropic_client=ai))
    else:
        kind = openai_models.OpenAIResponsesModel if api == "responses" else openai_models.OpenAIChatModel
        bare = openai.DefaultAsyncHttpxClient(verify=False)  # it reads no certificates: it meets none here
        async with openai.AsyncOpenAI(base_url=url, http_client=bare, **own) as ai:
            yield kind(name, provider=OpenAIProvider(openai_client=ai))


async def ask(
    make: Any,
    *,
    api: str,
    suffix: str = "",
    headers: Any = None,
    streams: bool = False,
    tool: bool = False,
    **fields: Any,
) -> Any:
    """The end of a run, the calls of its tool and the requests that it took."""
    calls: list[str] = []
    async with model(api, MODELS[api] + suffix, make(**(headers or {}))) as made:
        if tool:
            fields["tools"] = [reader(calls)]
        agent = pydantic_ai.Agent(made, instructions="Be brief.", **fields)
        if streams:
            async with agent.run_stream(QUESTION) as result:
                said: Any = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        else:
            result = await agent.run(QUESTION)
            said = result.output
        requests = result.usage.requests
    said = said if isinstance(said, str | list) else said.model_dump()
    return {"said": said, "calls": len(calls), "requests": requests}


async def cancelled(make: Any, api: str) -> Any:
    made_by = make(**LATE)
    async with model(api, MODELS[api], made_by) as made:
        task = asyncio.create_task(pydantic_ai.Agent(made).run(QUESTION))
        await arrived(made_by[1]["default_headers"]["x-scenario"])
        task.cancel()
        await asyncio.wait([task])
        await released("cancelled")
        return task.cancelled()


def large(number: int) -> Any:
    """A tool whose name is long: no step may shorten it."""
    return pydantic_ai.Tool(lambda: "", name=f"tool_{number}_finds_what_this_number_of_the_ledger_is_for")


SMALL = {"x-sim-window": "600", "x-plimsoll-window": "600"}
scenarios: dict[str, Any] = {}
for api in MODELS:
    thinks = "-sim-reasons" if api == "responses" else ""
    loop: Any = {"suffix": "-sim-tools-loop" + thinks, "headers": NARROW, "tool": True}
    scenarios |= {
        f"{api} answer": partial(ask, api=api),
        f"{api} stream": partial(ask, api=api, streams=True),
        f"{api} tools": partial(ask, api=api, suffix="-sim-tools-parallel", tool=True),
        f"{api} value": partial(ask, api=api, output_type=Mark),
        f"{api} schema": partial(ask, api=api, output_type=pydantic_ai.NativeOutput(Mark)),
        f"{api} unauthorised": partial(ask, api=api, headers={"x-sim-status": "401"}),
        f"{api} limited": partial(ask, api=api, headers={"x-sim-status": "429"}),
        f"{api} unfit": partial(ask, api=api, headers=SMALL, tools=[large(i) for i in range(60)]),
        f"{api} agent": partial(ask, api=api, **loop),
        f"{api} agentstream": partial(ask, api=api, streams=True, **loop),
        f"{api} cancelled": partial(cancelled, api=api),
    }

run(scenarios, client)
