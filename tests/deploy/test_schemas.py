"""Every manifest is valid for four versions of Kubernetes, and for namespaces that enforce the restricted profile."""

from __future__ import annotations

import pytest

from tests.deploy.renders import KUSTOMIZE, Object, charted, every_render, kustomized, pod_of, values_of
from tests.deploy.restricted import violations
from tests.deploy.schemas import VERSIONS, misspelt, problems

SIDECAR_VERSIONS = ("1.29", *VERSIONS)  # sidecar containers are older than preStop.sleep


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version: str) -> None:
    found = {name: [told for one in made for told in problems(one, version)] for name, made in every_render().items()}
    assert found == {name: [] for name in found}


@pytest.mark.parametrize("version", SIDECAR_VERSIONS)
def test_the_sidecar_is_valid(version: str) -> None:
    assert [told for one in kustomized(KUSTOMIZE / "overlays/sidecar") for told in problems(one, version)] == []


def test_sidecars_are_refused_before_there_were_any() -> None:
    (told,) = (told for one in kustomized(KUSTOMIZE / "overlays/sidecar") for told in problems(one, "1.27"))
    assert "restartPolicy" in told


def test_every_field_that_is_misspelt_is_found() -> None:
    everything = [*kustomized(KUSTOMIZE / "overlays/gateway"), *kustomized(KUSTOMIZE / "overlays/sidecar")]
    everything += charted(values_of("everything"))
    accepted, tried = [], 0
    for made in everything:
        for path, changed in misspelt(made):
            tried += 1
            if path not in ("apiVersion", "kind") and not problems(changed, VERSIONS[1]):
                accepted.append((made["kind"], path))
    assert accepted == []
    assert tried > 500


def test_every_pod_meets_the_restricted_profile() -> None:
    pods = {name: [pod_of(one)["spec"] for one in made if pod_of(one)] for name, made in every_render().items()}
    assert all(pods.values())
    found = {name: [told for pod in specs for told in violations(pod)] for name, specs in pods.items()}
    assert found == {name: [] for name in found}


GOOD: Object = {
    "name": "one",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
BAD: dict[str, Object] = {
    "privileged": {"privileged": True},
    "escalation": {"allowPrivilegeEscalation": True},
    "capabilities": {"capabilities": {"drop": []}},
    "added": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
    "root": {"runAsNonRoot": False},
    "user": {"runAsUser": 0},
    "seccomp": {"seccompProfile": {"type": "Unconfined"}},
    "proc": {"procMount": "Unmasked"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_container_that_breaks_a_rule_is_found(name: str) -> None:
    pod = {"containers": [GOOD, {**GOOD, "securityContext": {**GOOD["securityContext"], **BAD[name]}}]}
    assert len(violations(pod)) == 1


def test_a_pod_that_breaks_a_rule_is_found() -> None:
    assert violations({"containers": [GOOD]}) == []
    assert violations({"containers": [GOOD], "hostNetwork": True}) == ["hostNetwork is set"]
    assert len(violations({"containers": [GOOD], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]})) == 1
    assert len(violations({"containers": [{**GOOD, "ports": [{"containerPort": 1, "hostPort": 1}]}]})) == 1
    assert len(violations({"containers": [GOOD], "securityContext": {"sysctls": [{"name": "a", "value": "b"}]}})) == 1
