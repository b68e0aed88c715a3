"""The Prometheus operator's object for deploy/prometheus/alerts.yaml. Kustomize cannot make it: it reads no file into a
field. `python -m tests.deploy.prometheus_rule` writes it anew."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.deploy.renders import KUSTOMIZE, ROOT

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
FILE = KUSTOMIZE / "alerts" / "prometheusrule.yaml"
HEAD = """\
# Made from deploy/prometheus/alerts.yaml: python -m tests.deploy.prometheus_rule
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: plimsoll
  labels:
    app.kubernetes.io/name: plimsoll
    app.kubernetes.io/instance: plimsoll
spec:
"""


def rules() -> list[dict[str, Any]]:
    """All rules of the file, in its order."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def made() -> str:
    """What the file must hold."""
    return HEAD + indent(ALERTS.read_text(), "  ")


if __name__ == "__main__":
    FILE.write_text(made())
