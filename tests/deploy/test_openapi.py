"""The OpenAPI document of our own paths: it has each of them, and a running proxy answers as it says."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from proxy import __version__
from proxy.app import own_paths
from proxy.cli.demo import started, wait_for
from proxy.config.settings import read_settings
from proxy.services import build
from proxy.simulator.app import SimulatorConfig, simulator
from tests.deploy.renders import DEPLOY
from tests.e2e.services import talk
from tests.e2e.world import listening
from tests.ports import reserved_port

DOCUMENT: dict[str, Any] = yaml.safe_load((DEPLOY / "openapi.yaml").read_text())
PATHS: dict[str, Any] = DOCUMENT["paths"]
WINDOWS = {"gpt-4": 8_192, "harbour-9b": 4_096}
LONG: dict[str, Any] = {"model": "harbour-9b", "max_tokens": 500, "messages": talk(200)}
TOKEN = {"x-plimsoll-admin": "1"}
LIMIT_S = 60.0  # only catches a hang
METHODS = ("get", "post")


def resolved(value: Any) -> Any:
    """What a reference is to; any other value as it is."""
    while isinstance(value, dict) and "$ref" in value:
        found: Any = DOCUMENT
        for key in value["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        value = found
    return value


def undocumented(schema: Any, value: Any, at: str = "") -> Iterator[str]:
    """Fields of a value that its schema does not name. `additionalProperties` says where more are meant."""
    schema = resolved(schema)
    for one in schema.get("allOf", ()):
        yield from undocumented(one, value, at)
    if isinstance(value, dict) and "properties" in schema:
        for key, item in value.items():
            if key in schema["properties"]:
                yield from undocumented(schema["properties"][key], item, f"{at}.{key}")
            elif not schema.get("additionalProperties"):
                yield f"{at}.{key}"
    if isinstance(value, list):
        for item in value:
            yield from undocumented(schema.get("items", {}), item, f"{at}[]")


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, content type and body."""

    status: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy with an admin port."""

    data: int
    admin: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """The answer of the admin port; of the data port for what is its own."""
        port = self.data if path.startswith("/v1") else self.admin
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"content-type": "application/json", "authorization": "Bearer sk-own", **given}
        connection.request(method.upper(), path, None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        kind = (response.getheader("content-type") or "").partition(";")[0]
        is_stream = kind == "text/event-stream"
        found = Answer(response.status, kind, response.fp.readline() if is_stream else response.read())
        connection.close()
        return found


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    """A proxy that has met a refusal, and made a request fit."""
    data, admin = reserved_port(), reserved_port()
    more = {"PLIMSOLL_ADMIN_PORT": str(admin), "PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_MODELS_WINDOWS": "1"}
    with (
        listening(simulator(SimulatorConfig(windows=WINDOWS, window_field=""))) as upstream,
        started("serve", data, PLIMSOLL_UPSTREAM=f"http://127.0.0.1:{upstream}/v1", **more),
    ):
        wait_for(admin, "/readyz")
        found = Running(data, admin)
        for model in ("harbour-9b", "gpt-4"):
            assert found.ask("POST", "/v1/chat/completions", {**LONG, "model": model}).status == 200
        yield found


def check(path: str, method: str, answer: Answer) -> None:
    """That an answer is one of those that the document has for a path."""
    status = str(answer.status)
    responses = PATHS[path][method]["responses"]
    assert status in responses, (path, method, answer)
    described = resolved(responses[status])
    assert answer.kind in described["content"], (path, answer.kind)
    pointer = described["content"][answer.kind]["schema"]
    value = json.loads(answer.body) if answer.kind == "application/json" else answer.body.decode()
    problems = [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator({**DOCUMENT, **pointer}).iter_errors(value)
    ]
    assert problems == [], (path, status)
    assert sorted({*undocumented(pointer, value)}) == [], (path, status)


def operations() -> list[tuple[str, str]]:
    return [(path, method) for path, item in PATHS.items() for method in METHODS if method in item]


def test_the_document_is_of_this_version_and_its_schemas_are_valid() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.") and DOCUMENT["info"]["version"] == __version__
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    text = (DEPLOY / "openapi.yaml").read_text()
    for reference in set(re.findall(r'\$ref: "([^"]+)"', text)):
        assert resolved({"$ref": reference})
    named = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert named == DOCUMENT["components"]["schemas"].keys()


def test_it_has_each_of_our_own_paths() -> None:
    services = build(read_settings({"PLIMSOLL_UPSTREAM": "http://me.example/v1"}), lambda outcome: None)
    table = (DEPLOY / "docs" / "page.md").read_text()
    pages = {re.sub("ID", "{id}", path) for path in re.findall(r"`(?:GET |POST )?(/api/[\w/]+)", table)}
    assert PATHS.keys() == {*own_paths(services), *pages, "/", "/v1/models"}


BODIES: Mapping[str, Any] = {
    "/inspect/v1/chat/completions": {**LONG, "model": "gpt-4"},
    "/inspect/v1/completions": {"model": "gpt-3.5-turbo-instruct", "prompt": "hi"},
    "/inspect/v1/embeddings": {"model": "text-embedding-3-small", "input": "hi"},
    "/inspect/v1/responses": {"model": "gpt-4o", "input": "hi"},
    "/inspect/v1/messages": {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": LONG["messages"][1:2]},
    "/inspect/api/chat": {"model": "llama3.2", "messages": LONG["messages"][1:2]},
    "/inspect/api/generate": {"model": "llama3.2", "prompt": "hi"},
    "/api/inspect": {**LONG, "model": "gpt-4"},
}


def token_of(here: Running) -> str:
    """The token that the page on loopback is told."""
    said = here.ask("GET", "/api/overview", sec_fetch_site="same-origin")
    token: str = json.loads(said.body)["token"]
    return token


@pytest.mark.parametrize(("path", "method"), [one for one in operations() if "{id}" not in one[0]])
def test_a_running_proxy_answers_as_the_document_says(here: Running, path: str, method: str) -> None:
    target = f"{path}?model=harbour-9b" if path == "/learned" else path
    body = None if method == "get" else BODIES.get(path, {"model": "nobody"})
    admin = token_of(here) if path.startswith("/api/") else "1"
    answer = here.ask(method, target, body, x_plimsoll_admin=admin)
    assert answer.status == 200, answer
    check(path, method, answer)
    if path == "/learned":
        assert json.loads(answer.body)["limits"]
    if path == "/v1/models":
        (known,) = [one for one in json.loads(answer.body)["data"] if one["id"] == "gpt-4"]
        assert known["context_window"] == 8_192


@pytest.mark.parametrize(("path", "method"), [one for one in operations() if one[0] != "/v1/models"])
def test_what_is_wrong_is_answered_as_the_document_says(here: Running, path: str, method: str) -> None:
    target = path.replace("{id}", "0-0-1")
    other = "POST" if method == "get" else "GET"
    wrong = here.ask(other, target, {} if other == "POST" else None, x_plimsoll_admin=token_of(here))
    assert wrong.status in (404, 405)
    check(path, method, wrong)


@pytest.mark.parametrize(
    ("path", "status", "headers"),
    [
        ("/learned", 400, TOKEN),
        ("/learned", 403, {}),
        ("/forget", 400, TOKEN),
        ("/forget", 403, {}),
        ("/api/forget", 401, {}),
        ("/api/inspect", 400, {}),
        ("/inspect/v1/messages", 400, {}),
    ],
)
def test_what_lacks_its_token_or_its_model_is_answered_as_the_document_says(
    here: Running, path: str, status: int, headers: dict[str, str]
) -> None:
    ((method, _),) = ((method, item) for method, item in PATHS[path].items())
    answer = here.ask(method, path, None if method == "get" else {}, **headers)
    assert answer.status == status
    if path != "/inspect/v1/messages":  # there an error has Anthropic's shape
        check(path, method, answer)


def test_a_request_is_shown_with_its_rows_and_texts(here: Running) -> None:
    found = json.loads(here.ask("GET", "/api/requests?cut=1").body)["requests"]
    for path, field in (("/api/requests/{id}", "rows"), ("/api/requests/{id}/texts", "texts")):
        for one in found:
            answer = here.ask("GET", path.replace("{id}", one["id"]))
            check(path, "get", answer)
            assert json.loads(answer.body)[field]
    assert {one["model"] for one in found} == {"gpt-4", "harbour-9b"}
    for one in found:
        answer = here.ask("GET", f"/api/conversations/{one['conversation']}")
        check("/api/conversations/{id}", "get", answer)
        assert json.loads(answer.body)["messages"]
