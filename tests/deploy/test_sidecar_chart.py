"""The library chart: a chart of one's own gets the sidecar that kustomize makes, with the values that it takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from proxy import __version__
from tests.deploy.renders import DEPLOY, KUSTOMIZE, Object, charted, kustomized, linted, only, pod_of
from tests.deploy.restricted import violations
from tests.deploy.schemas import VERSIONS, problems

LIBRARY = DEPLOY / "helm" / "plimsoll-sidecar"
ABOUT = yaml.safe_load((LIBRARY / "Chart.yaml").read_text())
# As the comment in the library says.
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: assistant
spec:
  selector:
    matchLabels:
      app: assistant
  template:
    metadata:
      labels:
        app: assistant
        {{- include "plimsoll.sidecar.labels" . | nindent 8 }}
    spec:
      initContainers:
        {{- include "plimsoll.sidecar" .Values.plimsoll | nindent 8 }}
      containers:
        - name: assistant
          image: assistant:1.0
          env:
            {{- include "plimsoll.sidecar.env" . | nindent 12 }}
      volumes:
        {{- include "plimsoll.sidecar.volumes" .Values.plimsoll | nindent 8 }}
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A team's chart that depends on the library."""
    folder = tmp_path / "assistant"
    (folder / "templates").mkdir(parents=True)
    needs = [{"name": ABOUT["name"], "version": ABOUT["version"], "repository": "file://../plimsoll-sidecar"}]
    about = {"apiVersion": "v2", "name": "assistant", "version": "1.0.0", "dependencies": needs}
    (folder / "Chart.yaml").write_text(json.dumps(about))
    (folder / "values.yaml").write_text("plimsoll: {}\n")
    (folder / "templates" / "deployment.yaml").write_text(DEPLOYMENT)
    shutil.copytree(LIBRARY, folder / "charts" / "plimsoll-sidecar")
    return folder


def deployment(chart: Path, **plimsoll: Any) -> Object:
    return only(charted({"plimsoll": plimsoll}, chart), "Deployment")


def kustomize() -> Any:
    return pod_of(only(kustomized(KUSTOMIZE / "overlays/sidecar"), "Deployment"))["spec"]


def test_M14_a_chart_of_ones_own_gets_the_container_that_kustomize_makes(chart: Path) -> None:
    template, want = pod_of(deployment(chart)), kustomize()
    (got,) = template["spec"]["initContainers"]
    wanted = want["initContainers"][0]
    wanted["envFrom"][0]["configMapRef"]["name"] = "plimsoll-settings"  # without the digest of its content
    assert got == wanted
    assert template["spec"]["volumes"] == want["volumes"]
    assert template["metadata"]["labels"]["plimsoll"] == "sidecar", "monitors and policies find it"
    (row,) = template["spec"]["containers"][0]["env"]
    assert row in want["containers"][0]["env"]


@pytest.mark.parametrize("version", ["1.29", *VERSIONS])
def test_it_is_valid_and_restricted(version: str, chart: Path) -> None:
    made = deployment(chart, settings={"PLIMSOLL_WORKERS": 2}, resources={"limits": {"memory": "256Mi"}})
    assert problems(made, version) == []
    assert violations({"containers": pod_of(made)["spec"]["initContainers"]}) == []


def test_its_values_are_those_that_its_comment_names(chart: Path) -> None:
    given: dict[str, Any] = {
        "image": "images.example.com/plimsoll:1",
        "pullPolicy": "Always",
        "settings": {"PLIMSOLL_LADDER": "agent", "PLIMSOLL_EXTRA_CALLS_BUDGET": 20_000_000},
        "settingsName": "a",
        "rulesName": "b",
        "secretName": "c",
        "resources": {"limits": {"memory": "1Gi"}},
    }
    comment = (LIBRARY / "templates" / "_sidecar.tpl").read_text().partition("*/")[0]
    assert all(name in comment for name in given)
    pod = pod_of(deployment(chart, **given))["spec"]
    (container,) = pod["initContainers"]
    environment = {row["name"]: row["value"] for row in container["env"]}
    assert (container["image"], container["imagePullPolicy"]) == (given["image"], "Always")
    assert environment["PLIMSOLL_LADDER"] == "agent" and environment["PLIMSOLL_EXTRA_CALLS_BUDGET"] == "20000000"
    assert container["envFrom"][0]["configMapRef"]["name"] == "a" and container["resources"] == given["resources"]
    assert [volume.get("configMap", volume.get("secret")) for volume in pod["volumes"][:2]] == [
        {"name": "b", "optional": True},
        {"secretName": "c", "optional": True},
    ]


def test_its_versions_are_those_of_the_proxy() -> None:
    assert (ABOUT["version"], ABOUT["appVersion"], ABOUT["type"]) == (__version__, __version__, "library")
    assert f"plimsoll:{__version__}" in (LIBRARY / "templates" / "_sidecar.tpl").read_text()


def test_lint_has_nothing_against_it() -> None:
    report = linted({}, LIBRARY)
    assert report["errors"] == []
    assert [said["error"] for said in report["messages"]] == ["icon is recommended"]
