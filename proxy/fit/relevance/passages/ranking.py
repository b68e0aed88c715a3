"""Ranks the passages of long texts for a question, on one scale with the turns around them. It chooses none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.fit.relevance.history.turns import rank_turns, smoothed
from proxy.fit.relevance.passages.splitting import Passage
from proxy.fit.relevance.passages.texts import Text
from proxy.fit.relevance.text.bm25 import Document
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.question import Question
from proxy.fit.relevance.text.reading import read_text
from proxy.fit.relevance.text.short_text_bm25 import bm25_scores_of_batches
from proxy.fit.relevance.text.splitting import tokens_by_line
from proxy.model.bounded import Bounded

READ = 25_000  # tokens of a text that are ranked in full: the index of more takes too long and too much memory
UNREAD = 0.01  # the most that other passages are worth, by the words that they share with the question
MAX_TEXTS, MAX_BYTES, SCORE_BYTES = 64, 4 << 20, 32  # cached scores of very long texts
BATCH = 512  # passages that are tokenised together
BATCH_CHARACTERS = 1 << 18  # above which a batch ends: a passage may have megabytes
SAMPLE = 300  # passages that decide the language if the question is too short to
HEADED = 0.5  # share of the score of a heading, a definition or a file's name that the passages under it get

ROUGH: Bounded[int, list[float]] = Bounded(MAX_TEXTS, MAX_BYTES)


def rank_passages(
    groups: Sequence[Text | Document], question: Question, alike: Sequence[float] | None = None
) -> list[list[float]]:
    """The relevance of each passage of each text, and of each turn, for the question: 1 for the best turn.

    A group is a text, or the readings of a turn; groups are in the order of the conversation. Texts are ranked before
    turns, because the index that is kept of them can then be extended. `alike`: the similarity of each group to the
    question by embeddings, from 0 to 1.
    """
    turns = [group for group in groups if not isinstance(group, Text)]
    if len(turns) == len(groups):  # as in most conversations
        return [[score] for score in rank_turns(turns, question, alike=alike)]
    order = sorted(range(len(groups)), key=lambda place: not isinstance(groups[place], Text))
    rough = [_rough(group, question) for group in groups]
    places = [_places(group, row) for group, row in zip(groups, rough, strict=True)]
    units = [unit for place in order for unit in _units(groups[place], places[place])]
    near = None if alike is None else [alike[place] for place in order for _ in places[place]]
    scores = iter(rank_turns(units, question, alike=near))
    found = {place: _spread(groups[place], rough[place], places[place], scores) for place in order}
    return [found[place] for place in range(len(groups))]


def _rough(group: Text | Document, question: Question) -> list[float]:
    """The scores of the passages of a very long text by the question's own words, up to `UNREAD`; else zeros."""
    if not isinstance(group, Text) or group.rate * sum(len(passage.text) for passage in group.passages) <= READ:
        return [0.0] * (len(group.passages) if isinstance(group, Text) else 1)
    key = digest(str(group.key), question.text)
    found = ROUGH.get(key)
    if found is not None:
        return found
    wanted = ResultQuery(question.text).keys("\n".join([passage.text for passage in group.passages[:SAMPLE]]))
    scores = smoothed(bm25_scores_of_batches(_batches(group.passages), *wanted))
    best = max(scores) or 1.0
    return ROUGH.put(key, [UNREAD * score / best for score in scores], SCORE_BYTES * len(scores))


def _batches(passages: Sequence[Passage]) -> Iterator[list[list[str]]]:
    """The tokens of each passage, in batches: a million characters have 200,000 tokens."""
    batch: list[str] = []
    size = 0
    for passage in passages:
        batch.append(passage.text.replace("\n", " "))
        size += len(passage.text)
        if len(batch) == BATCH or size > BATCH_CHARACTERS:
            yield tokens_by_line(batch)
            batch, size = [], 0
    if batch:
        yield tokens_by_line(batch)


def _places(group: Text | Document, rough: Sequence[float]) -> Sequence[int]:
    """The indices of the passages to rank: all, or the best of a very long text."""
    room = float(READ)
    found = []
    for place in sorted(range(len(rough)), key=lambda place: (-rough[place], place)):
        room -= group.rate * len(group.passages[place].text) if isinstance(group, Text) else 0
        if room < 0:
            break
        found.append(place)
    return sorted(found)


def _units(group: Text | Document, places: Sequence[int]) -> list[Document]:
    return [(read_text(group.passages[p].text),) for p in places] if isinstance(group, Text) else [group]


def _spread(
    group: Text | Document, rough: Sequence[float], places: Sequence[int], scores: Iterator[float]
) -> list[float]:
    """The scores of a group by place, with what a passage gets from the line that it stands under."""
    if not isinstance(group, Text):
        return [next(scores)]
    found = list(rough)
    for place in places:
        found[place] += next(scores)
    gains = [0.0] * len(found)
    for place, parent in enumerate(group.outline.parents):
        if 0 <= parent < place:
            gains[place] = HEADED * (found[parent] + gains[parent])
    return [score + gain for score, gain in zip(found, gains, strict=True)]
