"""The annotations of the Ingress at a real nginx, before a proxy with TLS: streams come as sent, large bodies pass."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.deploy.renders import charted, missing, only
from tests.e2e.test_reload import DELTA, DONE, STREAM, streaming
from tests.e2e.world import eventually
from tests.hostile.harness import HELLO, Running, running
from tests.hostile.raw import Wire, post
from tests.hostile.test_web_pages import listens
from tests.openssl import made
from tests.ports import reserved_port

# The directive that ingress-nginx makes of an annotation, and the unit of its value.
DIRECTIVES = {
    "proxy-buffering": ("proxy_buffering", ""),
    "proxy-request-buffering": ("proxy_request_buffering", ""),
    "proxy-read-timeout": ("proxy_read_timeout", "s"),
    "proxy-send-timeout": ("proxy_send_timeout", "s"),
    "proxy-body-size": ("client_max_body_size", ""),
}


def told_to_nginx() -> Mapping[str, str]:
    """Those of the chart's Ingress before a gateway with a certificate, by their own names."""
    values = {"ingress": {"enabled": True, "hosts": ["llm.example.com"]}, "tls": {"secretName": "tls"}}
    told = only(charted(values), "Ingress")["metadata"]["annotations"]
    return {name.removeprefix("nginx.ingress.kubernetes.io/"): value for name, value in told.items()}


@contextlib.contextmanager
def nginx(folder: Path, told: Mapping[str, str], port: int) -> Iterator[int]:
    """An nginx that is configured as these annotations say, before the proxy at a port."""
    binary = shutil.which("nginx")
    if binary is None:
        missing("nginx is not installed")
    front, scheme = reserved_port(), told.get("backend-protocol", "HTTP").lower()
    kept = [(*DIRECTIVES[name], value) for name, value in told.items() if name in DIRECTIVES]
    directives = " ".join(f"{name} {value}{unit};" for name, unit, value in kept)
    temporary = " ".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    location = f"proxy_pass {scheme}://127.0.0.1:{port}; proxy_http_version 1.1; proxy_set_header Host localhost;"
    server = f"listen 127.0.0.1:{front}; location / {{ {location} {directives} }}"
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1; events {{ }}\n"
        f"http {{ access_log off; {temporary} server {{ {server} }} }}\n"
    )
    command = [binary, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "log")]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: process.poll() is not None or listens(front), 30)
        assert process.poll() is None, (folder / "log").read_text()
        yield front
    finally:
        process.terminate()
        process.wait(30)


def test_M12_behind_the_ingress_a_stream_arrives_as_it_is_sent_and_a_large_body_passes(tmp_path: Path) -> None:
    chain, key = made(tmp_path, "gateway")
    named = {"PLIMSOLL_TLS_CERT": str(chain), "PLIMSOLL_TLS_KEY": str(key)}
    told = told_to_nginx()
    assert told.keys() - DIRECTIVES.keys() == {"backend-protocol"}, "each is tried here"
    with (
        streaming() as (url, going, loop),
        running(url, workers=1, admin=False, **named) as proxy,
        nginx(tmp_path, told, proxy.port) as front,
    ):
        with contextlib.closing(Wire(front)) as wire:
            wire.send(post(STREAM, b"connection: close"))
            wire.until(DELTA)  # the rest is not sent before this has come
            loop.call_soon_threadsafe(going.set)
            wire.until(DONE)
        large = {**HELLO, "model": "gpt-4.1", "messages": [{"role": "user", "content": "word " * 400_000}]}
        assert len(json.dumps(large)) > 1 << 20, "more than nginx takes by itself"
        assert Running(proxy.process, front).ask(large).status == 200
