"""Clients for Node: installed as the lock file pins them, and run straight and through the proxy."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.demo import BODY
from proxy.simulator.replies import END
from tests.e2e.world import World, eventually

HERE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".bench" / "node-clients"
OLDEST = 20  # of node's versions that the packages run on
INSTALL_SECONDS, RUN_SECONDS = 180, 120
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{i}", "description": f"Finds what number {i} is for. " * 30}}
    for i in range(60)
]
CALLS = 16  # of an agent's run: some 600 tokens of results each
Told = dict[str, dict[str, Any]]


def result(number: int) -> str:
    """What a tool brings at its call of this number, from 0; the last one says that it was the last."""
    return f"Part {number}: " + " ".join(f"line{number}x{n}" for n in range(120)) if number < CALLS - 1 else END


RESULTS = [result(number) for number in range(CALLS)]
BODIES = {
    "long": BODY,
    "unfit": {"model": "gpt-4", "messages": [{"role": "user", "content": "Which?"}], "tools": TOOLS},
    "results": RESULTS,
}


def missing(reason: str) -> None:
    """Without node these tests cannot be; where everything must be, that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


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
        return (
            _run(here, folder, script, here.straight, "straight"),
            _run(here, folder, script, here.through, "through"),
        )


def _run(here: World, folder: Path, script: str, url: str, tag: str) -> Told:
    """Runs the client; where it says that it let something go, it waits until the simulator has seen it."""
    told: Told = {}
    with subprocess.Popen(
        ["node", script, url, tag], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdin and node.stdout
        try:
            lost = here.simulator.disconnects
            for line in node.stdout:
                found = json.loads(line)
                if "waiting" in found:
                    lost += 1
                    eventually(partial(here.has_lost, lost), 20)
                    node.stdin.write("\n")
                    node.stdin.flush()
                else:
                    told[found.pop("scenario")] = found
            assert node.wait(RUN_SECONDS) == 0
        finally:
            node.kill()
    return told
