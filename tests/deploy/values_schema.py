"""The schema of the chart's `settings`, made from the table of settings: names, kinds, and what is confidential.

`python -m tests.deploy.values_schema` writes it anew into values.schema.json.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection
from typing import Any

from proxy.config import otel, values
from proxy.config.settings import SETTINGS
from proxy.config.values import Parser
from tests.deploy.renders import CHART

FILE = CHART / "values.schema.json"
# What the chart sets itself, from values of their own.
OWN = frozenset(
    """PLIMSOLL_HOST PLIMSOLL_PORT PLIMSOLL_ADMIN_HOST PLIMSOLL_ADMIN_PORT PLIMSOLL_DRAIN PLIMSOLL_RULES PLIMSOLL_KEYS
    PLIMSOLL_TLS_CERT PLIMSOLL_TLS_KEY""".split()
)
# Confidential only for a password that they may have: without one they are settings like others.
URLS = frozenset(("PLIMSOLL_REDIS", "HTTPS_PROXY", "HTTP_PROXY"))
Schema = dict[str, Any]
WHOLE = r"\d{1,18}|\d{1,3}([_,]\d{3}){1,5}"
WHOLE_ABOVE_0 = r"0*[1-9]\d*|[1-9]\d{0,2}([_,]\d{3}){1,5}"
NUMBER = r"(\d{1,15}(\.\d{1,15})?|\.\d{1,15})"
ABOVE_0 = r"(\d*[1-9]\d*(\.\d{1,15})?|\d*\.\d*[1-9]\d*)"
URL = r"[Hh][Tt][Tt][Pp][Ss]?://[^\s?#\\@/]+(/[^\s?#\\]*)?"
ANY = r"[^\r\n]*"


def settings_schema() -> Schema:
    """The schema of `settings`. A name that is not here is misspelt, the chart's own, or confidential."""
    found = {row.name: of_parser(row.name, row.parse) for row in SETTINGS if _may_be_set(row.name, row.confidential)}
    for variable in otel.VARIABLES:
        if variable is not otel.HEADERS:
            found |= {name: of_parser(name, variable.parse) for name in (variable.name, variable.for_traces)}
    return {
        "description": "Settings by name. Keys, secrets and URLs with passwords belong into existingSecret.",
        "type": "object",
        "properties": dict(sorted(found.items())),
        "additionalProperties": False,
    }


def _may_be_set(name: str, confidential: bool) -> bool:
    return name not in OWN and (name in URLS or not confidential)


def of_parser(name: str, parse: Parser) -> Schema:
    """The schema of the values that a parser takes, as far as a pattern can say it; of a URL only without a user or a
    password. An empty text is none."""
    if name in URLS or parse is values.cache:
        return text(r"[A-Za-z][A-Za-z0-9+.-]*://[^@\s]+" if name not in ("HTTPS_PROXY", "HTTP_PROXY") else r"[^@\s]+")
    parse, inner = _inner(parse)
    if parse is values.boolean:
        return either("boolean", any_case(values.TRUE | values.FALSE))
    if parse is values.budget:
        none = {"enum": [0, "0"]}
        return {"anyOf": [none, *of_parser(name, values.tokens)["anyOf"]]}
    if parse in (values.size, values.tokens):
        size, whole = parse is values.size, "" if parse is values.size else f"|{WHOLE_ABOVE_0}"
        units = values.BYTES if size else values.TOKENS
        return {"anyOf": [{"type": "number", "minimum": 1}, text(quantity(ABOVE_0, units) + whole)]}
    if "units" in inner:
        bound = {"exclusiveMinimum": 0} if inner["minimum"] else {"minimum": 0}
        digits = ABOVE_0 if inner["minimum"] else NUMBER
        return {"anyOf": [{"type": "number", **bound}, text(quantity(digits, inner["units"]))]}
    if "minimum" in inner:
        bounds = {key: inner[key] for key in ("minimum", "maximum") if inner[key] is not None}
        digits = WHOLE_ABOVE_0 if inner["minimum"] else WHOLE
        if inner["maximum"] is not None:
            most = len(str(inner["maximum"]))
            digits = rf"[1-9]\d{{0,{most - 1}}}" if inner["minimum"] else rf"\d{{1,{most}}}"
        return {"anyOf": [{"type": "integer", **bounds}, text(digits)]}
    if "allowed" in inner and not isinstance(inner["allowed"], str):
        return text(any_case(inner["allowed"]))
    return text(URL if parse is values.upstream or "keys" in inner else ANY)


def _inner(parse: Parser) -> tuple[Parser, dict[str, Any]]:
    """The parser that others wrap, and what it was made with."""
    inner = dict(inspect.getclosurevars(parse).nonlocals) if inspect.isfunction(parse) else {}
    for wrapped in ("parse", "allowed"):
        if callable(inner.get(wrapped)):
            return _inner(inner[wrapped])
    return parse, inner


def any_case(words: Collection[str]) -> str:
    """A pattern of these words in any case, for engines that have no flags."""
    spelt = ("".join(f"[{c.upper()}{c}]" if c.isalpha() else re.escape(c) for c in word) for word in sorted(words))
    return "(" + "|".join(spelt) + ")"


def text(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^({pattern})?$"}


def either(kind: str, pattern: str) -> Schema:
    return {"anyOf": [{"type": kind}, text(pattern)]}


def quantity(digits: str, units: Collection[str]) -> str:
    return digits + r"\s*" + any_case(units)


def made() -> str:
    """What the file must hold."""
    schema = json.loads(FILE.read_text())
    schema["properties"]["settings"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(made())
