"""Clients for Node, as the lock file pins them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import BODIES, Told, missing, run_script
from tests.e2e.world import World, world

HERE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".bench" / "node-clients"
OLDEST = 20  # of node's versions that the packages run on
INSTALL_SECONDS = 180


def installed() -> Path:
    """A folder with the packages as the lock file pins them. Processes that run tests side by side install once."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("node and npm are not installed: clients for Node are not tested")
    said = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=True).stdout
    if int(said.lstrip("v").split(".")[0]) < OLDEST:
        missing(f"node is {said.strip()}, clients for Node need {OLDEST}")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _install(str(npm), folder)
            (folder / "done").touch()
    return folder


def _install(npm: str, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        missing(f"npm could not install the clients: {done.stderr[-500:]}")


def run_client(here: World, script: str) -> tuple[Told, Told]:
    """What a client was told straight, and through the proxy."""
    with tempfile.TemporaryDirectory(dir=installed()) as name:
        folder = Path(name)
        for source in HERE.glob("*.mjs"):
            shutil.copy(source, folder)
        (folder / "bodies.json").write_text(json.dumps(BODIES))
        straight = run_script(here, folder, "node", script, here.straight, "straight")
        return straight, run_script(here, folder, "node", script, here.through, "through")


# The tests that every client has; its file gives them their names. `here` and `told` are its fixtures.

Check = Callable[..., None]


def worlds(config: SimulatorConfig | None = None) -> Any:
    """The fixture `here`: the proxy before a simulator."""

    @pytest.fixture(scope="module")
    def here() -> Iterator[World]:
        with world(config) if config is not None else world() as made:
            yield made

    return here


def told_by(script: str) -> Any:
    """The fixture `told`: what the client was told straight, and through the proxy."""

    @pytest.fixture(scope="module")
    def told(here: World) -> tuple[Told, Told]:
        return run_client(here, script)

    return told


def same_through_the_proxy(*scenarios: str) -> Check:
    """A test of each scenario: its answer or failure is the same both ways."""

    @pytest.mark.parametrize("scenario", scenarios)
    def check(told: tuple[Told, Told], scenario: str) -> None:
        straight, through = (way[scenario] for way in told)
        assert straight == through

    return check


def fails_as(kinds: Mapping[str, str]) -> Check:
    """A test of each scenario: its failure has this kind, both ways."""

    @pytest.mark.parametrize(("scenario", "kind"), kinds.items())
    def check(told: tuple[Told, Told], scenario: str, kind: str) -> None:
        assert [way[scenario]["failure"]["kind"] for way in told] == [kind, kind]

    return check


def tried(tries: Mapping[str, int]) -> Check:
    """A test of each scenario: the client sends it so often, both ways."""

    @pytest.mark.parametrize(("scenario", "times"), tries.items())
    def check(here: World, told: tuple[Told, Told], scenario: str, times: int) -> None:
        assert told
        assert [len(here.seen(f"{scenario} {tag}")) for tag in ("straight", "through")] == [times, times]

    return check
