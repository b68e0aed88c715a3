"""Counts what stands beside the texts of /api/generate: the template that the server puts around them, images.

The texts and the ids of a context are counted as prompts of completions are. How a model's template writes them is the
server's own; usage corrects the counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.model.lenient_json import read, string
from proxy.tokens.messages import CountingRules
from proxy.tokens.ollama import IMAGE_TOKENS

KEYS = ("raw", "system", "template", "images")


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """Tokens of the encoding besides the texts: the frame of the prompt, and of the system prompt; images. A template
    of the request's own is counted as text."""
    images = read(head.get("images", b"null"))
    media = round(rules.unit * IMAGE_TOKENS * len(images)) if isinstance(images, list) else 0
    if head.get("raw") == b"true":
        return media, 0, 0, 0
    messages = 1 + bool(string(read(head.get("system", b"null"))))
    template = rules.count(string(read(head.get("template", b"null"))))
    return rules.recipe.base + messages * rules.recipe.message + media, 0, 0, template


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> tuple[int, int, int, int]:
    """The same for JSON that nests too deep to parse."""
    return rules.recipe.base, 0, 0, sum(rules.count(raw.decode("utf-8", "replace")) for raw in head.values())


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """Whether the request has no images, whose cost is unknown, and no template of its own."""
    return all(head.get(key, b"null") in (b"null", b"[]", b'""') for key in ("images", "template"))
