"""Clients in processes of their own: the scripts that run them, straight and through the proxy, and what they told."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from proxy.cli.demo import BODY
from proxy.simulator.replies import END
from tests.e2e.world import World, eventually

RUN_SECONDS = 600  # of a client with all that it asks; one that hangs is killed then
# Of so many tools the names alone are too long, and no step may shorten names.
TOOLS = [
    {
        "type": "function",
        "function": {"name": f"tool_{i}_finds_what_this_number_of_the_ledger_is_for", "description": "It."},
    }
    for i in range(700)
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
    """Without a client its tests cannot be; where everything must be, that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def run_script(here: World, folder: Path, *command: str) -> Told:
    """Runs the client; where it says that it sent something, or let it go, it waits until the simulator has seen it."""
    told: Told = {}
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin and client.stdout
        watch = Timer(RUN_SECONDS, client.kill)
        watch.start()
        try:
            lost = here.simulator.disconnects
            for line in client.stdout:
                found = json.loads(line)
                if "waiting" in found:
                    lost += 1
                    eventually(partial(here.has_lost, lost), 30)
                elif "expected" in found:
                    eventually(partial(here.seen, found["expected"]), 30)
                else:
                    told[found.pop("scenario")] = found
                    continue
                client.stdin.write("\n")
                client.stdin.flush()
            assert client.wait(RUN_SECONDS) == 0
        finally:
            watch.cancel()
            client.kill()
    return told
