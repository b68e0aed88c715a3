"""Shortens a log, code or text to the lines that are relevant to the query, with notes of how many lines are
missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, pairwise

from proxy.fit.relevance.results.candidate_lines import candidate_lines
from proxy.fit.relevance.results.definitions import definitions_of
from proxy.fit.relevance.results.read_on import NO_CALL, ReadOn
from proxy.fit.relevance.results.records import Records, records_of
from proxy.fit.relevance.results.shapes import Shape, shapes_of, without_fresh
from proxy.fit.relevance.results.text_lines import Line, lines_of
from proxy.fit.relevance.results.totals import totals_of
from proxy.fit.relevance.text.heuristics import outline_value
from proxy.fit.relevance.text.outline import outline
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.severity import ERROR, EXCEPTION, WARNING, WORD, severities_of_lines
from proxy.fit.relevance.text.short_text_bm25 import NEIGHBOURS, bm25_scores, fill, largest_fitting, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens_by_line
from proxy.fit.relevance.text.words import STOP, identifiers_in, severities
from proxy.model.oversized_json import is_cut
from proxy.model.ports import Meter
from proxy.model.structs import replace

NEW_NAME = 0.2  # value of an identifier that no chosen line contains yet, in units of the best match (measured)
LITERAL = 1.0  # value of a line that contains a literal of the query
ALIKE = 0.5  # how fast a shape of line loses value: value / (1 + lines of that shape before it) ** this (measured)
COST_EXPONENT = 0.25  # preference for short lines: score / length ** this (measured)
ENDS, ENDS_SHARE = 3, 0.2  # lines at either end that stay, within this share of the room
SHORT = 16  # characters of a line that is as short as a note that it is missing
GAP, NUMBERS = 5, 3  # tokens of the note between two runs of lines; more if it has the numbers of the lines
NOTE = 0.1  # share of the limit up to which a note says how many of how many matches, rows or records are shown
# Tokens of a limit up to which a note that becomes needless is no room: old results of a run would be longer in their
# short form, and its cuts would come earlier; in a window of 1,000 nothing is gained (measured).
SMALL = 1200
SAMPLE = 300  # lines that decide the language if the query is too short to
REACH = 80  # characters per token of the limit up to which all lines are ranked (measured: more gains nothing)
CHARACTERS = 4  # of a token, estimated; only the order of preference depends on it
# Values in units of the best match, for a query that is not about trouble, and for one that is (measured): a line of
# rare words, and a line that tells of trouble, by its severity.
RARE_WORTH = (0.12, 0.3)
REPEATED = 0.5  # what a rare line is worth more, the more the lines of a text repeat each other: nearly all do in a log
TROUBLE_WORTH = {WORD: (0.08, 0.35), EXCEPTION: (0.25, 1.2), WARNING: (0.15, 0.8), ERROR: (0.25, 1.5)}
SELDOM = 0.05  # share of the lines under which the worst trouble of a text is worth as much as errors, whatever it is
COMMONEST = 0.4  # share of that value that trouble keeps which most lines tell of
BODY, BODY_LINES = 0.5, 60  # what a section that is asked for adds to its lines: share of its heading's score, at first
HEADED = 0.7  # share of the best heading's score from which a heading matches
OUTLINED = 40  # lines of the outline of a definition that is too long to stay whole
VALUES = 32  # times the lines, how often values are computed again: a bound for hostile texts, which others stay below
BY_PROXY = "left out by a proxy"


def shorten_lines(
    text: str,
    limit: int,
    query: ResultQuery,
    meter: Meter,
    fits: Callable[[str], bool],
    call: ReadOn = NO_CALL,
) -> str | None:
    """At most `limit` tokens of a text: the lines relevant to the query, the ends and the outline, in order, with a
    note wherever lines are missing (see `render`). None if no line that is not blank fits."""
    lines = lines_of(text)
    texts = [line.text for line in lines]
    tokens = tokens_by_line(texts)
    places = candidate_lines(texts, tokens, query, limit * REACH)
    records = records_of(texts)
    if records is not None:
        places = _with_heads(places, records)
    reads = call.first and records is None  # the lines of a file
    totals = None if reads or is_cut(text) else totals_of(texts, records)
    note = 0 if totals is None else meter.text(totals.note(totals.places)) + 1
    if note > NOTE * limit:
        totals, note = None, 0
    gap = GAP + NUMBERS * (call.first > 0 and not call.numbered)
    claimed, torn = _claimed(text, lines, query, limit, meter, gap)
    if claimed or torn:
        heads = [head for place in claimed for head in (() if records is None else records.along(place))]
        claimed |= dict.fromkeys(heads)
        places = [place for place in places if place not in claimed and place not in torn]
    read = survey(lines, tokens, places)
    order = in_order_of_value(read, values_of(read, query), _seldom(read) if query.about_errors else 0.0)
    left = limit - note - sum([meter.text(texts[place]) + 1 for place in claimed])
    chosen = [*claimed, *(places[place] for place in _chosen(read, order, left, meter, gap, records))]
    if not any(lines[place].text.strip() for place in chosen):
        return None

    def made(count: int) -> str:
        kept = chosen[:count]
        return render(lines, kept, call) + (totals.note(_shown(lines, kept)) if totals is not None else "")

    return largest_fitting(made, len(chosen), fits)


def _with_heads(places: Sequence[int], records: Records) -> Sequence[int]:
    """The places, and the heads of the records that they are in."""
    return sorted({*places, *[head for place in places for head in records.along(place)]})


def _shown(lines: Sequence[Line], chosen: Iterable[int]) -> set[int]:
    """The chosen lines, and the single ones between them that are as short as a note (see `render`)."""
    kept = {-1, *chosen, len(lines)}
    near = {place + 1 for place in kept if place + 1 not in kept and place + 2 in kept}
    return (kept | {place for place in near if len(lines[place].text) <= SHORT}) - {-1, len(lines)}


def _claimed(
    text: str, lines: Sequence[Line], query: ResultQuery, limit: int, meter: Meter, gap: int
) -> tuple[dict[int, None], set[int]]:
    """The lines that must stay, in their order of claim: those of definitions that the query claims, whole, and those
    with its ids; and the lines of definitions that are too long for the limit, of which only the outline stays."""
    kept: dict[int, None] = {}
    torn: set[int] = set()
    left = limit - 2 * gap
    for ident in query.ids:
        for place, line in enumerate(lines):
            cost = meter.text(line.text) + 1 + gap if ident in line.text and place not in kept else 0
            if 0 < cost <= left:
                kept[place], left = None, left - cost
    found = definitions_of(text) if query.definitions else {}
    for name in query.definitions:
        for first, last in found.get(name, ()):
            body = [place for place in range(first, last) if place not in kept]
            cost = sum(meter.text(lines[place].text) + 1 for place in body) + gap
            if cost > left:
                torn.update(body)
                body = [place for place in body if outline_value(lines[place].text) > 0][:OUTLINED]
                cost = sum(meter.text(lines[place].text) + 1 + gap for place in body)
            if cost <= left:
                kept |= dict.fromkeys(body)
                left -= cost
    return kept, torn - kept.keys()


@dataclass(frozen=True, slots=True)
class Survey:
    """Analysed lines of a text: their indices in it (`places`), the tokens of each, all distinct tokens (`said`), the
    identifiers among these that are not new on every line (`names`), the severity of the lines that tell of trouble
    (`severities`, by index), and the shape of each (`shapes`)."""

    lines: Sequence[Line]
    places: Sequence[int]
    tokens: Sequence[Sequence[str]]
    said: Set[str]
    names: frozenset[str]
    severities: Mapping[int, int]
    shapes: Sequence[Shape]


def survey(lines: Sequence[Line], tokens: Sequence[Sequence[str]], places: Sequence[int]) -> Survey:
    """Analyses the lines at these places, given the tokens of every line."""
    found = [tokens[place] for place in places]
    said = distinct_tokens(found)
    read = [lines[place] for place in places]
    troubles = severities_of_lines([line.text for line in read], found, said, severities(said))
    names = without_fresh(identifiers_in(said), len(places))
    return Survey(read, places, found, said, names, troubles, shapes_of(found, said))


def in_order_of_value(read: Survey, worth: Sequence[float], seldom: float = 0.0) -> Iterator[int]:
    """Yields the indices of the lines, the highest value for its length first.

    The more lines of its shape stand before it, the less a line is worth: the tenth entry of one kind in a log says
    less than the first of another. Of the worst trouble of a text it loses less, the more `seldom` that is (0 to 1):
    who asks what went wrong wants to know each time that it did. Each identifier adds to the value of one line only,
    because the model needs it once.

    Lazy greedy selection: values only fall, so a value is computed again only when it reaches the top of the heap. The
    values of lines of one shape with the same identifiers fall together, so only the best of them is in the heap.
    """
    names = list(map(read.names.intersection, read.tokens))
    costs: list[float] = [(2 + len(line.text) / CHARACTERS) ** COST_EXPONENT for line in read.lines]
    unit = NEW_NAME * (max(worth, default=0.0) or 1.0)
    seen: set[str] = set()
    times: Counter[Shape] = Counter()
    worst = max(read.severities.values(), default=0)

    def value(place: int) -> float:
        alike = ALIKE * (1 - seldom) if read.severities.get(place) == worst else ALIKE
        fresh: float = (1 + times[read.shapes[place]]) ** -alike
        own = worth[place] * (fresh if worth[place] > 0 else 1)
        return (own + unit * len(names[place] - seen)) / costs[place]

    groups: dict[tuple[Shape, Set[str]], list[int]] = {}
    for _, place in sorted((value(place), -place) for place in range(len(costs))):
        groups.setdefault((read.shapes[-place], names[-place]), []).append(-place)
    waiting = [(-value(places[-1]), places[-1], places) for places in groups.values()]
    heapify(waiting)
    left = VALUES * len(costs)
    while waiting:
        estimate, place, places = waiting[0]
        if left > 0 and (now := -value(place)) > estimate:
            left -= 1
            heapreplace(waiting, (now, place, places))
            continue
        places.pop()
        seen |= names[place]
        times[read.shapes[place]] += 1
        if places:
            heapreplace(waiting, (-value(places[-1]), places[-1], places))
        else:
            heappop(waiting)
        yield place


def _chosen(
    read: Survey, order: Iterable[int], limit: int, meter: Meter, gap: int, records: Records | None = None
) -> list[int]:
    """The indices of the lines that fit into `limit` tokens, the ends first, each with the head of its record. `gap`:
    tokens of a note.

    A line beside a run of chosen lines needs no note of its own; one that joins two runs makes a note needless.
    """

    at, count = read.places, len(read.lines)
    saved = gap if limit > SMALL else 0

    def cost(place: int, chosen: Collection[int]) -> int:
        above = place - 1 in chosen and at[place] - at[place - 1] == 1
        below = place + 1 in chosen and at[place + 1] - at[place] == 1
        notes = -saved if above and below else 0 if above or below else gap
        return meter.text(read.lines[place].text) + 1 + notes

    def least(place: int) -> int:
        return len(read.tokens[place]) - saved  # a lower bound: no tokenizer joins two words or numbers

    index = {} if records is None else {place: i for i, place in enumerate(at)}

    def along(place: int) -> list[int]:
        heads = () if records is None else records.along(at[place])
        return [index[head] for head in heads if head in index]

    both = dict.fromkeys(place for i in range(min(ENDS, count)) for place in (i, count - 1 - i))
    ends = fill(list(both), cost, int(limit * ENDS_SHARE), along=along)
    left = limit - sum(cost(place, ends) for place in ends) - gap
    return list(dict.fromkeys(ends + fill((i for i in order if i not in ends), cost, left, least, along)))


def values_of(read: Survey, query: ResultQuery) -> list[float]:
    """The value of each line: its BM25 score and literals, shares of its neighbours' scores, and what does not depend
    on the query (errors, rare shapes, the outline)."""
    texts = [line.text for line in read.lines]
    own = bm25_scores(read.tokens, *query.keys("\n".join(texts[:SAMPLE])), read.said)
    unit = max(own, default=0.0) or 1.0
    worth = [a + LITERAL * unit * b for a, b in zip(own, literal_scores(texts, query.literals), strict=True)]
    hits, at = [place for place, score in enumerate(own) if score], read.places
    for away, share in enumerate(NEIGHBOURS, 1):
        for place in hits:
            if place >= away and at[place] - at[place - away] == away:
                worth[place - away] += share * own[place]
            if place + away < len(own) and at[place + away] - at[place] == away:
                worth[place + away] += share * own[place]
    for first, share, end in _asked_for(read.lines, own, unit, query):
        for place in range(first + 1, min(end, first + 1 + BODY_LINES)):
            worth[place] += BODY * share * (1 - (place - first) / (2 * BODY_LINES))
    news = _novelty(read, query.about_errors)
    return [w + unit * (outline_value(text) + new) for w, text, new in zip(worth, texts, news, strict=True)]


def _asked_for(
    lines: Sequence[Line], own: Sequence[float], unit: float, query: ResultQuery
) -> Iterator[tuple[int, float, int]]:
    """Yields (first line, worth, end) of each section whose heading is one of those that match the query best, and of
    each definition that the query names."""
    found = outline([line.text for line in lines], [line.starts for line in lines], titles=True)
    best = max([own[place] for place in found.headings], default=0.0)
    for place, end in sorted(found.until.items()):
        name = found.defined.get(place, "").lower()
        if name in query.words and name not in STOP:
            yield place, unit, end
        elif place in found.headings and own[place] > HEADED * best:
            yield place, own[place], end


def _novelty(read: Survey, about_trouble: bool) -> list[float]:
    """The value of each line for its rarity and its trouble, more if the query is about trouble."""
    times = Counter(read.shapes)
    rarities = [times[shape] ** -0.5 for shape in read.shapes]
    rare_worth = RARE_WORTH[about_trouble] + REPEATED * (1 - len(times) / max(1, len(rarities))) ** 2
    found = [rare_worth * rare for rare in rarities]
    worst = max(read.severities.values(), default=0)
    few = about_trouble * _seldom(read)
    for place, severity in read.severities.items():
        worth = TROUBLE_WORTH[severity][about_trouble]
        raised = few * (TROUBLE_WORTH[ERROR][about_trouble] - worth) if severity == worst else 0.0
        found[place] += worth * (COMMONEST + (1 - COMMONEST) * rarities[place]) + raised
    return found


def _seldom(read: Survey) -> float:
    """How seldom the worst trouble of a text is: 1 for none, 0 from `SELDOM` of the lines on."""
    worst = max(read.severities.values(), default=0)
    worst_lines = sum([severity == worst for severity in read.severities.values()])
    return max(0.0, 1 - worst_lines / (SELDOM * max(1, len(read.lines))))


def render(lines: Sequence[Line], chosen: Sequence[int], call: ReadOn = NO_CALL) -> str:
    """The chosen lines in order, with a note wherever lines are missing. A single missing line that is as short as the
    note is included instead.

    The note has the number of lines; if `call` can be repeated for them, their numbers (unless the lines show these
    themselves), and where most are missing also the arguments that return them, or else of how many lines. The first
    note says who left them out, if `call` demands it.
    """
    kept = sorted(chosen)
    gaps = [(after, place) for after, place in pairwise((-1, *kept, len(lines))) if place > after + 1]
    widest = max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
    numbers = list(accumulate((line.starts for line in lines), initial=call.first))
    found: list[str] = []
    for after, place in pairwise((-1, *kept, len(lines))):
        if place > after + 1:
            said = _note(lines, after + 1, place, numbers, call, (after, place) == widest)
            call = replace(call, says_who=False) if BY_PROXY in said else call
            found.append(said)
        if place < len(lines):
            found.append(_with_break(lines, place))
    return "".join(found)


def _note(lines: Sequence[Line], start: int, end: int, numbers: Sequence[int], call: ReadOn, widest: bool) -> str:
    """The note for the lines from `start` to `end` (exclusive)."""
    if end == start + 1 and len(lines[start].text) <= SHORT:
        return _with_break(lines, start)
    missing = numbers[end] - numbers[start]
    if not missing:
        return f" [… {BY_PROXY} …] " if call.says_who else " … "
    text, again = f"{missing} lines" if missing > 1 else "1 line", ""
    if call.first and (widest or not call.numbered):
        first = numbers[start] + (0 if lines[start].starts else 1)
        text = f"lines {first}-{first + missing - 1}" if missing > 1 else f"line {first}"
        again = call.lines(first, missing) if widest else ""
    elif widest and missing < (total := numbers[-1] - numbers[0]):
        text = f"{missing} of {total} lines"
    if call.says_who:
        text = f"[… {text} {BY_PROXY}" + (f"; read with {again} …]" if again else " …]")
    else:
        text = f"… {text} ({again}) …" if again else f"… {text} …"
    return ("\n" if start else "") + text


def _with_break(lines: Sequence[Line], place: int) -> str:
    return ("\n" if lines[place].starts and place else "") + lines[place].text
