"""The openai package's Azure client: deployments through the proxy, by the rule that says what they run."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AzureOpenAI

from proxy.app import create_app
from proxy.config.settings import read_settings
from proxy.model.outcome import Outcome
from proxy.services import build
from proxy.simulator.app import SimulatorConfig, simulator
from tests.e2e.test_openai_python import HELLO
from tests.e2e.world import World, eventually, listening

RUNS = {"billing": "gpt-4", "gpt-4o": "gpt-4o", "vectors": "text-embedding-3-small", "words": "gpt-3.5-turbo-instruct"}
ROWS = "".join(f'[[deployment]]\nname = "{name}"\nruns = "{model}"\n' for name, model in RUNS.items())
LONG: Any = [*HELLO, *({"role": "user", "content": f"Entry {i}: " + "rope " * 300} for i in range(40))]
KEY = "azure-canary"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rules: Path = tmp_path_factory.mktemp("rules")
    (rules / "windows.toml").write_text(ROWS)
    config = SimulatorConfig(
        windows={"gpt-4": 8192, "gpt-4o": 128_000, "gpt-3.5-turbo-instruct": 4097}, api_key=KEY, deployments=RUNS
    )
    app, outcomes = simulator(config), list[Outcome]()
    with listening(app) as upstream:
        resource = f"http://127.0.0.1:{upstream}"  # as Azure's, without /v1
        services = build(read_settings({"PLIMSOLL_UPSTREAM": resource, "PLIMSOLL_RULES": str(rules)}), outcomes.append)
        with listening(create_app(services)) as port:
            yield World(app, resource, f"http://127.0.0.1:{port}", outcomes)


def client(url: str, tag: str = "") -> AzureOpenAI:
    return AzureOpenAI(
        azure_endpoint=url,
        api_key=KEY,
        api_version="2024-10-21",
        default_headers={"x-scenario": tag},
        max_retries=0,
    )


def ask(url: str, path: str, body: Any) -> Any:
    headers = {"content-type": "application/json", "api-key": KEY}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer), dict(answer.headers)


def test_what_fits_goes_as_it_was_sent_and_is_counted_for_the_model_that_runs(here: World) -> None:
    for url in here.ways:
        with client(url, "fits") as ai:
            ai.chat.completions.create(model="billing", messages=HELLO)
    straight, through = here.seen("fits")
    assert (straight.path, straight.query, straight.body) == (through.path, through.query, through.body)
    assert through.path == "/openai/deployments/billing/chat/completions" and through.header(b"api-key") == KEY.encode()
    eventually(lambda: any(o.model == "gpt-4" and o.usage and o.prompt == o.usage.prompt for o in here.outcomes), 30)


@pytest.mark.parametrize("streams", [False, True])
def test_what_is_too_long_for_a_deployment_is_fitted(here: World, streams: bool) -> None:
    with client(here.straight) as ai, pytest.raises(openai.BadRequestError):
        ai.chat.completions.create(model="billing", messages=LONG)
    with client(here.through, f"long {streams}") as ai:
        found: Any = ai.chat.completions.create(model="billing", messages=LONG, stream=streams)
        assert list(found) if streams else found.choices
    sent = here.seen(f"long {streams}")[-1].json()
    assert sent["model"] == "billing" and 2 < len(sent["messages"]) < len(LONG)


def test_a_body_without_a_model_stays_without_one(here: World) -> None:
    path = "/openai/deployments/billing/chat/completions?api-version=2024-10-21"
    before = len(here.simulator.received)
    found, headers = ask(here.through, path, {"messages": LONG})
    assert found["choices"] and "x-plimsoll-steps" in {name.lower() for name in headers}
    sent = list(here.simulator.received)[before:][-1].json()
    assert list(sent) == ["messages"] and len(sent["messages"]) < len(LONG)


def test_completions_and_embeddings_have_deployments_too(here: World) -> None:
    with client(here.through, "others") as ai:
        words = ai.completions.create(model="words", prompt="rope " * 6000, max_tokens=9)
        vectors = ai.embeddings.create(model="vectors", input=[f"text {i}" for i in range(2100)], dimensions=4)
    assert words.choices and [item.index for item in vectors.data] == list(range(2100))


def test_what_azure_refuses_is_refused_in_its_own_words(here: World) -> None:
    for path, status in (
        ("/openai/deployments/nobody/chat/completions?api-version=1", 404),
        ("/openai/deployments/billing/chat/completions", 404),
        ("/openai/deployments/billing/extensions?api-version=1", 404),
    ):
        said = []
        for url in here.ways:
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(url, path, {"messages": HELLO})
            assert refused.value.code == status
            said.append(refused.value.read())
        assert said[0] == said[1]
