"""Chooses the rows of a JSON result that bear on a question; what else stands in it, and how many went, it keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter

from proxy.fit.relevance.results.json_shrinking import LEFT_OUT, encoded, slim
from proxy.fit.relevance.results.tables import COLUMNS, ROWS
from proxy.fit.relevance.text.heuristics import extremes, superlative
from proxy.fit.relevance.text.query import Asked
from proxy.fit.relevance.text.short_text_bm25 import bm25_scores, fill, largest_fitting, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens
from proxy.fit.relevance.text.words import STOP, parts, severities, stem, unescaped
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter
from proxy.model.structs import replace

LIST_DEPTH = 4  # levels of objects in which the list of rows is looked for; deeper lists belong to one row
FEWEST_ROWS = 3  # a shorter list is no list of results
FEWEST_ENTRIES = 8  # an object with fewer objects in it is one thing with parts, no map of things by their names
MOST_OF_MAP = 0.5  # share of a map from which a list in it holds the results, and not the map
FILLED = 0.5  # share of cells from which rows of different shape are shorter as one table: a null costs half a key
SLIMMED = 0.7  # share of the room that the best row may take where it alone is too long for it
ABOUT = 0.4  # share of the limit over which what stands beside the rows is slimmed
EXTREME, NAMED, PLACE = 0.5, 1.0, 0.18  # worth of an extreme value; more if its column is asked for; less by its rank
LITERAL = 1.0  # worth of a row in which what the question quotes stands to the letter: as much as the best match
TROUBLED = 0.3  # worth of a row that tells of trouble, where the question asks for trouble
NOTE = 30  # tokens: the count and the note
WORTHWHILE = 100  # tokens in which a row that is too long still tells something
PREVIEWED = 500  # characters that a preview keeps of a string (seed 004)
SAMPLE = 100  # rows that may tell the language where the question is too short to


@dataclass(frozen=True, slots=True)
class Listing:
    """A JSON value and what in it holds the results, `size` characters of it: a list, or a map of objects by their
    names, whose entries are the rows then. `tabular` says that its rows are shown as a table."""

    whole: Json
    held: Json
    rows: list[Json]
    tabular: bool
    size: int

    @property
    def named(self) -> bool:
        """Whether each row is an entry of a map: an object with its name as its one key."""
        return isinstance(self.held, dict)

    def showing(self, shown: Sequence[Json]) -> str:
        """The JSON with only those rows, a count of all of them, and a note (seed 004's words)."""
        count, note = len(self.rows), f"[Truncated: {len(self.rows)} total results, {len(shown)} shown]"
        listed: Json = as_table(shown) if self.tabular else list(shown)
        if self.named:
            listed = {name: value for entry in shown for name, value in entry.items()}
        if self.whole is self.held or not isinstance(self.whole, dict):
            return encoded({"result_count": count, "results_preview": listed, "note": note})
        said = {_free("result_count", self.whole): count, _free("note", self.whole): note}
        return encoded({**_replaced(self.whole, self.held, listed), **said})

    def cost(self, row: Json, meter: Meter) -> int:
        """Tokens of one more row."""
        return meter.text(encoded(list(row.values()) if self.tabular and isinstance(row, dict) else row)) + 2


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or one like it that is not taken: a key of the result's own is never written over."""
    return name if name not in taken else _free(f"_{name}", taken)


def _replaced(value: Json, held: Json, shown: Json) -> Json:
    if value is held:
        return shown
    return {k: _replaced(v, held, shown) for k, v in value.items()} if isinstance(value, dict) else value


def listing(whole: Json) -> Listing | None:
    """The list with the longest JSON within `LIST_DEPTH` levels of objects, or the longest map where that list is but a
    part of one of its entries; None where there is neither."""
    lists: list[Json] = []
    maps: list[Json] = []
    level = [whole]
    for _ in range(LIST_DEPTH):
        lists += [v for v in level if isinstance(v, list) and len(v) >= FEWEST_ROWS]
        maps += filter(_is_map, level)
        level = [child for v in level if isinstance(v, dict) for child in v.values()]
    size, held = _longest_of(lists)
    size_of_map, map_of_all = _longest_of(maps)
    if size < MOST_OF_MAP * size_of_map:
        entries: list[Json] = [{name: value} for name, value in map_of_all.items()]
        return Listing(whole, map_of_all, entries, False, size_of_map)
    return Listing(whole, held, held, is_tabular(held), size) if lists else None


def _is_map(value: Json) -> bool:
    if not isinstance(value, dict) or len(value) < FEWEST_ENTRIES:
        return False
    return all(isinstance(item, dict) and item for item in value.values())


def _longest_of(values: Sequence[Json]) -> tuple[int, Json]:
    return max(((len(encoded(value)), value) for value in values), key=itemgetter(0), default=(0, None))


def is_tabular(rows: Sequence[Json]) -> bool:
    """Whether rows share most of their keys, so that a header is worth it."""
    if len(rows) < 2 or not all(isinstance(row, dict) and row for row in rows):
        return False
    return sum(map(len, rows)) >= FILLED * len({key for row in rows for key in row}) * len(rows)


def as_table(rows: Sequence[Json]) -> Json:
    """Rows with their header once. A field that a row never had is null; one that was left out of it, "…"."""
    names = list(dict.fromkeys(key for row in rows for key in row if key != LEFT_OUT))
    return {COLUMNS: names, ROWS: [[row.get(name, row.get(LEFT_OUT) and "…") for name in names] for row in rows]}


def shorten_rows(
    listed: Listing, limit: int, asked: Asked, meter: Meter, fits: Callable[[str], bool], preview: int | None = None
) -> str | None:
    """At most `limit` tokens: the rows that bear on what was asked, in their order, at most `preview` of them. None
    where not even one row fits, slimmed."""
    words = asked.words.keys() - STOP if asked.keys()[1] else asked.words.keys()
    wanted = words | set(map(stem, words))
    listed = _with_less_about(listed, limit, wanted, meter)
    worth = worth_of(listed.rows, asked, named=listed.named)
    order = sorted(range(len(worth)), key=lambda place: (-worth[place], place))
    rows, best = list(listed.rows), order[0]
    if preview is not None:  # for people to read: objects as they were
        rows, listed = list(map(_brief, rows)), replace(listed, tabular=False)
    room = limit - meter.text(listed.showing([rows[best]])) + listed.cost(rows[best], meter) - NOTE

    def cost(place: int, chosen: Collection[int]) -> int:
        return listed.cost(rows[place], meter)

    chosen = fill(order, cost, room)
    if best not in chosen:  # it alone is too long: slimmed, it still tells more than others whole
        others = fill(order[1:], cost, int((1 - SLIMMED) * room))
        left = room - sum(cost(place, ()) for place in others)
        chosen = others
        for place in order:  # and so do those after it, as long as there is room
            if left < WORTHWHILE:
                break
            if place not in others:
                rows[place] = _slimmed(rows[place], listed.named, left, wanted, meter)
                left -= cost(place, ())
                chosen = [place, *chosen] if place == best else [*chosen, place]
    chosen = chosen[:preview]
    return largest_fitting(lambda count: listed.showing([rows[p] for p in sorted(chosen[:count])]), len(chosen), fits)


def _slimmed(row: Json, named: bool, room: int, wanted: Collection[str], meter: Meter) -> Json:
    """The row in at most `room` tokens, where it can be; an entry of a map keeps its name."""
    if not named:
        return slim(row, room, wanted, meter)
    return {name: slim(value, room - meter.text(encoded({name: 0})), wanted, meter) for name, value in row.items()}


def _brief(row: Json) -> Json:
    if isinstance(row, str):
        return row if len(row) <= PREVIEWED else row[:PREVIEWED] + "…"
    if isinstance(row, dict):
        return {key: _brief(value) for key, value in row.items()}
    return list(map(_brief, row)) if isinstance(row, list) else row


def _with_less_about(listed: Listing, limit: int, wanted: Collection[str], meter: Meter) -> Listing:
    """What stands beside the rows, slimmed where it takes too much of the limit."""
    if listed.whole is listed.held or not isinstance(listed.whole, dict):
        return listed
    about = {k: v for k, v in listed.whole.items() if v is not listed.held}
    if not about or meter.text(listed.showing(())) <= ABOUT * limit:
        return listed
    slimmed = slim(_replaced(about, listed.held, []), int(ABOUT * limit), wanted, meter)
    return replace(listed, whole={**slimmed, "results_preview": listed.held})


def worth_of(rows: Sequence[Json], asked: Asked, *, named: bool = False) -> list[float]:
    """What each row is worth: how well it answers, and more for extremes and trouble where those are asked for.
    `named`: the rows are entries of a map."""
    texts = [unescaped(encoded(row)) for row in rows]
    said = list(map(tokens, texts))
    keys, english = asked.keys("\n".join(texts[:SAMPLE]))
    worth = bm25_scores(said, keys, english)
    unit = max(worth, default=0.0) or 1.0
    worth = [w + LITERAL * unit * exact for w, exact in zip(worth, literal_scores(texts, asked.literals), strict=True)]
    direction = superlative(asked.prose)
    bare = [value for row in rows for value in row.values()] if named else rows  # a column is no entry's own
    for path, place, rank in extremes(bare, direction) if direction else ():
        asked_for = sum(word in keys or stem(word) in keys for word in parts(path.rpartition(".")[2]))
        worth[place] += unit * (EXTREME + NAMED * asked_for) * (1 - PLACE * rank)
    if asked.about_errors:
        calm = severities(distinct_tokens(said)).keys().isdisjoint
        worth = [w + TROUBLED * unit * (not calm(row)) for w, row in zip(worth, said, strict=True)]
    return worth
