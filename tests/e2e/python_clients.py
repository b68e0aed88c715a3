"""Clients in Python whose packages conflict with those of the tests: in a venv of their own, as the lock file pins
them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.e2e.client_scripts import BODIES, Told, missing, run_script
from tests.e2e.world import World

HERE = Path(__file__).parent / "python"
ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".bench" / "python-clients"
INSTALL_SECONDS = 300
WAYS = ("straight", "through")


def installed() -> Path:
    """A venv with the packages. Processes that run tests side by side install once."""
    lock = (HERE / "requirements.txt").read_bytes()
    folder = CACHE / f"{hashlib.sha256(lock).hexdigest()[:16]}-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            venv.create(folder, clear=False, with_pip=False)
            _install(folder)
            (folder / "done").touch()
    return folder


def _install(folder: Path) -> None:
    """By the pip of the tests' own venv. What is imported is compiled then."""
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-compile")
    command = [*pip, "--disable-pip-version-check", "--require-hashes", "-r", str(HERE / "requirements.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        missing(f"pip could not install the clients: {done.stderr[-500:]}")


def run_client(here: World, script: str) -> tuple[Told, Told]:
    """What a client was told straight, and through the proxy."""
    python = str(installed() / "bin" / "python")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as bodies:
        json.dump(BODIES, bodies)
        bodies.flush()
        told = run_script(here, ROOT, python, "-m", script, bodies.name, here.straight, here.through)
    ways = [{name.partition(" ")[2]: one for name, one in told.items() if name.startswith(way)} for way in WAYS]
    return ways[0], ways[1]
