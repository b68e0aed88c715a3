"""The schemas of Kubernetes, strict: a field that the API does not have is a problem."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

from tests.deploy.renders import Object, missing

# The oldest that the gateway runs on, two between, the newest that is known.
VERSIONS = ("1.30", "1.33", "1.35", "1.37")

# The fields of the Prometheus operator's three kinds that our manifests use, as its API reference has them. Its own
# definitions accept unknown fields, which the API server then drops: here they are problems.
TEXT, TEXTS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
DURATION = {"type": "string", "pattern": "^([0-9]+(y|w|d|h|m|s|ms))+$"}


def fields(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object with these fields and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def rows(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


METADATA = fields(("name",), name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
MATCH = fields(("key", "operator"), key=TEXT, operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]})
RELABELING = fields(("action",), action={"enum": ["labeldrop"]}, regex=TEXT)
ENDPOINT = fields(
    ("port",),
    port=TEXT,
    path=TEXT,
    scheme={"enum": ["http", "https"]},
    tlsConfig=fields(insecureSkipVerify={"type": "boolean"}),
    interval=DURATION,
    scrapeTimeout=DURATION,
    relabelings=rows(RELABELING),
)
RULE = {
    **fields(("expr",), alert=TEXT, record=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": DURATION}),
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
}
OPERATOR = {
    "PodMonitor": fields(
        ("selector", "podMetricsEndpoints"),
        selector=fields(matchLabels=TEXTS, matchExpressions=rows(MATCH)),
        podTargetLabels=rows(TEXT),
        podMetricsEndpoints=rows(ENDPOINT),
    ),
    "ServiceMonitor": fields(
        ("selector", "endpoints"),
        selector=fields(matchLabels=TEXTS),
        podTargetLabels=rows(TEXT),
        endpoints=rows(ENDPOINT),
    ),
    "PrometheusRule": fields(
        ("groups",),
        groups=rows(fields(("name", "rules"), name=TEXT, interval=DURATION, rules=rows(RULE))),
    ),
}


# Of the Gateway API and of KEDA: the fields that our manifests use, as their references have them.
BEHAVIOR = fields(scaleDown=fields(stabilizationWindowSeconds=COUNT))
TRIGGER = fields(
    ("type", "metadata"),
    type={"enum": ["cpu", "prometheus"]},
    metricType={"enum": ["AverageValue"]},
    metadata=fields(value=TEXT, containerName=TEXT, serverAddress=TEXT, query=TEXT, threshold=TEXT),
)
PATHS = fields(path=fields(("type", "value"), type={"enum": ["PathPrefix"]}, value=TEXT))
OTHERS = {
    "HTTPRoute": fields(
        ("parentRefs", "rules"),
        parentRefs=rows(fields(("name",), name=TEXT, namespace=TEXT, sectionName=TEXT)),
        hostnames=rows(TEXT),
        rules=rows(
            fields(
                matches=rows(PATHS),
                timeouts=fields(request=DURATION, backendRequest=DURATION),
                backendRefs=rows(fields(("name", "port"), name=TEXT, port=COUNT)),
            )
        ),
    ),
    "ScaledObject": fields(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=fields(("name",), name=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        advanced=fields(horizontalPodAutoscalerConfig=fields(behavior=BEHAVIOR)),
        triggers=rows(TRIGGER),
    ),
}
# By API: the schemas of kinds whose own definitions Kubernetes does not have.
DEFINED = {
    "monitoring.coreos.com/v1": OPERATOR,
    "gateway.networking.k8s.io/v1": OTHERS,
    "keda.sh/v1alpha1": OTHERS,
}


def problems(made: Object, version: str) -> list[str]:
    """What the schemas of this version of Kubernetes have against an object."""
    if made["apiVersion"] in DEFINED:
        validator = defined_validator(made["apiVersion"], made["kind"])
    else:
        validator = kubernetes_validator(made["apiVersion"], made["kind"], version)
    return [f"{made['kind']} {error.json_path}: {error.message}" for error in validator.iter_errors(made)]


@cache
def defined_validator(api: str, kind: str) -> Draft202012Validator:
    spec = DEFINED[api][kind]
    schema = fields(("metadata", "spec"), apiVersion=TEXT, kind={"const": kind}, metadata=METADATA, spec=spec)
    return Draft202012Validator(schema)


@cache
def kubernetes_validator(api_version: str, kind: str, version: str) -> Draft202012Validator:
    """The validator of a kind; the file is that of kubernetes-validate."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = _read(version, f"{kind.lower()}-{group}.json")
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    definitions: Registry[Any] = Resource.from_contents(_read(version, "_definitions.json")) @ Registry()
    return definitions


def _read(version: str, name: str) -> Any:
    spec = find_spec("kubernetes_validate")
    if spec is None or spec.origin is None:
        missing("kubernetes-validate is not installed (make test installs it)")
    folder = Path(spec.origin).parent / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / name).read_text())


FREE = re.compile(r"\.(labels|annotations|matchLabels|data|nodeSelector|requests|limits)$")  # names of one's own


def misspelt(made: Object) -> Iterator[tuple[str, Object]]:
    """The object once for each of its fields, with that field misspelt, and where that is."""
    for path in paths(made):
        changed = json.loads(json.dumps(made))
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[f"{path[-1]}s"] = place.pop(path[-1])
        yield ".".join(map(str, path)), changed


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all fields, but for names of one's own."""
    if isinstance(value, dict) and not FREE.search("." + ".".join(map(str, path))):
        for key, child in value.items():
            if "/" not in key:  # a label in a Service's selector
                yield (*path, key)
                yield from paths(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from paths(child, (*path, index))
