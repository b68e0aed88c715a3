"""Settings, rules and ports in manifests are ones that the proxy has."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.config.rules import check_rules
from proxy.config.settings import SETTINGS, read_settings
from tests.deploy.renders import Object, every_render, pod_of

NAMES = {setting.name for setting in SETTINGS}


def containers(made: list[Object]) -> list[Object]:
    """Our containers."""
    specs = (pod_of(one)["spec"] for one in made if pod_of(one))
    found = (c for spec in specs for c in [*spec.get("initContainers", ()), *spec["containers"]])
    return [container for container in found if re.search(r"(^|/)plimsoll[:@]", container["image"])]


def config_maps(made: list[Object], name: str) -> list[dict[str, str]]:
    return [one["data"] for one in made if one["kind"] == "ConfigMap" and name in one["metadata"]["name"]]


def environments(made: list[Object]) -> list[dict[str, str]]:
    """The settings of our containers: those of their config map, and over them their own."""
    given = {name: value for data in config_maps(made, "-settings") for name, value in data.items()}
    own = [{row["name"]: row["value"] for row in c["env"] if "value" in row} for c in containers(made)]
    return [given | one for one in own]


def test_every_setting_is_one_with_a_value_that_it_may_have() -> None:
    for name, made in every_render().items():
        assert environments(made), name
        for environment in environments(made):
            assert environment.keys() <= NAMES, name
            read_settings(environment)


def test_resources_are_ones_that_a_container_has() -> None:
    """The schemas of Kubernetes accept any name here."""
    for name, made in every_render().items():
        for container in containers(made):
            for wanted in container["resources"].values():
                assert wanted.keys() <= {"cpu", "memory"} and "memory" in wanted, name


def test_ports_are_those_that_are_listened_on() -> None:
    for name, made in every_render().items():
        for container, environment in zip(containers(made), environments(made), strict=True):
            ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
            assert ports.pop("plimsoll-admin") == environment["PLIMSOLL_ADMIN_PORT"], name
            assert ports.pop("plimsoll", environment["PLIMSOLL_PORT"]) == environment["PLIMSOLL_PORT"], name


def test_rules_in_config_maps_have_no_problems(tmp_path: Path) -> None:
    found = 0
    for name, made in every_render().items():
        folder = tmp_path / name.replace("/", "-")
        for data in config_maps(made, "-rules"):
            for key, text in data.items():
                file = folder / key.replace("ladders.", "ladders/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            found += 1
            assert check_rules(folder) == [], name
    assert found == 3


def test_every_selector_selects_the_pods_of_its_own_render() -> None:
    for name, made in every_render().items():
        pods = [pod_of(one)["metadata"]["labels"] for one in made if pod_of(one)]
        services = [one["metadata"]["labels"] for one in made if one["kind"] == "Service"]
        for one in made:
            labels = services if one["kind"] == "ServiceMonitor" else pods
            selector = one.get("spec", {}).get("selector", one.get("spec", {}).get("podSelector"))
            if selector is not None:
                wanted = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
                assert any(wanted.items() <= found.items() for found in labels), (name, one["kind"])
