"""TLS end to end: a proxy as users start it, with a certificate that is renewed as Kubernetes does it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.world import eventually
from tests.hostile.harness import CHAT, HELLO, Running, running_with, upstream
from tests.mounts import Mount
from tests.openssl import made, subject_of, trusting

FAST = {"proxy.http.server.certificate.POLL_S": 0.2}


def pair(folder: Path, name: str) -> dict[str, str]:
    """The files of a Secret of the type kubernetes.io/tls."""
    chain, key = made(folder, name)
    return {"tls.crt": chain.read_text(), "tls.key": key.read_text()}


def ask(port: int, trust: ssl.SSLContext, path: str, body: object = None) -> tuple[int, str]:
    """The status of an answer, and the subject of the certificate that the connection got."""
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)
    try:
        text = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, text, {"content-type": "application/json"})
        found = subject_of(connection.sock.getpeercert())
        response = connection.getresponse()
        response.read()
        return response.status, found
    finally:
        connection.close()


def by_poll(proxy: Running) -> None:
    """Nothing is told to the proxy: it sees for itself."""


def by_hangup(proxy: Running) -> None:
    proxy.process.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("workers", [1, 2], ids=["one_worker", "two_workers"])
@pytest.mark.parametrize("told", [by_poll, by_hangup])
def test_M12_both_ports_speak_tls_and_every_worker_follows_a_renewed_certificate(
    workers: int, told: Callable[[Running], None], tmp_path: Path
) -> None:
    mount = Mount(tmp_path / "tls", **pair(tmp_path, "first"))
    trust = trusting(tmp_path / "first.crt")
    named = {"PLIMSOLL_TLS_CERT": str(mount.folder / "tls.crt"), "PLIMSOLL_TLS_KEY": str(mount.folder / "tls.key")}
    with upstream() as up, running_with(FAST, up.url, workers=workers, admin=True, **named) as proxy:
        assert any("https://" in line and "serves" in line for line in proxy.lines)
        assert ask(proxy.port, trust, CHAT, HELLO) == (200, "first")
        assert ask(proxy.admin_port, trust, "/readyz") == (200, "first")
        mount.change(**pair(tmp_path, "second"))
        trust.load_verify_locations(tmp_path / "second.crt")
        told(proxy)

        def all_renewed() -> bool:
            ports = [port for port in (proxy.port, proxy.admin_port) for _ in range(8 * workers)]
            return {ask(port, trust, "/readyz") for port in ports} <= {(200, "second"), (404, "second")}

        eventually(all_renewed)
        assert ask(proxy.port, trust, CHAT, HELLO) == (200, "second")
        assert proxy.stop() == 0


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "clear"])
def test_the_images_health_check_asks_as_the_port_speaks(tls: bool, tmp_path: Path) -> None:
    dockerfile = (Path(__file__).parents[2] / "deploy" / "Dockerfile").read_text()
    (words,) = re.findall(r"^HEALTHCHECK .* CMD (.+)$", dockerfile, re.MULTILINE)
    _, *arguments = json.loads(words)
    chain, key = made(tmp_path, "own")
    named = {"PLIMSOLL_TLS_CERT": str(chain), "PLIMSOLL_TLS_KEY": str(key)} if tls else {}
    with upstream() as up, running_with({}, up.url, workers=1, admin=True, **named) as proxy:
        for given, code in ((named, 0), ({} if tls else {"PLIMSOLL_TLS_CERT": "x"}, 1)):
            environment = {"PLIMSOLL_ADMIN_PORT": str(proxy.admin_port), **given}
            done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, timeout=60)
            assert done.returncode == code, done.stderr
