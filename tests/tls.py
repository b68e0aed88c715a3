"""Certificates for upstreams behind TLS, made once for a run."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.certificates import certified as made


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and a certificate for localhost that it signed itself."""
    folder = tmp_path_factory.mktemp("tls")
    path = folder / "both.pem"
    path.write_bytes(b"".join(file.read_bytes() for file in made(folder, "localhost")))
    return path


def context(path: Path) -> ssl.SSLContext:
    """A server's side of TLS with this certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    return tls


@pytest.fixture
def certificate(certified: Path) -> ssl.SSLContext:
    """A server's certificate that nobody trusts."""
    return context(certified)


@pytest.fixture
def trusted(certified: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The same certificate, trusted through SSL_CERT_FILE."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certified))
    return context(certified)
