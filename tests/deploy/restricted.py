"""The restricted profile of Kubernetes' Pod Security Standards, as rules over a pod's spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.deploy.renders import Object

VOLUMES = frozenset("configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret".split())
HOST = ("hostNetwork", "hostPID", "hostIPC")
SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Object) -> list[str]:
    """What the profile forbids in a pod's spec; empty if a namespace that enforces it takes the pod."""
    return [*_of_pod(pod), *(told for container in _containers(pod) for told in _of_container(pod, container))]


def _containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _of_pod(pod: Object) -> Iterator[str]:
    yield from (f"{name} is set" for name in HOST if pod.get(name))
    for volume in pod.get("volumes", ()):
        if forbidden := volume.keys() - VOLUMES - {"name"}:
            yield f"volume {volume['name']} is of the kind {', '.join(forbidden)}"
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls are set"


def _of_container(pod: Object, container: Object) -> Iterator[str]:
    name, own = container["name"], container.get("securityContext", {})
    effective: dict[str, Any] = {**pod.get("securityContext", {}), **own}
    capabilities = own.get("capabilities", {})
    if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: privilege escalation is allowed"
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: has capabilities"
    if effective.get("runAsNonRoot") is not True or effective.get("runAsUser") == 0:
        yield f"{name}: may run as root"
    if effective.get("seccompProfile", {}).get("type") not in SECCOMP:
        yield f"{name}: has no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}: procMount is {own['procMount']}"
    for port in container.get("ports", ()):
        if "hostPort" in port:
            yield f"{name}: port {port['hostPort']} of the host"
