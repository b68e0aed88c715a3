"""Azure's deployments: their names, their versions and their key."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.simulator.app import Simulator, SimulatorConfig
from tests.simulator.test_app import ResponseReader, exchange

CHAT = {"model": "whatever", "messages": [{"role": "user", "content": "How are you?"}]}


def asked(
    path: str, *headers: tuple[bytes, bytes], query: str = "?api-version=2024-10-21", body: bytes = b""
) -> ResponseReader:
    app = Simulator(SimulatorConfig(deployments={"ours": "gpt-4o"}, api_key="k"))
    sent = body or json.dumps(CHAT).encode()
    return asyncio.run(exchange(app, path=f"/openai/deployments/{path}", body=sent, headers=headers, query=query[1:]))


@pytest.mark.parametrize("header", [(b"api-key", b"k"), (b"authorization", b"Bearer k")])
def test_the_deployment_says_which_model_runs(header: tuple[bytes, bytes]) -> None:
    got = asked("ours/chat/completions", header)
    assert (got.status, got.json["model"]) == (200, "gpt-4o")


@pytest.mark.parametrize("header", [(b"api-key", b"x"), (b"authorization", b"k"), (b"x-api-key", b"k")])
def test_a_wrong_key_is_refused_in_azures_words(header: tuple[bytes, bytes]) -> None:
    got = asked("ours/chat/completions", header)
    assert (got.status, got.json["error"]["code"]) == (401, "401")
    assert got.told.startswith("Access denied due to invalid subscription key")


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("ours/chat/completions", "?", "404"),
        ("ours/responses", "?api-version=1", "404"),
        ("ours/", "?api-version=1", "404"),
        ("ours", "?api-version=1", "404"),
        ("theirs/chat/completions", "?api-version=1", "DeploymentNotFound"),
    ],
)
def test_what_is_not_deployed_is_not_found(path: str, query: str, code: str) -> None:
    got = asked(path, (b"api-key", b"k"), query=query)
    assert (got.status, got.json["error"]["code"]) == (404, code)


def test_a_body_that_is_no_object_is_refused_as_openai_does() -> None:
    got = asked("ours/chat/completions", (b"api-key", b"k"), body=b"{")
    assert (got.status, got.told) == (400, "We could not parse the JSON body of your request.")
