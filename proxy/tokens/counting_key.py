"""The counting rules of a model, and the key that its counts are cached under."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from xxhash import xxh3_64_intdigest

from proxy.model.conversation import CHAT
from proxy.model.names import name_of
from proxy.tokens.encodings import encoding, own
from proxy.tokens.families import BUILT_IN, Families, Family, counted_with
from proxy.tokens.formats import FORMATS
from proxy.tokens.inline_images import with_inline_images
from proxy.tokens.messages import CountingRules

# Bytes of a token of the encoding: of usual prose, and the fewest and the most that make a difference (those of random
# letters, and of the longest words).
USUAL_BYTES, FEWEST_BYTES, MOST_BYTES = 4.6, 1.5, 8.0
SEED = int.from_bytes(os.urandom(8))  # per process, so that no client can construct two messages with the same key


@dataclass(frozen=True, slots=True)
class CountingKey:
    """How a model's messages are counted. `id` identifies everything that the counts depend on except the messages, the
    same in every process; `seed` is its hash in this process."""

    family: Family
    rules: CountingRules
    id: bytes
    seed: int


def counting_key_for(
    model: str,
    schema: int,
    opaque: bool,
    tokenizer: str | None = None,
    families: Families = BUILT_IN,
    api: str = CHAT,
) -> CountingKey:
    """The counting rules of a model for the bodies of an API.

    `schema`: 0 without a response schema, 1 with one, 2 with one and a system message. `opaque`: the prompt may contain
    images, so the id includes the image formula. `tokenizer`: the path of the user's tokenizer.json for this model; its
    id is a digest of its content. Loads no other encoding.
    """
    return _cached(families, name_of(model), schema, opaque, tokenizer, api)


@lru_cache(maxsize=1024)
def _cached(families: Families, model: str, schema: int, opaque: bool, tokenizer: str | None, api: str) -> CountingKey:
    body = FORMATS[api]
    family = families.find(model).of(body.figures)
    if tokenizer is not None:
        family = counted_with(family, own(tokenizer))
    recipe, unit = family.recipe, 1 / family.factor
    assistant_text = recipe.assistant_text + (recipe.schema_assistant_text[schema - 1] if schema else 0)
    count: Callable[[str], int] = partial(_count, family.encoding)
    if family.density:
        count = partial(_weighed, count, family.density / family.factor)
    if family.inline:
        count = partial(with_inline_images, count, family.images, unit)
    rules = CountingRules(count, recipe, family.images, assistant_text, unit, family.second, model)
    encoded = encoding(family.encoding).name if family.own else family.encoding
    name = f"{encoded}|{recipe.name}|{assistant_text}" + ("" if body.by_encoding else f"|{api}|{model}")
    if family.inline:
        name += "|inline"
    if family.density:
        name += f"|{family.density / family.factor:.4f}"
    if opaque or family.inline:
        name += f"|{family.images.name}|{unit:.4f}|{family.second}"
    return CountingKey(family, rules, name.encode(), xxh3_64_intdigest(name.encode(), SEED))


def _count(name: str, text: str) -> int:
    return encoding(name).count(text)


def _weighed(count: Callable[[str], int], density: float, text: str) -> int:
    """Tokens of the encoding, by `density` less for each byte that they are longer than usual: a smaller vocabulary
    splits what a larger one has as one token, and both split what neither has."""
    tokens = count(text)
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    bounded = max(FEWEST_BYTES * tokens, min(MOST_BYTES * tokens, size))
    return tokens + round(density * (USUAL_BYTES * tokens - bounded))
