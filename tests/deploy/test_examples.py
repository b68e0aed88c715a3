"""The examples: each is valid, and is started with the command that its table names, before a simulated provider."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from proxy import __version__
from proxy.cli.demo import wait_for
from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from tests.deploy.renders import DEPLOY, ROOT, kustomized, missing, only, pod_of
from tests.deploy.schemas import VERSIONS, problems
from tests.deploy.test_compose import validator
from tests.e2e.services import talk
from tests.e2e.world import listening
from tests.ports import reserved_port

EXAMPLES = DEPLOY / "examples"
TABLE = dict(re.findall(r"^\| \[([\w-]+)\]\(\S+\) \| `([^`]+)`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
SCRIPTS = sorted(path.parent.name for path in EXAMPLES.glob("*/proxy.sh"))
DATA_PORT = "127.0.0.1:8080"  # what the clients' files of the examples name
LIMIT_S = 120.0  # only catches a hang
KEY = "sk-own"
OWN = ("PLIMSOLL_", "LLM_", "CONTEXT_", "OPENAI_", "ANTHROPIC_", "OLLAMA_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
LONG: list[dict[str, str]] = talk(300)  # some 14,000 tokens


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers in lower case, the text of the body."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def was_cut(self) -> bool:
        return self.status == 200 and "x-plimsoll-steps" in self.headers


def ask(url: str, body: Any, key: str = KEY, **headers: str) -> Answer:
    """The answer to a POST of JSON; to a GET without a body."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    sent = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", target, body and json.dumps(body), sent)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read().decode())


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], ready: Callable[[], None], folder: Path = EXAMPLES
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs, from the moment at which it is ready."""
    process = subprocess.Popen(command, cwd=folder, env=dict(environment), stdout=subprocess.DEVNULL)
    try:
        ready()
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the command plimsoll is ours, and nothing of ours is set."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "plimsoll"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy.cli "$@"\n')
    script.chmod(0o755)
    return {**CLEAN, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PLIMSOLL_DRAIN": "1"}


@contextlib.contextmanager
def provider(config: SimulatorConfig) -> Iterator[tuple[Simulator, str]]:
    app = simulator(config)
    with listening(app) as port:
        yield app, f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def started(name: str, programs: Mapping[str, str], upstream: str) -> Iterator[str]:
    """The proxy of an example, by its own command. The ports and the upstream come from the environment."""
    port, admin = reserved_port(), reserved_port()
    ports = {"PLIMSOLL_PORT": str(port), "PLIMSOLL_ADMIN_PORT": str(admin)}
    environment = {**programs, **ports, "PLIMSOLL_UPSTREAM": upstream}
    with running(TABLE[name].split(), environment, lambda: wait_for(admin, "/readyz")):
        yield f"127.0.0.1:{port}"


def test_every_example_is_in_the_table_with_its_command() -> None:
    assert TABLE.keys() == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert {name: TABLE[name] for name in SCRIPTS} == {name: f"sh {name}/proxy.sh" for name in SCRIPTS}
    assert TABLE["sidecar"] == "kubectl apply -k sidecar"
    assert TABLE["gateway-redis"] == "docker compose -f gateway-redis/compose.yaml up --build"


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_names_its_upstream_and_the_ports_that_the_table_does(name: str) -> None:
    text = (EXAMPLES / name / "proxy.sh").read_text()
    assert re.search(r'^export PLIMSOLL_UPSTREAM="\$\{PLIMSOLL_UPSTREAM:-https?://\S+/v1\}"$', text, re.MULTILINE)
    assert "PLIMSOLL_ADMIN_PORT:-8081" in text and "PLIMSOLL_PORT" not in text  # 8080, the default
    subprocess.run(["sh", "-n", str(EXAMPLES / name / "proxy.sh")], check=True, timeout=LIMIT_S)


def test_claude_code_asks_messages_and_a_long_conversation_is_answered(programs: dict[str, str]) -> None:
    settings = json.loads((EXAMPLES / "claude-code" / "settings.json").read_text())
    base = settings["env"]["ANTHROPIC_BASE_URL"]
    with provider(SimulatorConfig()) as (there, url), started("claude-code", programs, url) as address:
        said = [one for one in LONG if one["role"] != "system"]
        body = {"model": "claude-sonnet-4-5", "max_tokens": 500, "system": "Be brief.", "messages": said}
        answer = ask(f"{base.replace(DATA_PORT, address)}/v1/messages", body, anthropic_version="2023-06-01")
        assert answer.was_cut, answer
        assert [request.path for request in there.received][-1] == "/v1/messages"


def test_codex_asks_responses_and_a_long_conversation_is_answered(programs: dict[str, str]) -> None:
    config = tomllib.loads((EXAMPLES / "codex" / "config.toml").read_text())
    row = config["model_providers"][config["model_provider"]]
    assert (row["wire_api"], row["env_key"]) == ("responses", "OPENAI_API_KEY")
    documented = (DEPLOY / "docs" / "clients.md").read_text().partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(documented) == config
    with provider(SimulatorConfig()) as (_, url), started("codex", programs, url) as address:
        body = {"model": "gpt-4", "input": LONG, "stream": True}
        answer = ask(f"{row['base_url'].replace(DATA_PORT, address)}/responses", body)
        assert answer.was_cut and "response.completed" in answer.text


def test_ollamas_clients_use_either_api(programs: dict[str, str]) -> None:
    said = subprocess.run(
        ["sh", "-c", '. ollama/client.sh; echo "$OLLAMA_HOST $OPENAI_BASE_URL"'],
        cwd=EXAMPLES,
        env=CLEAN,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    with provider(SimulatorConfig()) as (there, url), started("ollama", programs, url) as address:
        own, openai = said.stdout.replace(DATA_PORT, address).split()
        body = {"model": "llama3.2", "messages": LONG, "stream": False}
        assert ask(f"{own}/api/chat", {**body, "options": {"num_ctx": 4096}}).was_cut
        assert ask(f"{openai}/chat/completions", {**body, "model": "gpt-4"}).was_cut
        assert next(request.path for request in there.received if request.method == "POST").startswith("/api/")


ROUTER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import yaml
import litellm

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = router.completion(**body).model_dump_json().encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *said):
        pass

config = yaml.safe_load(open(sys.argv[1]))
for row in config["model_list"]:
    row["litellm_params"].setdefault("api_base", sys.argv[3])
    row["litellm_params"]["api_base"] = row["litellm_params"]["api_base"].replace("127.0.0.1:8080", sys.argv[4])
router = litellm.Router(model_list=config["model_list"])
HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def wait_until_listening(port: int) -> None:
    ends = time.monotonic() + LIMIT_S
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


@contextlib.contextmanager
def litellm(name: str, port: int, upstream: str, plimsoll: str) -> Iterator[None]:
    """LiteLLM's router with the example's configuration, behind a port; its own server needs packages of its own."""
    environment = {**CLEAN, "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"}
    file = str(EXAMPLES / name / "config.yaml")
    command = [sys.executable, "-c", ROUTER, file, str(port), upstream, plimsoll]
    with running(command, environment, lambda: wait_until_listening(port)):
        yield


@pytest.mark.parametrize("name", ["litellm-before", "litellm-behind"])
def test_litellm_is_given_the_key_without_which_it_does_not_start(name: str) -> None:
    config = yaml.safe_load((EXAMPLES / name / "config.yaml").read_text())
    assert config["general_settings"] == {"master_key": "os.environ/LITELLM_MASTER_KEY"}
    assert "`LITELLM_MASTER_KEY`" in (EXAMPLES / "README.md").read_text()


def test_litellm_before_plimsoll_gets_answers_to_what_is_too_long(programs: dict[str, str]) -> None:
    port = reserved_port()
    with (
        provider(SimulatorConfig()) as (there, url),
        started("litellm-before", programs, url) as address,
        litellm("litellm-before", port, url, address),
    ):
        answer = ask(f"http://127.0.0.1:{port}/v1/chat/completions", {"model": "gpt-4", "messages": LONG})
        assert answer.status == 200
        (got,) = [request for request in there.received if request.method == "POST"]
        assert got.header(b"authorization") == f"Bearer {KEY}".encode()
        assert len(got.json()["messages"]) < len(LONG)


def test_litellm_behind_plimsoll_is_sent_what_fits(programs: dict[str, str]) -> None:
    port = reserved_port()
    with (
        provider(SimulatorConfig()) as (_, url),
        litellm("litellm-behind", port, url, ""),
        started("litellm-behind", programs, f"http://127.0.0.1:{port}/v1") as address,
    ):
        answer = ask(f"http://{address}/v1/chat/completions", {"model": "gpt-4", "messages": LONG})
        assert answer.was_cut, answer


def test_the_sidecars_job_asks_through_plimsoll(programs: dict[str, str]) -> None:
    made = kustomized(EXAMPLES / "sidecar")
    for version in VERSIONS:
        assert [problem for one in made for problem in problems(one, version)] == []
    spec = pod_of(only(made, "Job"))["spec"]
    (sidecar,), (client,) = spec["initContainers"], spec["containers"]
    settings = {row["name"]: row["value"] for row in sidecar["env"]} | only(made, "ConfigMap")["data"]
    assert settings["PLIMSOLL_UPSTREAM"] == "https://api.openai.com/v1"
    port, admin = reserved_port(), reserved_port()
    local = {"PLIMSOLL_PORT": str(port), "PLIMSOLL_ADMIN_PORT": str(admin), "PLIMSOLL_ADMIN_HOST": "127.0.0.1"}
    if shutil.which("curl") is None:
        missing("curl is not installed: the example asks with it")
    with provider(SimulatorConfig()) as (_, url):
        environment = {**programs, **settings, **local, "PLIMSOLL_UPSTREAM": url}
        for absent in ("PLIMSOLL_RULES", "PLIMSOLL_KEYS"):  # folders of the container
            del environment[absent]
        with running(["plimsoll", *sidecar.get("args", ["serve"])], environment, lambda: wait_for(admin, "/readyz")):
            given = {row["name"]: row.get("value", KEY) for row in client["env"]}
            asked = {**CLEAN, **given, "OPENAI_BASE_URL": given["OPENAI_BASE_URL"].replace(":4080", f":{port}")}
            done = subprocess.run(client["command"], env=asked, capture_output=True, text=True, timeout=LIMIT_S)
    assert "HTTP/1.1 200" in done.stdout and "x-plimsoll-count" in done.stdout.lower(), done.stdout + done.stderr


COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLES / "gateway-redis" / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
REPLICAS = ("one", "two")


def test_the_gateways_compose_file_is_valid_confined_and_published_on_loopback() -> None:
    assert [error.message for error in validator().iter_errors(COMPOSE)] == []
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    assert {SERVICES[name]["image"] for name in REPLICAS} == {f"plimsoll:{__version__}"}


def interpolated(environment: Mapping[str, str], redis: int, upstream: str) -> dict[str, str]:
    """The settings of a replica, as compose would set them, with addresses of this machine."""
    given = {"PLIMSOLL_UPSTREAM": upstream, "PLIMSOLL_SECRET": "a secret of the example"}
    found = {}
    for name, value in environment.items():
        filled = re.sub(r"\$\{(\w+):-(.*?)\}", lambda match: given.get(match[1], match[2]), value)
        found[name] = filled.replace("redis:6379", f"127.0.0.1:{redis}")
    return found


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed: this test needs a real one")
    return found


@contextlib.contextmanager
def gateway(programs: Mapping[str, str], upstream: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The four services of the compose file as processes of this machine: the address of nginx, and each replica's port
    and process."""
    ports = {name: reserved_port() for name in ("redis", "nginx", *REPLICAS)}
    conf = (EXAMPLES / "gateway-redis" / "nginx.conf").read_text().replace("/tmp/", f"{folder}/")
    for name in REPLICAS:
        conf = conf.replace(f"server {name}:8080;", f"server 127.0.0.1:{ports[name]};")
    (folder / "nginx.conf").write_text(conf.replace("listen 8080;", f"listen 127.0.0.1:{ports['nginx']};"))
    with contextlib.ExitStack() as stack:

        def start(name: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
            listens = running(command, environment, lambda: wait_until_listening(ports[name]), folder)
            return stack.enter_context(listens)

        binary, *options = SERVICES["redis"]["command"]
        start("redis", [program(binary), *options, "--port", str(ports["redis"])], CLEAN)
        replicas = {}
        for name in REPLICAS:
            own = interpolated(SERVICES[name]["environment"], ports["redis"], upstream)
            local = {"PLIMSOLL_HOST": "127.0.0.1", "PLIMSOLL_PORT": str(ports[name])}
            replicas[name] = (ports[name], start(name, ["plimsoll", "serve"], {**programs, **own, **local}))
        conf_file = str(folder / "nginx.conf")
        start("nginx", [program("nginx"), "-c", conf_file, "-p", str(folder), "-g", "daemon off;"], CLEAN)
        yield f"http://127.0.0.1:{ports['nginx']}/v1/chat/completions", replicas


def learned(port: int) -> bool:
    """Whether a replica knows a limit of the model; it reads what others learned when it is asked something."""
    ask(f"http://127.0.0.1:{port}/v1/chat/completions", {"model": "harbour-9b", "messages": talk(2)})
    said = ask(f"http://127.0.0.1:{port}/learned?model=harbour-9b", None, x_plimsoll_admin="1")
    return bool(json.loads(said.text)["limits"])


def test_the_gateways_replicas_share_what_they_learn_and_one_goes_on_alone(
    programs: dict[str, str], tmp_path: Path
) -> None:
    config = SimulatorConfig(windows={"harbour-9b": 4_096}, window_field="")
    body = {"model": "harbour-9b", "max_tokens": 500, "messages": LONG}
    with provider(config) as (there, url), gateway(programs, url, tmp_path) as (address, replicas):
        assert ask(address, body).was_cut
        ends = time.monotonic() + LIMIT_S
        while not all(learned(port) for port, _ in replicas.values()):
            assert time.monotonic() < ends
            time.sleep(0.1)
        for _, process in replicas.values():
            before = len(there.received)
            assert ask(address, body).was_cut
            assert len(there.received) == before + 1, "neither needs another refusal"
            if process is replicas["one"][1]:
                process.terminate()
                process.wait(30)
