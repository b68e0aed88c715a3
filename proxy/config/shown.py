"""The settings as an operator may see them: without secrets, and URLs without credentials."""

from __future__ import annotations

from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from proxy.config.settings import SETTINGS, Settings

SET = "set"  # instead of a secret


def shown_settings(settings: Settings) -> list[dict[str, Any]]:
    """The name of each setting, its value as text, and whether that is the default. Of a secret, only whether it is
    set."""
    found = []
    for row in SETTINGS:
        value = getattr(settings, row.field)
        text = (SET if value else "") if row.confidential else without_credentials(_text(value))
        found.append({"name": row.name, "value": text, "default": value == row.parse(row.default)})
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value.value if isinstance(value, Enum) else value)


def without_credentials(text: str) -> str:
    """A URL with nothing but its scheme, host, port and path; any other text as it is."""
    if "://" not in text and "@" not in text:
        return text
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return SET
    host = f"[{host}]" if ":" in host else host
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    return f"{scheme}{host}{'' if port is None else f':{port}'}{parts.path}"
