"""The question of a conversation: what its last user turn asks, as weighted clauses. Everything that ranks uses it.

Theory of operation
===================

People wrap a question in courtesy and stories, programs in instructions, templates and format rules. No list of such
phrases is complete, and they come in every language. What tells the question apart is the conversation: the words of a
question meet in some turn, those of courtesy do not. So each clause of the message is measured by its agreement: the
largest sum, over the turns, of the rarity of those of its words that the turn contains. A clause that names something
by a capital or a number has more, a clause that does not end as a question less. The weight of a clause is a power of
its share of the best clause's.

A message may ask two things. A clause that ends as a question and agrees with a turn as well as a message that is no
follow-up asks for itself, whatever the others weigh; where none ends so, orders ("Summarise X; and Y") ask. Each is
ranked apart (`Question.apart`), so that one subject does not fill the room.

The same measure tells a follow-up. "Are you sure?" agrees with no turn: the previous user turn is what it asks about,
and if that is a follow-up too, the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from proxy.fit.relevance.passages.pasted import typed_ends
from proxy.fit.relevance.passages.splitting import split
from proxy.fit.relevance.text.bm25 import Document, Index, Query, acquire_index, query, release_index, translated
from proxy.fit.relevance.text.clauses import clauses_in, is_question
from proxy.fit.relevance.text.reading import Reading, read_message, read_text, speaker_of, speakers_of
from proxy.fit.relevance.text.words import KNOWN_ENGLISH, STOP
from proxy.model.conversation import Block, Kind, Message

# Characters read at either end of a long message, where a question is (measured: more adds noise).
USER_HEAD, USER_TAIL = 1200, 300
LONG = 6000  # characters from which a message contains a text that its user did not write for this question, ...
OUTER = 1200  # ... and the characters at either end of it that are searched for what the user wrote
PASTED = 50_000  # characters of pasted texts that are read for the question; of longer ones every so many passages
PARAGRAPHS = 2  # at either end of such a message that are searched for it: more are of the pasted text
STATEMENT = 0.4  # factor for a clause that does not end as a question
NAMED = 0.5  # added to the agreement of a clause that names something of the conversation by a capital or a number, ...
NAMES = 0.25  # ... and for each further name
POWER = 3  # of a clause's share of the best agreement: its weight
LEAST = 0.02  # a clause of less weight is left out
MAIN = 0.3  # share of the best weight from which a clause is what is asked
FOLLOWS, STANDS = 0.85, 1.15  # agreement of a message that is surely a follow-up, and of one that surely is none
FOLLOWING = 0.5  # weight of a follow-up's own words
CLAUSE = 10  # content words of a clause of an earlier message, from which each weighs less: a story is no question
ASKS = 0.85  # agreement from which a clause may ask for itself
APART = 0.3  # share of the best agreement from which a clause asks for itself (measured)
BESIDE = 0.2  # weight of the other clauses in what each asks
MOST_APART = 4  # clauses that are ranked apart at most
ONE_SUBJECT = 0.25  # share of the smaller agreement of two halves by which that of both may pass the larger one
JOINTS = 16  # of an order at which its halves are looked for: a bound for hostile texts
AND = re.compile(
    r"(?:,? (?:and|und|et|y|e|и|as well as|sowie|ainsi que|así como)(?: also)? |[、，]?(?:以及|和|と)(?=\S))", re.I
)
TURNS = 5  # user turns that are read at most, with the last one
Spans = Sequence[tuple[int, int]]
LETTERS = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a user's text. `weight`: its share in what is asked, over 0 and at most 1. `start`, `end`: where it
    stands in `own_text()` of the last user message, in characters; both -1 if it is from an earlier message. `asks`:
    whether it asks for itself."""

    text: str
    weight: float = 1.0
    start: int = -1
    end: int = -1
    asks: bool = False


@dataclass(frozen=True)
class Question:
    """What the last user turn asks. `clauses`: those of the last user message in their order, then those of earlier
    ones, if it is a follow-up. `place`: the index of its block; -1 if it was formed from a text."""

    clauses: tuple[Clause, ...]
    place: int = -1

    @property
    def follows(self) -> bool:
        """Whether it takes content from earlier user messages."""
        return any(clause.start < 0 for clause in self.clauses)

    @cached_property
    def text(self) -> str:
        """The main clauses as one text: for embeddings, and to find names, dates and literals."""
        least = MAIN * max([clause.weight for clause in self.clauses], default=0.0)
        return "\n".join(clause.text for clause in self.clauses if clause.weight >= least)

    @cached_property
    def apart(self) -> tuple[Question, ...]:
        """The questions that it consists of: one for each clause that asks for itself; itself if there are no two."""
        asking = sorted((clause for clause in self.clauses if clause.asks), key=lambda clause: -clause.weight)
        if len(asking) < 2:
            return (self,)
        asking = asking[:MOST_APART]
        return tuple(
            Question(tuple(replace(c, weight=1.0 if c is each else BESIDE) for c in asking), self.place)
            for each in asking
        )

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where the main clauses of the last user message stand in its `own_text()`, as (start, end) in characters.
        Whatever shortens that message must keep them."""
        own = [clause for clause in self.clauses if clause.start >= 0]
        least = MAIN * max([clause.weight for clause in own], default=0.0)
        return tuple((clause.start, clause.end) for clause in own if clause.weight >= least)

    def query(self, index: Index) -> Query:
        """The words of all clauses, weighted. Of an English conversation the query is English, whatever the language
        around the question. In other languages a word weighs by its rarity, too, instead of a list of stop words. If
        the question is in another language than the conversation, words of that are found by their meaning."""
        words: dict[str, float] = {}
        length = english = 0.0
        for clause in self.clauses:
            read = read_text(clause.text)
            length, english = length + clause.weight * read.length, english + clause.weight * read.english
            for word, times in read.words.items():
                words[word] = words.get(word, 0.0) + clause.weight * times
        main = max(self.clauses, key=lambda clause: clause.weight, default=None)
        asked_in = index.asked_in(read_text(main.text)) if main is not None else ""
        if asked_in:
            return translated(words, index.is_english, asked_in)
        if index.is_english or english >= KNOWN_ENGLISH * max(1, length):
            return query(words, True)
        return query({word: weight * index.rarity(word) for word, weight in words.items()}, False)


def question_of(blocks: Sequence[Block]) -> Question | None:
    """The question of the last user turn in these blocks. None if the client sent no user message in them.

    It depends on these blocks alone: of the same blocks it is always the same.
    """
    speaking = [(i, block.user) for i, block in enumerate(blocks)]
    users = [i for i, user in speaking if user is not None and user.index >= 0]
    if not users:
        return None
    others = [block for i, block in enumerate(blocks) if i != users[-1]]
    documents: list[Document] = [tuple(map(read_in_part, block.messages)) for block in others]
    index = acquire_index([*documents, *_pasted([user for _, user in speaking if user is not None])])
    found = Question(tuple(_clauses(blocks, users, index)), users[-1])
    release_index(index)
    return found


def read_in_part(message: Message) -> Reading:
    """The reading of a message, of a very long one of its beginning: it would contain every word of the question. The
    passages of a user's are read besides."""
    if len(message.raw) <= PASTED:
        return read_message(message)
    return read_message(message, OUTER if message.kind is Kind.USER else PASTED)


def _pasted(users: Sequence[Message]) -> Iterator[Document]:
    """The passages of long texts that users pasted, but for the ends, where what they wrote themselves is. A question
    about a text agrees with a passage; as one document the text would contain every word."""
    long = [user for user in users if len(user.raw) > LONG and user.index >= 0]
    texts = [text[OUTER:-OUTER] for user in long if len(text := user.own_text()) > LONG]
    step = sum(map(len, texts)) // PASTED + 1
    for text in texts:
        for passage in split(text)[1:-1:step]:
            yield (read_text(passage.text),)


def _clauses(blocks: Sequence[Block], users: Sequence[int], index: Index) -> Iterator[Clause]:
    """The clauses of the last user message and, as far as it is a follow-up, those of the user messages before it."""
    speakers = speakers_of([document[0].speaker for document in index.documents])
    weight, asking = 1.0, ""
    for place in users[: -TURNS - 1 : -1]:
        message = blocks[place].user or blocks[place].messages[0]
        text = message.own_text()
        speaker = speaker_of(text, message.name)
        if place != users[-1] and speaker != asking and speaker in speakers:
            return  # a turn of a transcript: somebody else said it
        asking = speaker
        spans = _candidates(text)
        last = place == users[-1]
        agreements = _agreements([text[start:end] for start, end in spans], index, -1 if last else place)
        if not (last or any(agreements)):
            continue  # no other turn contains a word of it
        follows = min(1.0, max(0.0, (STANDS - max(agreements)) / (STANDS - FOLLOWS)))
        asks = any(is_question(text[start:end]) for start, end in spans)
        apart = _asking(text, spans, agreements) if last and not follows else frozenset()
        for (start, end), share in zip(spans, _weights(text, spans, agreements), strict=True):
            clause = Clause(text[start:end], weight * share * (1 - (1 - FOLLOWING) * follows), start, end)
            if (start, end) in apart:
                yield from _alone(replace(clause, weight=max(clause.weight, MAIN), asks=True), index)
            elif clause.weight >= LEAST:
                yield clause if last else _earlier(clause, asks)
        weight *= follows
        if weight < LEAST:
            return


def _asking(text: str, spans: Spans, agreements: Sequence[float]) -> frozenset[tuple[int, int]]:
    """The clauses that ask for themselves: those that end as a question, or all if none does, and that agree with a
    turn."""
    asks = [is_question(text[start:end]) for start, end in spans]
    least = max(ASKS, APART * max(agreements, default=0.0))
    worthy = [value >= least and (asks[k] or not any(asks)) for k, value in enumerate(agreements)]
    return frozenset(span for span, worth in zip(spans, worthy, strict=True) if worth)


def _alone(clause: Clause, index: Index) -> Iterator[Clause]:
    """A clause that asks; of an order both halves, if each agrees with a turn, and both not with the same ("Summarise X
    and Y")."""
    for joint in () if is_question(clause.text) else islice(AND.finditer(clause.text), JOINTS):
        halves = clause.text[: joint.start()], clause.text[joint.end() :]
        both, one, other = _agreements((clause.text, *halves), index, -1)
        if min(one, other) >= STANDS and both <= max(one, other) + ONE_SUBJECT * min(one, other):
            yield replace(clause, text=halves[0], end=clause.start + joint.start())
            yield replace(clause, text=halves[1], start=clause.start + joint.end())
            return
    yield clause


def _earlier(clause: Clause, asks: bool) -> Clause:
    """A clause of an earlier message, which has no place in the last one. It weighs less if that message asks nothing,
    or if the clause is long: a story is no question."""
    share = min(1.0, CLAUSE / max(1, len(content_words(clause.text)))) * (1.0 if asks else STATEMENT)
    return Clause(clause.text, clause.weight * share)


def _candidates(text: str) -> Spans:
    """The clauses of a message. Of a long one: those of its first and last paragraphs, as many as are short; else of
    its first and last lines. What is seen to be pasted has none."""
    if len(text) <= LONG:
        return list(clauses_in(text)) or [(0, len(text))]
    start, end = typed_ends(text)
    head, tail = text[: min(OUTER, start)], text[max(len(text) - OUTER, end) :]
    first = _first_paragraphs(head, whole=start <= OUTER)
    behind = len(text) - len(tail) + _last_paragraphs(tail, whole=len(text) - OUTER <= end)
    found = [*clauses_in(head[:first])]
    found += [(behind + a, behind + b) for a, b in clauses_in(text[behind:])]
    return found or [(0, OUTER), (len(text) - OUTER, len(text))]


def _first_paragraphs(text: str, *, whole: bool) -> int:
    """Where the first paragraphs of a text end; its first line if it has no blank one. `whole`: the text ends there, so
    its last paragraph is one; else that may be the beginning of something else."""
    found = -1
    for _ in range(PARAGRAPHS):
        before, found = found, text.find("\n\n", found + 1)
        if found < 0:
            line = text.find("\n") if before < 0 else before
            return len(text) if whole or line < 0 else line
    return found


def _last_paragraphs(text: str, *, whole: bool) -> int:
    """Where the last paragraphs of a text begin; its last line if it has no blank one. `whole`: as above."""
    found = len(text)
    for _ in range(PARAGRAPHS):
        behind, found = found, text.rfind("\n\n", 0, found)
        if found < 0:
            return 0 if whole else (text.rfind("\n") if behind == len(text) else behind) + 1
    return found + 1


def _weights(text: str, spans: Spans, agreements: Sequence[float]) -> list[float]:
    """The weight of each clause in its message: 1 for the best."""
    asks = [1.0 if is_question(text[start:end]) else STATEMENT for start, end in spans]
    worth = [share * value for share, value in zip(asks, agreements, strict=True)]
    worth = worth if any(worth) else asks  # of a conversation that knows none of the words, the signs alone decide
    return [(value / max(worth)) ** POWER for value in worth]


def _agreements(clauses: Sequence[str], index: Index, own: int) -> list[float]:
    """How well each clause agrees with one turn, besides its `own`: the rarity of the words that they share, and more
    if it names something that the conversation contains."""
    asked_in = _asked_in(clauses, index)
    shared = index.agreements([content_words(clause) for clause in clauses], own, asked_in)
    return [value + _named(_names(clause), index, own) for value, clause in zip(shared, clauses, strict=True)]


def _asked_in(clauses: Sequence[str], index: Index) -> list[str]:
    """The language of each clause, if it is another one than that of the conversation: its own, else that of all."""
    whole = index.asked_in(read_text("\n".join(clauses)))
    return [index.asked_in(read_text(clause)) or whole for clause in clauses] if whole else [""] * len(clauses)


def _named(names: Sequence[str], index: Index, own: int) -> float:
    """What names add to an agreement: something if the conversation contains one of them."""
    return NAMED + NAMES * (len(names) - 1) if any(index.contains(name, own) for name in names) else 0.0


def _names(clause: str) -> list[str]:
    """The content words with a capital or a digit at the beginning. The first word of a clause has a capital anyway."""
    later = LETTERS.findall(clause)[1:]
    return content_words(" ".join(word for word in later if word[0].isupper() or word[0].isdigit()))


def content_words(text: str) -> list[str]:
    """The distinct words of a text but English function words and single letters."""
    return [word for word in read_text(text).words if word not in STOP and (len(word) > 1 or not word.isascii())]


def question_in(text: str) -> Question:
    """The question in one text, without a conversation."""
    if len(text) <= USER_HEAD + USER_TAIL:
        return Question((Clause(text, 1.0, 0, len(text)),))
    tail = len(text) - USER_TAIL
    return Question((Clause(text[:USER_HEAD], 1.0, 0, USER_HEAD), Clause(text[tail:], 1.0, tail, len(text))))


def ends(text: str) -> str:
    """The beginning and the end of a long text, where a question is."""
    return question_in(text).text
