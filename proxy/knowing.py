"""What `plimsoll models` shows: what we know of a model, from where, and how it is counted."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from proxy.config.windows import Windows
from proxy.tokens.meter import meter_for
from proxy.types import Message, Prompt


class Forgetful:
    """A memory for one look: it remembers nothing."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """Nothing."""
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        """Forgets it."""


def known(model: str, windows: Windows) -> dict[str, Any]:
    """All that is known of one model."""
    window = windows.find(model)
    meter = meter_for(Prompt(model, (Message(b'{"role":"user","content":""}', "user", 0),)), model, Forgetful())
    return {
        "model": model,
        "window": window.tokens,
        "max_input": window.max_input,
        "max_output": window.max_output,
        "source": window.source,
        "guessed": window.guessed,
        "can": None if window.can is None else sorted(window.can),
        "count": str(meter.quality),
        "margin": {"base": meter.margin.base, "share": meter.margin.share},
    }


def table(rows: list[dict[str, Any]], console: Console | None = None) -> None:
    """Prints them for people."""
    drawn = Table("model", "window", "max input", "max output", "from", "count", "margin", "can", box=None)
    for row in rows:
        margin = f"{row['margin']['base']} + {row['margin']['share']:.0%}"
        figures = [f"{row[key]:,}" if row[key] else "" for key in ("window", "max_input", "max_output")]
        source = f"{row['source']}{' (a guess)' if row['guessed'] else ''}"
        drawn.add_row(row["model"], *figures, source, row["count"], margin, ", ".join(row["can"] or ()))
    (console or Console()).print(drawn)
