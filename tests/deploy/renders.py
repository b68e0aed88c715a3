"""What kustomize and Helm make of deploy/: the objects as a cluster would get them."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"
CHART = DEPLOY / "helm" / "plimsoll"
# What can be applied; the others are parts of these.
FOLDERS = ("gateway", "overlays/gateway", "overlays/keda", "overlays/sidecar")
VALUES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
Object = dict[str, Any]


class Refused(ValueError):
    """The renderer refused the files, with its reason."""


def missing(reason: str) -> NoReturn:
    """Without its renderer a test cannot be; where everything must be, that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def renderer(kind: str) -> subprocess.Popen[str]:
    """The process that renders, for all tests of this process."""
    search = os.pathsep.join(path for path in sys.path if path)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": search, "HOME": "/nonexistent"}
    command = [sys.executable, str(Path(__file__).with_name("renderer.py")), kind]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def answer(kind: str, request: Mapping[str, Any] | None) -> str:
    """What the renderer answers; None asks nothing and waits until it is ready."""
    process = renderer(kind)
    assert process.stdin and process.stdout
    if request is not None:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    said = json.loads(process.stdout.readline() or '{"error": "it ended"}')
    if "error" in said:
        raise Refused(said["error"])
    text: str = said["text"]
    return text


@cache
def started(kind: str) -> bool:
    """Whether there is such a renderer here."""
    try:
        return answer(kind, None) == "ready"
    except Refused:
        return False


def objects(text: str) -> list[Object]:
    """The objects of a stream of YAML, in the order of their kinds and names."""
    found = [made for part in yaml.safe_load_all(text) for made in (part if isinstance(part, list) else [part]) if made]
    return sorted(found, key=lambda made: (made["kind"], made["metadata"]["name"]))


def kustomized(folder: Path) -> list[Object]:
    """The objects of a kustomization. Raises `Refused`."""
    if not started("kustomize"):
        missing("pykustomize is not installed (make test installs it, on Linux x86-64)")
    return objects(answer("kustomize", {"folder": str(folder)}))


def kustomized_by_commands(folder: Path) -> dict[str, list[Object]]:
    """The same, by the commands that there are on this machine."""
    commands = {"kustomize": ["kustomize", "build"], "kubectl": ["kubectl", "kustomize"]}
    found = {}
    for name in filter(shutil.which, commands):
        done = subprocess.run([*commands[name], str(folder)], capture_output=True, text=True, check=True)
        found[name] = objects(done.stdout)
    return found


def charted(values: Mapping[str, Any], chart: Path = CHART) -> list[Object]:
    """The objects of the chart with these values. Raises `Refused`."""
    if not started("helm"):
        missing("helm-python-sdk is not installed (make test installs it, on Linux x86-64)")
    return objects(answer("helm", {"chart": str(chart), "values": values}))


def linted(values: Mapping[str, Any], chart: Path = CHART) -> dict[str, Any]:
    """What `helm lint --strict` says."""
    if not started("helm"):
        missing("helm-python-sdk is not installed (make test installs it, on Linux x86-64)")
    report: dict[str, Any] = json.loads(answer("helm", {"chart": str(chart), "values": values, "lint": True}))
    return report


def values_of(name: str) -> dict[str, Any]:
    """The values of one of the chart's files in ci/."""
    return yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()) or {}


def every_render() -> dict[str, list[Object]]:
    """Everything that is shipped for Kubernetes, rendered."""
    kustomize = {f"kustomize {folder}": kustomized(KUSTOMIZE / folder) for folder in FOLDERS}
    return kustomize | {f"helm {name}": charted(values_of(name)) for name in VALUES}


def only(made: list[Object], kind: str) -> Object:
    """The one object of this kind."""
    (found,) = (one for one in made if one["kind"] == kind)
    return found


def pod_of(made: Object) -> Object:
    """The pod template of a workload; empty for any other object."""
    spec = made.get("spec", {})
    template: Object = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    return template
