"""Terms: what a model counts messages with, and the name that such counts are remembered under."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache, partial

from xxhash import xxh3_64_intdigest

from proxy.model.names import name_of
from proxy.tokens.encodings import encoding, own
from proxy.tokens.families import BUILT_IN, Families, Family, counted_with
from proxy.tokens.messages import Counting

SEED = int.from_bytes(os.urandom(8))  # of this process: nobody outside can make two messages share a key


@dataclass(frozen=True, slots=True)
class Terms:
    """What a model counts messages with. `id` names everything but the messages that their counts depend on."""

    family: Family
    how: Counting
    id: bytes
    seed: int


def terms_for(
    model: str, schema: int, opaque: bool, tokenizer: str | None = None, families: Families = BUILT_IN
) -> Terms:
    """The terms of a model of these families. `schema` is 1 where the answer has one, 2 where instructions stand before
    it. `opaque` is whether there may be images: then their formula is part of the name. Loads no encoding, but for a
    `tokenizer` (the path of the user's own for this model), which is named by what is in it."""
    return _terms(families, name_of(model), schema, opaque, tokenizer)


@lru_cache(maxsize=1024)
def _terms(families: Families, model: str, schema: int, opaque: bool, tokenizer: str | None) -> Terms:
    family = families.find(model)
    if tokenizer is not None:
        family = counted_with(family, own(tokenizer))
    recipe, unit = family.recipe, 1 / family.factor
    spoken = recipe.spoken + (recipe.schema_spoken[schema - 1] if schema else 0)
    how = Counting(partial(_count, family.encoding), recipe, family.images, spoken, unit, family.second)
    encoded = encoding(family.encoding).name if family.own else family.encoding
    name = f"{encoded}|{recipe.name}|{spoken}"
    if opaque:
        name += f"|{family.images.name}|{unit:.4f}|{family.second}"
    return Terms(family, how, name.encode(), xxh3_64_intdigest(name.encode(), SEED))


def _count(name: str, text: str) -> int:
    return encoding(name).count(text)
