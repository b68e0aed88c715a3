"""The kustomize bases and components: what a workload gets, and that a mistake in them is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from proxy import __version__
from tests.deploy.renders import (
    DEPLOY,
    FOLDERS,
    KUSTOMIZE,
    Object,
    Refused,
    kustomized,
    kustomized_by_commands,
    only,
    pod_of,
)

APP = yaml.safe_load((KUSTOMIZE / "overlays/sidecar/app.yaml").read_text())


def pod() -> Any:
    """The pod of the example application with its sidecar."""
    return pod_of(only(kustomized(KUSTOMIZE / "overlays/sidecar"), "Deployment"))["spec"]


def sidecar() -> Any:
    return pod()["initContainers"][0]


def environment(container: Object) -> dict[str, str | None]:
    return {row["name"]: row.get("value") for row in container.get("env", ())}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kustomize_that_is_here_renders_the_same(folder: str) -> None:
    made = kustomized(KUSTOMIZE / folder)
    assert made
    for name, other in kustomized_by_commands(KUSTOMIZE / folder).items():
        assert other == made, name


def test_the_sidecar_starts_first_and_stays() -> None:
    names = [container["name"] for container in pod()["initContainers"]]
    assert names == ["plimsoll", "migrate"]
    assert sidecar()["restartPolicy"] == "Always"
    assert "restartPolicy" not in pod()["initContainers"][1]


def test_clients_are_on_loopback_and_the_admin_port_is_on_the_pod() -> None:
    settings = environment(sidecar())
    assert (settings["PLIMSOLL_HOST"], settings["PLIMSOLL_PORT"]) == ("127.0.0.1", "4080")
    assert (settings["PLIMSOLL_ADMIN_HOST"], settings["PLIMSOLL_ADMIN_PORT"]) == ("0.0.0.0", "4081")
    assert sidecar()["ports"] == [{"name": "plimsoll-admin", "containerPort": 4081, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
)
def test_probes_ask_the_admin_port(probe: str, path: str) -> None:
    (gateway,) = pod_of(only(kustomized(KUSTOMIZE / "gateway"), "Deployment"))["spec"]["containers"]
    for container in (sidecar(), gateway):
        assert container[probe]["httpGet"] == {"path": path, "port": "plimsoll-admin"}


def test_every_container_of_the_application_finds_the_sidecar() -> None:
    for container in pod()["containers"]:
        assert environment(container)["OPENAI_BASE_URL"] == "http://127.0.0.1:4080/v1"
        assert "ANTHROPIC_BASE_URL" not in environment(container)


def test_nothing_else_of_the_application_changes() -> None:
    """Its containers, user, probes, grace period and volumes are those that its team wrote."""
    got, wrote = pod(), APP["spec"]["template"]["spec"]
    for container in got["containers"]:
        container["env"] = [row for row in container["env"] if row["name"] != "OPENAI_BASE_URL"]
        if not container["env"]:
            del container["env"]
    assert got["containers"] == wrote["containers"]
    assert got["initContainers"][1:] == wrote["initContainers"]
    assert {k: v for k, v in got.items() if k not in ("containers", "initContainers", "volumes")} == {
        k: v for k, v in wrote.items() if k not in ("containers", "initContainers")
    }


def test_settings_rules_and_keys_come_by_reference() -> None:
    made = kustomized(KUSTOMIZE / "overlays/sidecar")
    settings = only(made, "ConfigMap")
    assert settings["metadata"]["name"].startswith("plimsoll-settings-")  # its digest: a change rolls the pods
    assert sidecar()["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"], "optional": True}}]
    assert {"name": "plimsoll-rules", "configMap": {"name": "plimsoll-rules", "optional": True}} in pod()["volumes"]
    assert {"name": "plimsoll-keys", "secret": {"secretName": "plimsoll", "optional": True}} in pod()["volumes"]
    mounted = {row["name"]: row["mountPath"] for row in sidecar()["volumeMounts"]}
    assert mounted["plimsoll-keys"] == environment(sidecar())["PLIMSOLL_KEYS"]
    assert not any("plimsoll" in str(container.get("volumeMounts")) for container in pod()["containers"])
    assert not any(one["kind"] == "Secret" for one in made)


def test_the_sidecar_ends_within_the_grace_period_that_kubernetes_gives_by_default() -> None:
    assert int(environment(sidecar())["PLIMSOLL_DRAIN"] or 0) < 30


def test_the_gateway_ends_within_its_grace_period() -> None:
    spec = pod_of(only(kustomized(KUSTOMIZE / "gateway"), "Deployment"))["spec"]
    (container,) = spec["containers"]
    sleeps = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] == sleeps + int(environment(container)["PLIMSOLL_DRAIN"] or 0) + 10


WORKLOADS = ("StatefulSet", "DaemonSet", "Job", "CronJob")
POD = {
    "metadata": {"labels": {"app": "worker"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker"}]},
}


def overlay(folder: Path, workload: Object, *components: str) -> list[Object]:
    """A workload with components of ours, rendered."""
    shutil.copytree(KUSTOMIZE, folder / "kustomize")
    here = folder / "kustomize" / "mine"
    here.mkdir()
    (here / "workload.yaml").write_text(yaml.safe_dump(workload))
    names = [f"../{component}" for component in components]
    (here / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["workload.yaml"], "components": names}))
    return kustomized(here)


def workload(kind: str, **labels: str) -> Object:
    spec: Object = {"template": POD}
    if kind == "CronJob":
        spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": spec}}
    version = "batch/v1" if kind.endswith("Job") else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "worker", "labels": labels}, "spec": spec}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_kind_of_workload_gets_the_same_sidecar(kind: str, tmp_path: Path) -> None:
    (made,) = overlay(tmp_path, workload(kind, plimsoll="sidecar"), "sidecar", "sidecar/anthropic")
    spec = pod_of(made)["spec"]
    expected = sidecar()
    expected["envFrom"][0]["configMapRef"]["name"] = "plimsoll-settings"
    assert spec["initContainers"] == [expected]
    assert spec["volumes"] == pod()["volumes"]
    assert environment(spec["containers"][0]) == {
        "OPENAI_BASE_URL": "http://127.0.0.1:4080/v1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:4080",
    }
    assert pod_of(made)["metadata"]["labels"] == {"app": "worker", "plimsoll": "sidecar"}


def test_a_workload_without_the_label_is_left_alone(tmp_path: Path) -> None:
    before = workload("StatefulSet", app="worker")
    assert overlay(tmp_path, before, "sidecar", "sidecar/anthropic") == [before]


def test_the_example_of_the_documents_renders(tmp_path: Path) -> None:
    section = (DEPLOY / "docs" / "kubernetes.md").read_text().partition("\n## As a sidecar\n")[2]
    shutil.copytree(KUSTOMIZE, tmp_path / "plimsoll" / "deploy" / "kustomize")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "kustomization.yaml").write_text(section.split("```\n")[1])
    (tmp_path / "app" / "deployment.yaml").write_text((KUSTOMIZE / "overlays/sidecar/app.yaml").read_text())
    made = kustomized(tmp_path / "app")
    (first, *_) = pod_of(only(made, "Deployment"))["spec"]["initContainers"]
    assert first["image"] == f"images.example.com/plimsoll:{__version__}"
    assert only(made, "ConfigMap")["data"] == {"PLIMSOLL_UPSTREAM": "https://api.openai.com/v1"}


def kustomizations() -> list[Path]:
    return sorted(path.relative_to(DEPLOY) for path in DEPLOY.rglob("kustomization.yaml"))


@pytest.mark.parametrize("file", kustomizations(), ids=str)
def test_a_misspelt_field_of_a_kustomization_is_refused(file: Path, tmp_path: Path) -> None:
    written = yaml.safe_load((DEPLOY / file).read_text())
    for folder in ("examples", "grafana", "kustomize"):
        shutil.copytree(DEPLOY / folder, tmp_path / folder)
    used = overlay_with(file.parent)
    for name in written.keys() - {"apiVersion", "kind"}:
        changed = {f"{key}s" if key == name else key: value for key, value in written.items()}
        (tmp_path / file).write_text(yaml.safe_dump(changed))
        with pytest.raises(Refused, match=f"{name}s"):
            kustomized(tmp_path / used)


def overlay_with(folder: Path) -> Path:
    """A folder that can be rendered and uses this one."""
    parts = {"kustomize/sidecar": "sidecar", "kustomize/monitoring": "gateway", "kustomize/autoscaling": "gateway"}
    parts["kustomize/autoscaling/keda"] = "keda"
    overlay = parts.get(str(folder))
    return folder if overlay is None else Path("kustomize/overlays") / overlay


def test_the_sidecars_network_policy_keeps_metrics_for_monitoring_and_changes_no_other_port(tmp_path: Path) -> None:
    made = overlay(tmp_path, workload("Deployment", plimsoll="sidecar"), "sidecar", "sidecar/networkpolicy")
    policy = only(made, "NetworkPolicy")["spec"]
    labels = pod_of(only(made, "Deployment"))["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items() and policy["policyTypes"] == ["Ingress"]
    monitoring, others = policy["ingress"]
    assert [row["port"] for row in monitoring["ports"]] == [int(environment(sidecar())["PLIMSOLL_ADMIN_PORT"] or 0)]
    assert monitoring["from"] == [{"namespaceSelector": {"matchLabels": {"plimsoll-monitoring": "true"}}}]
    assert "from" not in others
    for protocol in ("TCP", "UDP", "SCTP"):
        rows = [row for row in others["ports"] if row["protocol"] == protocol]
        open_to_all = {port for row in rows for port in range(row["port"], row["endPort"] + 1)}
        assert set(range(1, 65_536)) - open_to_all == ({4081} if protocol == "TCP" else set())
