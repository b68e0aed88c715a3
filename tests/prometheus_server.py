"""Starts a real Prometheus for tests: on a free port of 127.0.0.1, in a folder of its own, ended with the test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

START_SECONDS = 60.0
LISTENS = re.compile(r'msg="Listening on".* address=(\S+)')  # in its log
Vector = list[tuple[dict[str, str], float]]


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A Prometheus of ours."""

    url: str

    def query(self, expr: str, at: float) -> Vector:
        """The labels and values that an expression returns at a time, in seconds since 1970. Raises HTTPError."""
        arguments = urlencode({"query": expr, "time": f"{at:.3f}"})
        with urlopen(f"{self.url}/api/v1/query?{arguments}", timeout=20) as answer:
            found = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


@contextmanager
def prometheus_server(config: Mapping[str, Any]) -> Iterator[PrometheusServer]:
    """A running Prometheus. Where none is installed the test is skipped, and fails in CI (`CI=true`)."""
    binary = shutil.which("prometheus")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is not installed: CI must have one (tests/servers_setup.sh)")
        pytest.skip("prometheus is not installed: this test needs a real one (apt-get install prometheus)")
    with tempfile.TemporaryDirectory(prefix="plimsoll-prometheus-") as folder:
        (Path(folder) / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        options = {
            "config.file": f"{folder}/prometheus.yml",
            "storage.tsdb.path": folder,
            "web.listen-address": "127.0.0.1:0",
        }
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([binary, *(f"--{k}={v}" for k, v in options.items())], stdout=log, stderr=log)
        try:
            yield PrometheusServer(_ready(process, Path(folder) / "log"))
        finally:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Its URL, once it answers there."""
    ends = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < ends:
        if found := LISTENS.search(log.read_text()):
            url = f"http://{found[1]}"
            with contextlib.suppress(URLError), urlopen(f"{url}/-/ready", timeout=5):
                return url
        time.sleep(0.05)
    raise RuntimeError(f"prometheus did not start: {log.read_text()[-1000:]}")
