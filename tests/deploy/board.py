"""The Grafana board: its panels, and its expressions as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.renders import DEPLOY

FILE = DEPLOY / "grafana" / "dashboards" / "plimsoll.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ROWS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] == "row"]
VARIABLES: dict[str, dict[str, Any]] = {variable["name"]: variable for variable in BOARD["templating"]["list"]}


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of the board, with what Grafana calls its series."""

    panel: str
    legend: str
    expr: str


def targets() -> Iterator[Target]:
    """All expressions of the board."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield Target(panel["title"], target["legendFormat"], target["expr"])


def filled(text: str, **values: str) -> str:
    """An expression with the values of its variables."""
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], text)


def legend(template: str, labels: Mapping[str, str]) -> str:
    """What Grafana calls a series with these labels."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
