"""The Grafana boards: their panels, and their expressions as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.renders import DEPLOY

Panel = dict[str, Any]
FILES = {name: DEPLOY / "grafana" / "dashboards" / f"{name}.json" for name in ("plimsoll-on-call", "plimsoll")}
BOARDS: dict[str, dict[str, Any]] = {name: json.loads(file.read_text()) for name, file in FILES.items()}


def panels_of(board: Mapping[str, Any]) -> list[Panel]:
    """All panels of a board but its rows. A row that is collapsed holds its own."""
    held = (panel for row in board["panels"] for panel in row.get("panels", ()))
    return [panel for panel in (*board["panels"], *held) if panel["type"] != "row"]


def rows_of(board: Mapping[str, Any]) -> list[Panel]:
    """The rows of a board."""
    return [panel for panel in board["panels"] if panel["type"] == "row"]


PANELS: list[Panel] = [panel for board in BOARDS.values() for panel in panels_of(board)]
VARIABLES: dict[str, dict[str, Any]] = {row["name"]: row for row in BOARDS["plimsoll"]["templating"]["list"]}


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a board, with what Grafana calls its series."""

    panel: str
    legend: str
    expr: str


def targets() -> Iterator[Target]:
    """All expressions of the boards."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield Target(panel["title"], target["legendFormat"], target["expr"])


def filled(text: str, **values: str) -> str:
    """An expression with the values of its variables."""
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], text)


def legend(template: str, labels: Mapping[str, str]) -> str:
    """What Grafana calls a series with these labels."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
