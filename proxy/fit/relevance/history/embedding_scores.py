"""How near old turns are to a question in what they mean, by a model's embeddings, which it asks for with a `Want`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.fit.relevance.results.sources import ends
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.vectors import Vector, cosine
from proxy.model.conversation import Block, Kind
from proxy.model.plan import Facts, Want

KIND = "embeddings"
# A share of what the words say, added to it (the facts: sums do, fusion of ranks does not help). The facts give what
# embeddings gain and no weight, and no model was at hand to measure it with: this one was chosen.
WEIGHT = 0.5
# Power: a long chat has many turns that are a little like any question, and the turns around share in each. Chosen by
# what embeddings cost that know nothing the words do not (measured: hashed words, means of the word table's vectors):
# 0.3 points of recall at most; with 2 it is 0.8 to 1.3, with 1 it is 1.8.
SHARPNESS = 4


def likeness(blocks: Sequence[Block], question: str, model: str, facts: Facts) -> list[float] | Want | None:
    """How near each block is to the question: 1 for the nearest, 0 for those that are no nearer than most. What is
    not known yet is wanted: under the want's key, vectors by text. None where there is no model, nothing to compare,
    or where the vectors could not be had."""
    asked = ends(question)
    texts = [said(block) for block in blocks] if model and asked.strip() else ()
    if not any(texts):
        return None
    wanted = tuple(dict.fromkeys((asked, *filter(None, texts))))
    key = f"{KIND} {digest(model, *wanted):x}"
    if key not in facts.knowledge:
        return Want(KIND, key, {"model": model, "texts": wanted})
    vectors: Mapping[str, Vector] = facts.knowledge[key] or {}
    if not vectors.keys() >= set(wanted):
        return None
    return standing_out([cosine(vectors[asked], vectors[text]) if text else None for text in texts])


def said(block: Block) -> str:
    """What is compared of a block: what people and the model said, its beginning and its end. Tool results gain
    nothing from it (the facts), and models of embeddings seldom read more than 512 tokens."""
    text = "\n".join(m.own_text() for m in block.messages if not m.answers or m.kind is Kind.USER)
    return ends(text) if text.strip() else ""


def standing_out(cosines: Sequence[float | None]) -> list[float]:
    """From 0 for the mean to 1 for the best. A model's own scale says nothing: with some of them 0.8 is nothing alike.
    What has no vector stands out by nothing."""
    known = [value for value in cosines if value is not None]
    mean = sum(known) / max(1, len(known))
    best = max(known, default=0.0) - mean
    if best <= 1e-9:
        return [0.0] * len(cosines)
    return [0.0 if value is None else max(0.0, (value - mean) / best) ** SHARPNESS for value in cosines]


def mixed(scores: Sequence[float], alike: Sequence[float] | None) -> list[float]:
    """What the words say of each turn, and a share for what it means; where no turn has a word of the question, the
    meaning alone. The scores as they are where nothing is known of meanings."""
    if alike is None:
        return list(scores)
    best = max(scores, default=0.0) or 1.0
    return [score + WEIGHT * best * near for score, near in zip(scores, alike, strict=True)]
