"""The README's snippets run as they are written there, but for the address: Python, Node and curl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.node_clients import installed
from tests.e2e.world import World, world

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8080/v1"
ANSWER = "The simulator read 1 messages, 8 tokens."
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PLIMSOLL_"))}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world() as made:
        yield made


def snippet(language: str, of: str, here: World) -> str:
    """The block of that language in which `of` is, with the proxy's address in it."""
    blocks = (part.partition("\n```")[0] for part in README.split(f"```{language}\n")[1:])
    found = next(block for block in blocks if of in block)
    assert ADDRESS in found
    return found.replace(ADDRESS, here.through)


def run(*command: str, folder: Path | None = None) -> str:
    environment = {**CLEAN, "OPENAI_API_KEY": "sk-test"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python(here: World) -> None:
    assert run(sys.executable, "-c", snippet("python", "OpenAI(", here)).strip() == ANSWER


def test_node(here: World) -> None:
    folder = installed()
    (folder / "readme.mjs").write_text(snippet("js", "new OpenAI(", here))
    assert run("node", "readme.mjs", folder=folder).strip() == ANSWER


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(here: World) -> None:
    shown = run("sh", "-c", snippet("", "curl -i", here))
    assert ANSWER in shown and "x-plimsoll-count: exact" in shown
