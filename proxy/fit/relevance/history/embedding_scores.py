"""The similarity of old turns to a question by a model's embeddings. Missing embeddings are requested with a `Want`.

Some of the embeddings are worth having: a turn without one keeps the score of its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.question import Question, ends
from proxy.fit.relevance.text.vectors import Vector, cosine
from proxy.model.conversation import Block, Kind
from proxy.model.plan import Facts, Want

KIND = "embeddings"
# Weight of the similarity, as a share of the best BM25 score; it is added (sums help, fusion of ranks does not).
# all-MiniLM-L6-v2 adds 1 to 3 points of recall with it, as much as with any other weight and power that was tried.
WEIGHT = 0.5
# Power of the similarity: a long chat has many turns that are slightly similar to any question. Chosen by the loss of
# recall with embeddings that carry no information beyond the words (hashed words, means of the word table's vectors):
# at most 0.3 points; 0.8 to 1.3 with power 2, 1.8 with power 1.
SHARPNESS = 4


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """The payload of a `Want` for embeddings: the model, the question, and the texts to compare it with."""

    model: str
    question: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """What is known of an `EmbeddingsRequest`: the vector of the question, if any, and those of texts, by text. It is
    false if nothing can be compared; its length is the number of vectors."""

    question: Vector | None = None
    texts: Mapping[str, Vector] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.question is not None and bool(self.texts)

    def __len__(self) -> int:
        return (self.question is not None) + len(self.texts)


def likeness(blocks: Sequence[Block | None], question: Question, model: str, facts: Facts) -> list[float] | Want | None:
    """The similarity of each block to the question, from 0 (the mean or less, or unknown) to 1 (the most similar); of a
    None it is 0.

    A Want if embeddings are missing; its answer in `facts.knowledge`, under the want's key, is `Embedded`. None if
    there is no model, nothing to compare, or no embedding could be obtained.
    """
    asked = question.text
    texts = ["" if block is None else said(block) for block in blocks] if model and asked.strip() else ()
    if not any(texts):
        return None
    wanted = tuple(dict.fromkeys(filter(None, texts)))
    key = f"{KIND} {digest(model, asked, *wanted):x}"
    if key not in facts.knowledge:
        return Want(KIND, key, EmbeddingsRequest(model, asked, wanted), 1 + len(wanted))
    found: Embedded = facts.knowledge[key] or Embedded()
    if found.question is None or not found.texts:
        return None
    vectors = [found.texts.get(text) for text in texts]
    return rescaled([None if vector is None else cosine(found.question, vector) for vector in vectors])


def said(block: Block) -> str:
    """The text of a block that is embedded: the beginning and the end of what users and the model wrote. Embeddings do
    not help with tool results, and few embedding models read more than 512 tokens."""
    text = "\n".join(m.own_text() for m in block.messages if not m.answers or m.kind is Kind.USER)
    return ends(text) if text.strip() else ""


def rescaled(cosines: Sequence[float | None]) -> list[float]:
    """Cosines rescaled from 0 (the mean or less) to 1 (the highest), because models differ in scale: with some, 0.8
    means unrelated. 0 for a block without a vector."""
    known = [value for value in cosines if value is not None]
    mean = sum(known) / max(1, len(known))
    best = max(known, default=0.0) - mean
    if best <= 1e-9:
        return [0.0] * len(cosines)
    return [0.0 if value is None else max(0.0, (value - mean) / best) ** SHARPNESS for value in cosines]


def mixed(scores: Sequence[float], alike: Sequence[float] | None) -> list[float]:
    """BM25 scores plus the weighted similarity. If no turn has a score, the similarity alone. The scores unchanged if
    `alike` is None."""
    if alike is None:
        return list(scores)
    best = max(scores, default=0.0) or 1.0
    return [score + WEIGHT * best * similarity for score, similarity in zip(scores, alike, strict=True)]
