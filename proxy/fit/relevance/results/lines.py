"""Chooses the lines of a log, of code or of text that bear on a question; it says how many it left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import msgspec

from proxy.fit.relevance.results.candidate_lines import near
from proxy.fit.relevance.text.heuristics import outline_value
from proxy.fit.relevance.text.query import Asked
from proxy.fit.relevance.text.short_text_bm25 import NEIGHBOURS, bm25_scores, fill, largest_fitting, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens_by_line
from proxy.fit.relevance.text.words import identifiers_in, severities
from proxy.model.ports import Meter

NEW_NAME = 0.2  # worth of an identifier that no chosen line has yet, in units of the best match (measured)
LITERAL = 1.0  # worth of a line in which what the question quotes stands to the letter
COST_EXPONENT = 0.25  # how much shorter lines are preferred (measured)
ENDS, ENDS_SHARE = 3, 0.2  # so many lines at either end stay, within this share of the room: what it is, how it ended
SHORT = 16  # characters of a line that costs no more than the note that it is missing
LONG, CHUNK = 1000, 400  # characters: a line over LONG is read in chunks, or one line could take all the room
LINES = 20_000  # of a text that are read
GAP = 5  # tokens that the note between two runs of lines costs
SAMPLE = 300  # lines that may tell the language where the question is too short to
REACH = 80  # characters for each token that may stay up to which a text is read whole (measured: more shows no more)
CHARACTERS = 4  # a token has about so many; only the order of preference depends on it
# What trouble is worth, in units of the best match: where the question is not about trouble, where it is (measured).
RARE_WORTH, LOUD_WORTH, QUIET_WORTH = (0.12, 0.3), (0.25, 0.9), (0.08, 0.35)
CHUNKS = re.compile(rf".{{1,{CHUNK}}}(?:\s|$)|.{{1,{CHUNK}}}", re.DOTALL)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line, or a chunk of one that is too long; `starts`: how many lines begin in it."""

    text: str
    starts: int


def lines_of(text: str) -> list[Line]:
    """The text in lines; joined again they are the text. Of a text of very many lines those in the middle are one that
    says how many they are: each takes 300 bytes once it is read."""
    found: list[Line] = []
    for line in _split(text):
        if isinstance(line, int):
            found.append(Line(f"… {line} lines …", line))
        elif len(line) <= LONG:
            found.append(Line(line, 1))
        else:
            found += [Line(chunk, int(place == 0)) for place, chunk in enumerate(CHUNKS.findall(line))]
    return found


def _split(text: str) -> list[str | int]:
    """The lines, or a number where so many are left out."""
    if text.count("\n") < LINES:
        return [*text.split("\n")]
    *head, rest = text.split("\n", LINES // 2)
    middle, *tail = rest.rsplit("\n", LINES // 2)
    return [*head, middle.count("\n") + 1, *tail]


def shorten_lines(text: str, limit: int, asked: Asked, meter: Meter, fits: Callable[[str], bool]) -> str | None:
    """At most `limit` tokens of a text: the lines that bear on what was asked, its ends and its outline, in order, with
    a note wherever lines are missing. None where not one line with anything in it fits."""
    lines = lines_of(text)
    texts = [line.text for line in lines]
    tokens = tokens_by_line(texts)
    places = near(texts, tokens, asked, limit * REACH)
    read = survey(lines, tokens, places)
    order = by_worth(read, worth_of(read, asked))
    chosen = [places[place] for place in _chosen(read, order, limit, meter)]
    if not any(lines[place].text.strip() for place in chosen):
        return None
    return largest_fitting(lambda count: render(lines, chosen[:count]), len(chosen), fits)


@dataclass(frozen=True, slots=True)
class Survey:
    """Lines of a text, read once: where in it each stands, the tokens of each and of all, which of them are
    identifiers, and which tell of trouble and how loud."""

    lines: Sequence[Line]
    places: Sequence[int]
    tokens: Sequence[Sequence[str]]
    said: Set[str]
    names: frozenset[str]
    trouble: Mapping[str, int]


def survey(lines: Sequence[Line], tokens: Sequence[Sequence[str]], places: Sequence[int]) -> Survey:
    """Reads those of the lines that stand in these places; the tokens of each line are known."""
    found = [tokens[place] for place in places]
    said = distinct_tokens(found)
    return Survey([lines[place] for place in places], places, found, said, identifiers_in(said), severities(said))


def by_worth(read: Survey, worth: Sequence[float]) -> Iterator[int]:
    """The places of the lines, best for its length first, as far as they are asked for; each identifier adds to the
    worth of one line only: what the model may need to name shall stand there once. Greedy: as worth only falls, a line
    is looked at again when its turn comes."""
    names = list(map(read.names.intersection, read.tokens))
    costs = [(2 + len(line.text) / CHARACTERS) ** COST_EXPONENT for line in read.lines]
    unit = NEW_NAME * (max(worth, default=0.0) or 1.0)
    seen: set[str] = set()
    waiting = [(-(worth[i] + unit * len(names[i])) / costs[i], i) for i in range(len(costs))]
    heapify(waiting)
    while waiting:
        thought, place = waiting[0]
        now = -(worth[place] + unit * len(names[place] - seen)) / costs[place]
        if now > thought:
            heapreplace(waiting, (now, place))
            continue
        heappop(waiting)
        seen |= names[place]
        yield place


def _chosen(read: Survey, order: Iterable[int], limit: int, meter: Meter) -> list[int]:
    """The places of the lines that fit, the ends first."""

    at, count = read.places, len(read.lines)

    def cost(place: int, chosen: Collection[int]) -> int:
        joins = (place - 1 in chosen and at[place] - at[place - 1] == 1) or (
            place + 1 in chosen and at[place + 1] - at[place] == 1
        )
        return meter.text(read.lines[place].text) + 1 + (0 if joins else GAP)

    def least(place: int) -> int:
        return len(read.tokens[place])  # words and numbers: no tokenizer joins two of them

    both = dict.fromkeys(place for i in range(min(ENDS, count)) for place in (i, count - 1 - i))
    ends = fill(list(both), cost, int(limit * ENDS_SHARE))
    left = limit - sum(cost(place, ends) for place in ends) - GAP
    return ends + fill((i for i in order if i not in ends), cost, left, least)


def worth_of(read: Survey, asked: Asked) -> list[float]:
    """How much each line is worth: what it answers itself, a share of what its neighbours do, and what lines of its
    kind are worth whatever is asked."""
    texts = [line.text for line in read.lines]
    own = bm25_scores(read.tokens, *asked.keys("\n".join(texts[:SAMPLE])), read.said)
    unit = max(own, default=0.0) or 1.0
    worth = [a + LITERAL * unit * b for a, b in zip(own, literal_scores(texts, asked.literals), strict=True)]
    hits, at = [place for place, score in enumerate(own) if score], read.places
    for away, share in enumerate(NEIGHBOURS, 1):
        for place in hits:
            if place >= away and at[place] - at[place - away] == away:
                worth[place - away] += share * own[place]
            if place + away < len(own) and at[place + away] - at[place] == away:
                worth[place + away] += share * own[place]
    news = _news(read, asked.about_errors)
    return [w + unit * (outline_value(text) + new) for w, text, new in zip(worth, texts, news, strict=True)]


def _news(read: Survey, troubled: bool) -> list[float]:
    """A shape of line that is seldom met carries news, one met a hundred times does not; trouble does, most of all
    where the question is about trouble. A line's shape are its plain words and names: numbers, dates, paths differ in
    lines that say the same."""
    shapes = [tuple(filter(str.isidentifier, said)) for said in read.tokens]
    rarities = {shape: times**-0.5 for shape, times in Counter(shapes).items()}
    found = [RARE_WORTH[troubled] * rarities[shape] for shape in shapes]
    calm = read.trouble.keys().isdisjoint
    for place, said in enumerate(read.tokens if read.trouble else ()):
        if not calm(said):
            loud = max([read.trouble.get(token, 0) for token in said]) > 1
            weight = LOUD_WORTH[troubled] if loud else QUIET_WORTH[troubled]
            found[place] += weight * (0.4 + 0.6 * rarities[shapes[place]])
    return found


def render(lines: Sequence[Line], chosen: Sequence[int]) -> str:
    """The chosen lines in their order, and a note wherever some are missing; a line that is no longer than the note
    would be stands there itself."""
    found: list[str] = []
    after = 0
    for place in (*sorted(chosen), len(lines)):
        found += _between(lines, after, place)
        if place < len(lines):
            found.append(_with_break(lines, place))
        after = place + 1
    return "".join(found)


def _between(lines: Sequence[Line], after: int, place: int) -> list[str]:
    if after == place:
        return []
    if place == after + 1 and len(lines[after].text) <= SHORT:
        return [_with_break(lines, after)]
    missing = sum(line.starts for line in lines[after:place])
    if not missing:
        return [" … "]
    return [("\n" if after else "") + (f"… {missing} lines …" if missing > 1 else "… 1 line …")]


def _with_break(lines: Sequence[Line], place: int) -> str:
    return ("\n" if lines[place].starts and place else "") + lines[place].text
