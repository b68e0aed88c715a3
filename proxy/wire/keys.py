"""Hides keys, passwords and tokens in bodies and texts, by their structure; one rule for recordings, log and page.

Theory of operation. A body is parsed and walked: what a field with a key's name holds is hidden, at any depth. A text
that is JSON is walked, too; `key_texts` has the rules for all others. `key_names` has the names, and `key_marks` says
for most bodies, in a fraction of the time, that the walk would change nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from xxhash import xxh3_128_digest

from proxy.model.bounded import Bounded
from proxy.wire.key_names import MAX_NAME, has_headers, is_harmless_header, is_key
from proxy.wire.key_texts import HIDDEN, hidden_in

SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
VALUES_OF_SCHEMAS = ("default", "const", "enum", "example", "examples", "value", "values")
ESCAPE = re.compile(r"\\{1,64}u00([2-7][0-9a-fA-F])", re.ASCII)

MAX_DEPTH = 5  # of JSON in texts of JSON: each level doubles its backslashes
LONG = 256  # characters of a text that is remembered
SAME = ""  # what is remembered of a text without keys
ENTRY_BYTES = 300
SEED = int.from_bytes(os.urandom(8))  # of the digests: no client can look for two texts with the same one

Keys = tuple[str, ...]
Known = Bounded[tuple[Keys, bytes], str]


def hidden_text(text: str, own: Keys = ()) -> str:
    """A text without keys; the same one if it has none. `own`: what is a key besides, whatever it looks like."""
    return _Walk(own).text(text)


def without_keys(body: bytes, own: Sequence[bytes] = (), known: Known | None = None) -> bytes | None:
    """The JSON of a body without keys: the same bytes if it has none, None if it cannot be read, or in two ways.

    `known` remembers long texts: conversations repeat them.
    """
    try:
        value = _decoded(body)
        made = _Walk(as_keys(own), known).value(value)
        if made is not value:
            return _encoded(made)
        _check_once(body, value)
        return body
    except (ValueError, RecursionError):
        return None


def _check_once(body: bytes | str, value: Any) -> None:
    """Raises ValueError if an object has a field twice: the walk saw only the last one."""
    if _encoded(value) != (body if isinstance(body, bytes) else body.encode()):  # most clients write it like this
        json.loads(body, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a field that is there twice")


def as_keys(own: Iterable[bytes]) -> Keys:
    """Credentials as they may stand in texts, the longest first."""
    found = {key.decode("utf-8", "replace") for key in own}
    return tuple(sorted(found, key=len, reverse=True))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:  # a lone surrogate, a number beyond all bounds
        return json.loads(body)


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (msgspec.EncodeError, UnicodeEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


class _Walk:
    """Hides what is a key in values. Each function returns the value that it was given if nothing is hidden."""

    def __init__(self, own: Keys, known: Known | None = None) -> None:
        self._own, self._known, self._depth = own, known, 0

    def value(self, value: Any) -> Any:
        """Any value of JSON."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._fields(value)
        if isinstance(value, list):
            return _same([self.value(one) for one in value], value)
        return value

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """An object. `{"name": "api_key", "value": ...}` is one of a list of headers or variables."""
        named = (fields.get(field) for field in ("name", "key", "header"))
        is_pair = any(isinstance(name, str) and len(name) <= MAX_NAME and is_key(name) for name in named)
        return self._renamed(fields, {name: self._field(name, one, is_pair) for name, one in fields.items()})

    def _field(self, name: str, value: Any, is_pair: bool) -> Any:
        if is_key(name) or (is_pair and name in ("value", "values")):
            return self._hidden(value)
        if name in SCHEMAS and isinstance(value, dict):
            return self._renamed(value, {field: self._schema(field, one) for field, one in value.items()})
        if has_headers(name):
            return self._headers(value)
        return self.value(value)

    def _schema(self, name: str, schema: Any) -> Any:
        """A JSON schema: it describes a key, and holds one at most as a default or an example."""
        if not isinstance(schema, dict):
            return self._field(name, schema, False)
        if not is_key(name):
            return self._fields(schema)
        made = {
            field: self._hidden(one) if field in VALUES_OF_SCHEMAS else self._field(field, one, False)
            for field, one in schema.items()
        }
        return self._renamed(schema, made)

    def _headers(self, value: Any) -> Any:
        """Headers as an object, as pairs, or as objects with names and values."""
        if isinstance(value, list):
            return _same([self._header(one) for one in value], value)
        if not isinstance(value, dict):
            return self.value(value)
        made = {name: self.value(one) if is_harmless_header(name) else self._hidden(one) for name, one in value.items()}
        return self._renamed(value, made)

    def _header(self, value: Any) -> Any:
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
            return value if is_harmless_header(value[0]) else _same([value[0], self._hidden(value[1])], value)
        if isinstance(value, dict) and len(value) == 1:
            return self._headers(value)
        if isinstance(value, dict) and isinstance(value.get("name"), str) and not is_harmless_header(value["name"]):
            return self._renamed(value, {**value, **{k: self._hidden(v) for k, v in value.items() if k == "value"}})
        return self.value(value)

    def _hidden(self, value: Any) -> Any:
        """A key: all of its texts and numbers are hidden."""
        if isinstance(value, list):
            return _same([self._hidden(one) for one in value], value)
        if isinstance(value, dict):
            return self._renamed(value, {name: self._hidden(one) for name, one in value.items()})
        return value if value is None or isinstance(value, bool) or value in ("", HIDDEN) else HIDDEN

    def _renamed(self, fields: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """The fields with these values, and without keys in their names."""
        names = {name: self.text(name) for name in fields}
        if all(names[name] is name and made[name] is fields[name] for name in fields):
            return fields
        return {names[name]: one for name, one in made.items()}

    def text(self, text: str) -> str:
        """A text, which may be JSON itself."""
        if self._known is None or len(text) < LONG:
            return self._text(text)
        digest = (self._own, xxh3_128_digest(text.encode("utf-8", "surrogatepass"), SEED))
        made = self._known.get(digest)
        if made is None:
            made = self._text(text)
            self._known.put(digest, SAME if made is text else made, ENTRY_BYTES + (0 if made is text else len(made)))
        return made or text

    def _text(self, text: str) -> str:
        for key in self._own:
            if key in text:
                text = text.replace(key, HIDDEN)
        if self._depth < MAX_DEPTH and text[:1] in ("{", "[", '"', " ", "\n") and text.lstrip()[:1] in ("{", "[", '"'):
            self._depth += 1
            try:
                value = msgspec.json.decode(text)
                made = self.value(value)
                if made is not value:
                    return _encoded(made).decode()
                _check_once(text, value)
                return text
            except (ValueError, RecursionError):
                pass
            finally:
                self._depth -= 1
        if "\n" in text:
            text = self._lines(text)
        plain = _unescaped(text) if "\\u00" in text else text
        made_text = self._own_hidden(hidden_in(plain)) if plain is not text else hidden_in(plain)
        return text if made_text == plain else made_text

    def _lines(self, text: str) -> str:
        """A text with lines of JSON, as JSON Lines has them."""
        if "\n{" not in text and not text.startswith("{"):
            return text
        made = [
            self._text(line) if line[:1] == "{" and line.rstrip()[-1:] == "}" else line for line in text.split("\n")
        ]
        joined = "\n".join(made)
        return text if joined == text else joined

    def _own_hidden(self, text: str) -> str:
        for key in self._own:
            text = text.replace(key, HIDDEN)
        return text


def _same(made: list[Any], value: list[Any]) -> list[Any]:
    return value if all(one is other for one, other in zip(made, value, strict=True)) else made


def _unescaped(text: str) -> str:
    """A text with its letters as they are, that are escaped as in JSON."""
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] not in ("22", "5c", "5C") else found[0], text)
