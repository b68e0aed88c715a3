"""The chart: its five value files, what its schema refuses, and that it is what the kustomize base is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from proxy import __version__
from tests.deploy.renders import (
    CHART,
    DEPLOY,
    KUSTOMIZE,
    VALUES,
    Object,
    Refused,
    charted,
    kustomized,
    linted,
    objects,
    only,
    pod_of,
    values_of,
)

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
HELMS_OWN = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")


def test_the_chart_has_five_files_of_values() -> None:
    assert VALUES == ["default", "everything", "observe", "overlay", "small"]


@pytest.mark.parametrize("name", VALUES)
def test_lint_has_nothing_against_it(name: str) -> None:
    report = linted(values_of(name))
    assert report["errors"] == []
    assert [said["error"] for said in report["messages"]] == ["icon is recommended"]


def test_one_file_sets_every_value() -> None:
    assert set(keys(DEFAULTS)) - set(keys(values_of("everything"))) == {"securityContext"}


def keys(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all values; of a mapping that the schema leaves open, its own path alone."""
    for name, value in values.items():
        inner = value if isinstance(value, dict) and f"{path}{name}" in CLOSED else {}
        yield f"{path}{name}"
        yield from keys(inner, f"{path}{name}.")


def closed(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        if child.get("additionalProperties") is False:
            yield f"{path}{name}"
            yield from closed(child, f"{path}{name}.")


SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CLOSED = {*closed(SCHEMA)} - {"resources"}


def test_the_schema_has_every_value_and_no_other() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == DEFAULTS.keys()
    for path in CLOSED:
        schema, values = SCHEMA, DEFAULTS
        for name in path.split("."):
            schema, values = schema["properties"][name], values[name]
        assert schema["properties"].keys() == values.keys(), path


@pytest.mark.parametrize("path", sorted(keys(DEFAULTS)))
def test_a_misspelt_value_is_refused(path: str) -> None:
    values: dict[str, Any] = {}
    place = values
    *folders, name = path.split(".")
    for folder in folders:
        place = place.setdefault(folder, {})
    place[f"{name}s"] = 1
    with pytest.raises(Refused, match=f"{name}s"):
        charted(values)


@pytest.mark.parametrize(
    "values",
    [
        {"replicaCount": "two"},
        {"image": {"digest": "latest"}},
        {"settings": {"PLIMSOL_MODE": "observe"}},
        {"settings": {"PLIMSOLL_PORT": "80"}},
        {"settings": {"PLIMSOLL_API_KEY": "sk-1"}},
        {"settings": {"PLIMSOLL_SUMMARY_API_KEY": "sk-1"}},
        {"settings": {"PLIMSOLL_SECRET": "0123"}},
        {"settings": {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=1"}},
        {"settings": {"PLIMSOLL_MODE": ["fit"]}},
        {"rules": {"../ladder.toml": ""}},
        {"service": {"port": 0}},
        {"resources": {"requests": {"memmory": "256Mi"}}},
        {"metrics": {"podMonitor": {"interval": "thirty"}}},
        {"podDisruptionBudget": {"maxUnavailable": "half"}},
    ],
    ids=json.dumps,
)
def test_a_wrong_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        charted(values)


def without_helms_own(made: list[Object]) -> list[Object]:
    """The objects without the labels and the annotation that only Helm adds."""
    found = json.loads(json.dumps(made))
    for one in found:
        for name in HELMS_OWN:
            del one["metadata"]["labels"][name]
        pod_of(one).get("metadata", {}).pop("annotations", None)
    return [*found]


def test_the_chart_makes_the_objects_of_the_kustomize_base() -> None:
    assert without_helms_own(charted(values_of("default"))) == kustomized(KUSTOMIZE / "gateway")


def comparable(one: Object) -> Object:
    """An object without what cannot be the same: its namespace, labels that name the chart or a gateway, what a
    PodMonitor selects (that of the component serves sidecars, too), and the paths of rules."""
    one["metadata"].pop("namespace", None)
    if one["kind"] in ("ConfigMap", "PodMonitor", "PrometheusRule"):
        one["metadata"].pop("labels", None)
    if one["kind"] == "PodMonitor":
        del one["spec"]["selector"]
    for volume in pod_of(one).get("spec", {}).get("volumes", ()):
        volume.get("configMap", {}).pop("items", None)
    return one


def test_the_chart_makes_the_objects_of_the_kustomize_overlay() -> None:
    overlay = [one for one in kustomized(KUSTOMIZE / "overlays/gateway") if one["kind"] != "Namespace"]
    text = re.sub(r"(plimsoll-(?:settings|rules))-[a-z0-9]{10}\b", r"\1", json.dumps(overlay))  # digests in names
    got = without_helms_own(charted(values_of("overlay")))
    assert [comparable(one) for one in got] == [comparable(one) for one in objects(text)]


def pod_with(mode: str, rule: str = "") -> object:
    return pod_of(only(charted({"settings": {"PLIMSOLL_MODE": mode}, "rules": {"ladder.toml": rule}}), "Deployment"))


def test_a_changed_setting_rolls_the_pods_and_a_changed_rule_does_not() -> None:
    assert pod_with("observe") == pod_with("observe", "floor = 100") != pod_with("fit")


def test_numbers_and_booleans_of_settings_are_written_as_they_were() -> None:
    (settings,) = (one for one in charted(values_of("small")) if one["kind"] == "ConfigMap")
    assert settings["data"] == {
        "PLIMSOLL_EXTRA_CALLS_BUDGET": "20000000",
        "PLIMSOLL_UPSTREAM": "http://vllm.models.svc:8000/v1",
        "PLIMSOLL_WORKERS": "2",
    }


def test_a_network_policy_without_clients_lets_nobody_in() -> None:
    policy = only(charted({"networkPolicy": {"clients": [], "monitoring": []}}), "NetworkPolicy")
    assert "ingress" not in policy["spec"] and "Ingress" in policy["spec"]["policyTypes"]


def test_alerts_and_boards_are_shipped_as_they_are() -> None:
    shown = {"prometheusRule": {"enabled": True, "labels": {"release": "p"}}, "dashboards": {"enabled": True}}
    made = charted({"metrics": shown})
    rule = only(made, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())
    boards = only(made, "ConfigMap")
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert boards["data"] == {path.name: path.read_text() for path in (DEPLOY / "grafana/dashboards").iterdir()}


def test_versions_are_those_of_the_proxy() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    text = "".join(path.read_text() for path in KUSTOMIZE.rglob("*.yaml"))
    assert set(re.findall(r"image: plimsoll:(\S+)|newTag: (\S+)", text)) == {(__version__, ""), ("", __version__)}
