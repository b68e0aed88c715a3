"""The models that an Ollama server has loaded (`GET /api/ps`), each with the window that it was loaded with."""

from __future__ import annotations

import msgspec

PATH = b"/api/ps"
MAX_MODELS = 1_000
LATEST = ":latest"  # the tag of a name without one


class _Model(msgspec.Struct):
    name: str = ""
    model: str = ""
    context_length: int = 0


class _Response(msgspec.Struct):
    models: list[_Model] | None = None


def windows_in(body: bytes) -> dict[str, int]:
    """The windows in an answer to `GET /api/ps`, by the models' names with their tags. Raises `MsgspecError`."""
    models = msgspec.json.decode(body, type=_Response).models or []
    return {tagged(m.model or m.name): m.context_length for m in models[:MAX_MODELS] if m.context_length > 0}


def tagged(model: str) -> str:
    """A model's name in lower case with its tag: `llama3.2` is `llama3.2:latest`."""
    name = model.lower()
    return name if ":" in name.rpartition("/")[2] else name + LATEST
