"""The openai package for Node: whatever it is asked, it gets the same through the proxy as straight."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.demo import BODY
from tests.e2e.world import World, eventually, world

HERE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".bench" / "node-client"
OLDEST = 20  # of node's versions that the package runs on
INSTALL_SECONDS, RUN_SECONDS = 180, 60
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{i}", "description": f"Finds what number {i} is for. " * 30}}
    for i in range(60)
]
BODIES = {
    "long": BODY,
    "unfit": {"model": "gpt-4", "messages": [{"role": "user", "content": "Which?"}], "tools": TOOLS},
}
SAME = (
    *("chat", "stream", "usage", "answers", "tools", "parallel", "parsed", "models", "closed"),
    *("missing", "unauthorised", "limited", "failing", "orphan", "impatient", "aborted"),
)
Told = dict[str, dict[str, Any]]


def missing(reason: str) -> None:
    """Without node these tests cannot be; where everything must be, that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def installed() -> Path:
    """A folder with the package as the lock file pins it, and the client beside it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("node and npm are not installed: the openai package for Node is not tested")
    said = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=True).stdout
    if int(said.lstrip("v").split(".")[0]) < OLDEST:
        missing(f"node is {said.strip()}, the openai package for Node needs {OLDEST}")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = [str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            missing(f"npm could not install the openai package: {done.stderr[-500:]}")
        (folder / "done").touch()
    shutil.copy(HERE / "client.mjs", folder)
    (folder / "bodies.json").write_text(json.dumps(BODIES))
    return folder


def ask(here: World, folder: Path, url: str, tag: str) -> Told:
    """Runs the client; where it says that it let something go, it waits until the simulator has seen it."""
    command = ["node", "client.mjs", url, tag]
    told: Told = {}
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin and node.stdout
        try:
            lost = here.simulator.disconnects
            for line in node.stdout:
                found = json.loads(line)
                if "waiting" in found:
                    lost += 1
                    eventually(partial(here.has_lost, lost), 3)
                    node.stdin.write("\n")
                    node.stdin.flush()
                else:
                    told[found.pop("scenario")] = found
            assert node.wait(RUN_SECONDS) == 0
        finally:
            node.kill()
    return told


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture(scope="module")
def told(here: World) -> tuple[Told, Told]:
    """What the client was told straight, and through the proxy."""
    folder = installed()
    return ask(here, folder, here.straight, "straight"), ask(here, folder, here.through, "through")


@pytest.mark.parametrize("scenario", SAME)
def test_it_is_the_same_through_the_proxy(told: tuple[Told, Told], scenario: str) -> None:
    straight, through = (way[scenario] for way in told)
    assert straight == through


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("missing", "NotFoundError"),
        ("unauthorised", "AuthenticationError"),
        ("limited", "RateLimitError"),
        ("failing", "InternalServerError"),
        ("orphan", "BadRequestError"),
        ("unfit", "BadRequestError"),
        ("impatient", "APIConnectionTimeoutError"),
        ("aborted", "APIUserAbortError"),
    ],
)
def test_a_failure_is_of_the_kind_that_programs_expect(told: tuple[Told, Told], scenario: str, kind: str) -> None:
    assert [way[scenario]["failure"]["kind"] for way in told] == [kind, kind]


@pytest.mark.parametrize(("scenario", "tries"), [("unauthorised", 1), ("limited", 3), ("failing", 2), ("orphan", 1)])
def test_a_failure_is_tried_as_often(here: World, told: tuple[Told, Told], scenario: str, tries: int) -> None:
    assert told
    assert [len(here.seen(f"node {scenario} {tag}")) for tag in ("straight", "through")] == [tries, tries]


def test_what_nothing_makes_fit_costs_nothing(here: World, told: tuple[Told, Told]) -> None:
    failures = [way["unfit"]["failure"] for way in told]
    assert [f["code"] for f in failures] == ["context_length_exceeded"] * 2
    assert [f["param"] for f in failures] == ["messages"] * 2
    assert [len(here.seen(f"node unfit {tag}")) for tag in ("straight", "through")] == [1, 0]


def test_too_long_a_conversation_fails_straight_and_succeeds_through_the_proxy(told: tuple[Told, Told]) -> None:
    straight, through = told
    for scenario in ("long", "longstream"):
        assert straight[scenario]["failure"]["code"] == "context_length_exceeded"
    assert through["long"]["answer"]["choices"][0]["finish_reason"] == "stop"
    assert through["longstream"]["answer"][-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(told: tuple[Told, Told]) -> None:
    """Straight it is an error of the transport; the proxy tells it as one of the API, which programs expect."""
    straight, through = (way["broken"]["failure"] for way in told)
    assert (straight["kind"], through["kind"]) == ("TypeError", "APIError")
    assert through["body"]["code"] == "upstream_error"


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("resolved" not in package and package["integrity"].startswith("sha512-") for package in packages)
