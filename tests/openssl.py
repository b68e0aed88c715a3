"""Certificates as an operator makes them: by the command openssl."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def made(folder: Path, name: str, password: str = "") -> tuple[Path, Path]:
    """Files with a certificate for localhost whose subject is `name`, and with its key. It signs itself."""
    command = shutil.which("openssl")
    if command is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("openssl is not installed")
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    files = ["-keyout", str(key), "-out", str(chain)]
    arguments = [command, "req", "-x509", *kind, *secret, "-days", "2", *subject, *files]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    return chain, key


def trusting(*chains: Path) -> ssl.SSLContext:
    """A client's side of TLS that trusts these certificates and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for chain in chains:
        context.load_verify_locations(chain)
    return context


def subject_of(found: object) -> str:
    """The name in a peer's certificate, as `getpeercert` gives it."""
    assert isinstance(found, dict)
    return next(str(value) for ((key, value),) in found["subject"] if key == "commonName")
