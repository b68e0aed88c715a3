"""The openai-agents package: its agents run on Responses and on chat."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from tests.e2e.python.harness import LATE, NARROW, QUESTION, SLOWLY, reader, released, run

agents: Any = importlib.import_module("agents")
openai: Any = importlib.import_module("openai")
pydantic: Any = importlib.import_module("pydantic")

agents.set_tracing_disabled(True)
MODELS = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}
Mark = pydantic.create_model("Mark", name=(str, ...), freeboard=(float, ...), certified=(bool, ...))


def client(url: str, tag: str, headers: dict[str, str]) -> Any:
    own = {"x-scenario": tag, **headers}
    bare = openai.DefaultAsyncHttpxClient(verify=False)  # it reads no certificates: it meets none here
    return openai.AsyncOpenAI(base_url=url, api_key="sk-canary", default_headers=own, http_client=bare)


async def ask(
    make: Any,
    *,
    api: str,
    name: str = "gpt-4o",
    headers: Any = None,
    streams: bool = False,
    tool: bool = False,
    stored: bool = False,
    **fields: Any,
) -> Any:
    """The end of a run, the calls of its tool and the tokens of its newest prompt."""
    calls: list[str] = []
    async with make(**(headers or {})) as ai:
        if tool:
            fields["tools"] = [agents.function_tool(reader(calls))]
        agent = agents.Agent(name="mate", instructions="Be brief.", model=MODELS[api](name, ai), **fields)
        if streams:
            result = agents.Runner.run_streamed(agent, QUESTION, max_turns=40)
            kinds = [event.type async for event in result.stream_events()]
        else:
            result, kinds = await agents.Runner.run(agent, QUESTION, max_turns=40, auto_previous_response_id=stored), []
    said = result.final_output
    return {
        "said": said if isinstance(said, str) else said.model_dump(),
        "calls": len(calls),
        "requests": len(result.raw_responses),
        "prompt": result.raw_responses[-1].usage.input_tokens,
        "events": kinds if len(kinds) < 30 else [],
    }


async def cancelled(make: Any, api: str) -> Any:
    async with make(**SLOWLY) as ai:
        agent = agents.Agent(name="mate", model=MODELS[api]("gpt-4o", ai))
        result = agents.Runner.run_streamed(agent, QUESTION)
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                break
        result.cancel()
        await released("cancelled")


async def impatient(make: Any, api: str) -> Any:
    async with make(**LATE) as ai:
        slow = ai.with_options(timeout=1, max_retries=0)
        try:
            await agents.Runner.run(agents.Agent(name="mate", model=MODELS[api]("gpt-4o", slow)), QUESTION)
        finally:
            await released("impatient")


scenarios: dict[str, Any] = {}
for api in MODELS:
    loop: Any = {"name": "unheard-of-sim-tools-loop", "headers": NARROW, "tool": True}
    scenarios |= {
        f"{api} answer": partial(ask, api=api),
        f"{api} stream": partial(ask, api=api, streams=True),
        f"{api} tools": partial(ask, api=api, name="gpt-4o-sim-tools-parallel", tool=True),
        f"{api} value": partial(ask, api=api, output_type=Mark),
        f"{api} unauthorised": partial(ask, api=api, headers={"x-sim-status": "401"}),
        f"{api} limited": partial(ask, api=api, headers={"x-sim-status": "429"}),
        f"{api} agent": partial(ask, api=api, **loop),
        f"{api} agentstream": partial(ask, api=api, streams=True, **loop),
        f"{api} cancelled": partial(cancelled, api=api),
        f"{api} impatient": partial(impatient, api=api),
    }
thinks: Any = {"api": "responses", "name": "gpt-5-sim-tools-loop-sim-reasons", "headers": NARROW, "tool": True}
# the upstream holds the conversation: only what is new is sent
scenarios["responses stored"] = partial(ask, api="responses", name="gpt-4o-sim-tools-loop", tool=True, stored=True)
scenarios["reasoning agent"] = partial(ask, **thinks)

run(scenarios, client)
