"""The chart: its five value files, what its schema refuses, and that it is what the kustomize base is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from proxy import __version__
from proxy.config.settings import SETTINGS
from proxy.config.values import Parser
from tests.deploy import values_schema
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
    unset = set(keys(DEFAULTS)) - set(keys(values_of("everything")))
    assert {path for path in unset if not TIMES.match(path.rpartition(".")[0])} == {"securityContext"}


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
OPEN = ("resources", "settings", "ingress.annotations", "dnsConfig")  # without names of their own in the defaults
CLOSED = {*closed(SCHEMA)} - {*OPEN}
TIMES = re.compile(r"probes\.\w+$")  # any of their fields may be left out


def test_the_schema_has_every_value_and_no_other() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == DEFAULTS.keys()
    for path in CLOSED:
        schema, values = SCHEMA, DEFAULTS
        for name in path.split("."):
            schema, values = schema["properties"][name], values[name]
        if TIMES.match(path):
            assert schema["properties"].keys() > values.keys(), path
        else:
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
        {"rules": {"../ladder.toml": ""}},
        {"service": {"port": 0}},
        {"resources": {"requests": {"memmory": "256Mi"}}},
        {"metrics": {"podMonitor": {"interval": "thirty"}}},
        {"podDisruptionBudget": {"maxUnavailable": "half"}},
        {"autoscaling": {"enabled": True, "cpu": "", "requestsInFlight": None}},
        {"autoscaling": {"cpu": "60%"}},
        {"autoscaling": {"enabled": True, "keda": {"enabled": True}}},
        {"ingress": {"enabled": True}},
        {"httpRoute": {"enabled": True}},
        {"httpRoute": {"timeouts": {"request": "never"}}},
        {"service": {"sessionAffinity": "Cookie"}},
        {"probes": {"liveness": {"httpGet": {}}}},
    ],
    ids=json.dumps,
)
def test_a_wrong_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        charted(values)


# Misspelt, wrong, the chart's own, or confidential: a ConfigMap must have none of them.
NO_SETTINGS: list[tuple[str, Any]] = [
    ("PLIMSOLL_UPSTREEM", "https://api.openai.com/v1"),
    ("PLIMSOL_MODE", "observe"),
    ("PLIMSOLL_WORKER", 2),
    ("PLIMSOLL_MAXBODY", "10MB"),
    ("plimsoll_mode", "fit"),
    ("LLM_FALLBACK", True),
    ("CONTEXT_TOTAL_TOKENS", 32000),
    ("OTEL_EXPORTER_ENDPOINT", "http://collector:4318"),
    ("HTTP_PROXYS", "http://proxy:3128"),
    ("OPENAI_API_KEY", "sk-1"),
    ("PLIMSOLL_WORKERS", "two"),
    ("PLIMSOLL_WORKERS", 0),
    ("PLIMSOLL_WORKERS", 2.5),
    ("PLIMSOLL_MODE", ["fit"]),
    ("PLIMSOLL_MODE", "observer"),
    ("PLIMSOLL_MAX_BODY", "64 megabytes"),
    ("PLIMSOLL_READ_TIMEOUT", "ten minutes"),
    ("PLIMSOLL_MODELS_WINDOWS", "maybe"),
    ("PLIMSOLL_UPSTREAM", "api.openai.com/v1"),
    ("OTEL_TRACES_SAMPLER", "sometimes"),
    ("PLIMSOLL_PORT", 80),
    ("PLIMSOLL_ADMIN_PORT", 81),
    ("PLIMSOLL_HOST", "127.0.0.1"),
    ("PLIMSOLL_DRAIN", 10),
    ("PLIMSOLL_RULES", "/rules"),
    ("PLIMSOLL_KEYS", "/keys"),
    ("PLIMSOLL_TLS_KEY", "/tls/tls.key"),
    ("PLIMSOLL_API_KEY", "sk-1"),
    ("PLIMSOLL_SUMMARY_API_KEY", "sk-1"),
    ("PLIMSOLL_EMBEDDINGS_API_KEY", "sk-1"),
    ("PLIMSOLL_SECRET", "0123"),
    ("PLIMSOLL_ADMIN_TOKEN", "0123456789abcdef"),
    ("PLIMSOLL_REDIS", "redis://:pw@h:6379/0"),
    ("HTTPS_PROXY", "http://user:pw@proxy:3128"),
    ("PLIMSOLL_UPSTREAM", "https://user:pw@api.example.com/v1"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=1"),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=1"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:pw@collector:4318"),
]


@pytest.mark.parametrize(("name", "value"), NO_SETTINGS, ids=lambda one: str(one))
def test_M13_a_setting_that_is_misspelt_wrong_or_confidential_is_refused(name: str, value: Any) -> None:
    with pytest.raises(Refused, match=name):
        charted({"settings": {name: value}})


def test_M13_at_least_thirty_of_them_are_tried_and_every_confidential_setting_is() -> None:
    assert len(NO_SETTINGS) >= 30
    assert {row.name for row in SETTINGS if row.confidential} - {name for name, _ in NO_SETTINGS} == {"HTTP_PROXY"}


def test_the_schema_of_settings_is_made_from_their_table() -> None:
    assert values_schema.FILE.read_text() == values_schema.made(), "python -m tests.deploy.values_schema"


# Texts that some settings take and others do not.
TEXTS = """0 1 2 -1 1.5 64MiB 10MB 250ms 10m 32k 1M 200_000 true FALSE yes maybe off observe fit Strict agent asked json
    auto meta redacted https://api.example.com/v1 http://h:8000 ftp://h redis://h:6379/0 a,b c default two""".split()


def test_the_schema_takes_the_texts_that_the_proxy_takes() -> None:
    """But for free texts, which it does not judge."""
    schema = SCHEMA["properties"]["settings"]["properties"]
    free = values_schema.text(values_schema.ANY)
    judged = [row for row in SETTINGS if row.name in schema and schema[row.name] != free]
    assert len(judged) > 25
    for row in judged:
        validator = Draft7Validator(schema[row.name])
        assert validator.is_valid(row.default.replace("20_000_000", "20000000")), row.name
        for text in TEXTS:
            assert validator.is_valid(text) == _takes(row.parse, text), (row.name, text)


def _takes(parse: Parser, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


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


def container_of(values: dict[str, Any]) -> Any:
    (found,) = pod_of(only(charted(values), "Deployment"))["spec"]["containers"]
    return found


def test_M7_the_autoscaler_goes_by_cpu_and_by_requests_in_flight_or_by_one_of_them() -> None:
    both = only(charted({"autoscaling": {"enabled": True}}), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert [metric["type"] for metric in both] == ["ContainerResource", "Pods"]
    assert both[0]["containerResource"]["target"] == {"type": "AverageValue", "averageValue": "600m"}
    assert both[1]["pods"]["target"] == {"type": "AverageValue", "averageValue": "500"}
    for left_out, kind in (("cpu", "Pods"), ("requestsInFlight", "ContainerResource")):
        scaling = {"enabled": True, left_out: "" if left_out == "cpu" else None}
        (metric,) = only(charted({"autoscaling": scaling}), "HorizontalPodAutoscaler")["spec"]["metrics"]
        assert metric["type"] == kind


def test_M7_keda_gets_the_same_targets_and_makes_the_autoscaler_itself() -> None:
    keda = {"enabled": True, "serverAddress": "http://prometheus:9090"}
    made = charted({"autoscaling": {"enabled": True, "keda": keda}})
    assert not [one for one in made if one["kind"] == "HorizontalPodAutoscaler"]
    assert "replicas" not in only(made, "Deployment")["spec"]
    cpu, asked = only(made, "ScaledObject")["spec"]["triggers"]
    assert cpu["metadata"] == {"value": "600m", "containerName": "plimsoll"}
    assert asked["metadata"]["threshold"] == "500" and asked["metadata"]["serverAddress"] == keda["serverAddress"]
    kustomize = only(kustomized(KUSTOMIZE / "overlays/keda"), "ScaledObject")["spec"]["triggers"]
    assert [row["metadata"] | {"serverAddress": ""} for row in (cpu, asked)] == [
        row["metadata"] | {"serverAddress": ""} for row in kustomize
    ]


def test_M12_with_a_certificate_ports_probes_and_scrapes_speak_tls() -> None:
    monitors = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    made = charted({"tls": {"secretName": "cert"}, "metrics": monitors})
    pod = pod_of(only(made, "Deployment"))["spec"]
    (container,) = pod["containers"]
    environment = {row["name"]: row["value"] for row in container["env"]}
    (mount,) = (row for row in container["volumeMounts"] if row["name"] == "plimsoll-tls")
    assert environment["PLIMSOLL_TLS_CERT"] == f"{mount['mountPath']}/tls.crt"
    assert environment["PLIMSOLL_TLS_KEY"] == f"{mount['mountPath']}/tls.key"
    assert {"name": "plimsoll-tls", "secret": {"secretName": "cert"}} in pod["volumes"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    for kind, place in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        (endpoint,) = only(made, kind)["spec"][place]
        assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    (service,) = (one for one in made if one["kind"] == "Service" and one["metadata"]["name"] == "plimsoll")
    assert service["spec"]["ports"][0]["appProtocol"] == "https"


def test_M12_an_ingress_and_a_route_let_streams_live_and_buffer_nothing() -> None:
    ingress, route = {"enabled": True, "hosts": ["llm.example.com"]}, {"enabled": True, "parentRefs": [{"name": "g"}]}
    made = charted({"ingress": ingress, "httpRoute": route, "tls": {"secretName": "cert"}})
    told = only(made, "Ingress")["metadata"]["annotations"]
    nginx = {name.rpartition("/")[2]: value for name, value in told.items()}
    assert (nginx["proxy-buffering"], nginx["proxy-request-buffering"]) == ("off", "off")
    assert int(nginx["proxy-read-timeout"]) >= 3600 and int(nginx["proxy-send-timeout"]) >= 3600
    assert nginx["backend-protocol"] == "HTTPS" and nginx["proxy-body-size"] == "64m"
    (rule,) = only(made, "HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    (backend,) = rule["backendRefs"]
    assert backend == {"name": "plimsoll", "port": 8080}


def test_M14_what_operators_add_is_where_they_expect_it() -> None:
    values = values_of("everything")
    made = charted(values)
    deployment = only(made, "Deployment")
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    assert all(one["metadata"]["labels"].items() >= values["commonLabels"].items() for one in chart_objects(made))
    assert not spec["selector"]["matchLabels"].keys() & values["commonLabels"].keys(), "a selector never changes"
    assert deployment["metadata"]["annotations"] == values["deploymentAnnotations"]
    assert (spec["minReadySeconds"], spec["strategy"]) == (10, values["strategy"])
    assert {name: pod[name] for name in ("dnsPolicy", "dnsConfig", "hostAliases")} == {
        name: values[name] for name in ("dnsPolicy", "dnsConfig", "hostAliases")
    }
    assert pod["initContainers"] == values["initContainers"] and pod["containers"][1:] == values["extraContainers"]
    container = pod["containers"][0]
    assert container["startupProbe"]["failureThreshold"] == 90
    assert container["livenessProbe"]["initialDelaySeconds"] == 30 and container["livenessProbe"]["periodSeconds"] == 10
    (service,) = (one for one in made if one["kind"] == "Service" and "clusterIP" not in one["spec"])
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    names = {one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"}
    assert {"plimsoll-authorities", "plimsoll-eu-more"} <= names, "both kinds of extra objects are templates"


def chart_objects(made: list[Object]) -> list[Object]:
    """The objects that the chart itself makes."""
    return [one for one in made if "labels" in one["metadata"]]


def test_M14_a_rollout_is_spread_by_itself() -> None:
    spec = pod_of(only(charted({}), "Deployment"))["spec"]
    for constraint in spec["topologySpreadConstraints"]:
        assert constraint["matchLabelKeys"] == ["pod-template-hash"]


def test_M14_a_service_monitor_selects_its_own_service_alone() -> None:
    made = charted({"metrics": {"serviceMonitor": {"enabled": True}}})
    monitor = only(made, "ServiceMonitor")["spec"]
    services = [one for one in made if one["kind"] == "Service"]
    wanted = monitor["selector"]["matchLabels"].items()
    (selected,) = (one for one in services if wanted <= one["metadata"]["labels"].items())
    assert selected["metadata"]["name"] == "plimsoll-metrics"
    assert selected["spec"]["ports"][0]["name"] == monitor["endpoints"][0]["port"]
    assert len(services) == 2 and monitor["podTargetLabels"] == ["plimsoll"]


def test_versions_are_those_of_the_proxy() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    text = "".join(path.read_text() for path in KUSTOMIZE.rglob("*.yaml"))
    assert set(re.findall(r"image: plimsoll:(\S+)|newTag: (\S+)", text)) == {(__version__, ""), ("", __version__)}
