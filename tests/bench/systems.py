"""The systems that are measured side by side: how each is installed, started on one core, and addressed."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.upstream import PACE

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".bench"
LITELLM = "1.106.2"  # the version that the lock file pins
PORTKEY = "1.15.2"
CORE, OTHER = "0", "1"  # the system under test on one core, load and upstream on the other
PATH = "/v1/chat/completions"

NGINX = """worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.err;
events {{ worker_connections 4096; }}
http {{ access_log off; client_max_body_size 100m; client_body_buffer_size 4m; keepalive_requests 100000000;
  client_body_temp_path {home}/nginx_body; proxy_temp_path {home}/nginx_proxy; fastcgi_temp_path {home}/nginx_f;
  uwsgi_temp_path {home}/nginx_u; scgi_temp_path {home}/nginx_s;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }} }}
"""
LITELLM_CONFIG = """model_list:
  - model_name: gpt-4o
    litellm_params: {{model: openai/gpt-4o, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-test}}
  - model_name: gpt-4.1
    litellm_params: {{model: openai/gpt-4.1, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-test}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""


@dataclass(slots=True)
class System:
    """One system that runs: its port, the headers that a request to it needs, and its processes."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 0.0

    def processes(self) -> list[int]:
        """The process and all below it."""
        found = [self.process.pid] if self.process else []
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            found += [int(child) for child in (children.read_text().split() if children.exists() else ())]
        return found

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far, by their own accounting."""
        ticks = 0
        for pid in self.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Resident memory of all its processes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.processes())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        """Ends what was started."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()


def started(
    name: str,
    port: int,
    command: Sequence[object],
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    core: str = CORE,
    seconds: float = 90.0,
    folder: Path | None = None,
) -> System:
    """A system started on its core, once it answers a request. Raises RuntimeError where it does not."""
    log = (HOME / f"{name}.log").open("wb")
    began = time.perf_counter()
    process = subprocess.Popen(
        ["taskset", "-c", core, *map(str, command)],
        env={**os.environ, **(environment or {})},
        stdout=log,
        stderr=log,
        cwd=folder,
    )
    system = System(name, port, process, headers or {})
    while time.perf_counter() - began < seconds and process.poll() is None:
        if answers(system):
            system.start_seconds = time.perf_counter() - began
            return system
        time.sleep(0.02)
    system.stop()
    raise RuntimeError(f"{name} did not come up: see {log.name}")


def answers(system: System) -> bool:
    """Whether it answers a small request with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", system.port, timeout=30)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test", **system.headers}
    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'
    try:
        connection.request("POST", PATH, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200
    except OSError:
        return False
    finally:
        connection.close()


def upstream(port: int, pace: float = PACE) -> System:
    """The fast upstream, on the load's core; `pace` in seconds between a stream's chunks."""
    script = Path(__file__).parent / "upstream.py"
    return started("upstream", port, [sys.executable, script, str(port), str(pace)], core=OTHER)


def nginx(port: int, behind: int) -> System:
    """nginx, one worker, as a plain proxy."""
    need("nginx", "nginx-light")
    config = HOME / "nginx.conf"
    config.write_text(NGINX.format(home=HOME, port=port, upstream=behind))
    command = ["nginx", "-c", config, "-e", HOME / "nginx.err"]
    return started("nginx", port, command)


def plimsoll(
    port: int,
    behind: int,
    name: str = "plimsoll",
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> System:
    """Plimsoll as users run it: metrics, log line and headers on; this checkout's, or that of another folder, which
    may be of any earlier commit."""
    environment = {"PLIMSOLL_UPSTREAM": f"http://127.0.0.1:{behind}/v1", **(settings or {})}
    python = sys.executable if folder is None else own_python(folder)
    command = [python, "-m", "proxy.cli", "serve", "--port", str(port)]
    return started(name, port, command, environment, folder=folder)


def own_python(folder: Path) -> Path:
    """The interpreter of a checkout's own environment, which its `make setup` makes where there is none: an earlier
    commit may need libraries that this one does without."""
    python = folder / ".venv" / "bin" / "python"
    if not python.exists():
        subprocess.run(["make", "-C", folder, "setup", f"PYTHON={sys.executable}"], check=True, stdout=sys.stderr)
    return python


def litellm(port: int, behind: int) -> System:
    """LiteLLM's proxy in an environment of its own, one worker."""
    home = HOME / "litellm"
    if not (home / "bin" / "litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", f"litellm[proxy]=={LITELLM}"], check=True)
    config = HOME / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(upstream=behind))
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"}
    command: list[str | Path] = [
        home / "bin" / "litellm",
        "--config",
        config,
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    return started("litellm", port, command, environment)


def portkey(port: int, behind: int) -> System:
    """Portkey's gateway, from its npm package."""
    home = HOME / "portkey"
    server = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    if not server.exists():
        home.mkdir(parents=True, exist_ok=True)
        install: list[str | Path] = [
            "npm",
            "install",
            "--no-fund",
            "--no-audit",
            "--prefix",
            home,
            f"@portkey-ai/gateway@{PORTKEY}",
        ]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{behind}/v1"}
    return started("portkey", port, ["node", server, f"--port={port}", "--headless"], headers=headers)


SYSTEMS: Mapping[str, Callable[[int, int], System]] = {
    "nginx": nginx,
    "plimsoll": plimsoll,
    "portkey": portkey,
    "litellm": litellm,
}


def need(command: str, package: str) -> None:
    """Installs a command from the system's packages. Raises RuntimeError where that cannot be done."""
    if shutil.which(command):
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["service", "nginx", "stop"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not shutil.which(command):
        raise RuntimeError(f"{command} is missing: install the package {package}")
