"""Shortens a JSON result to the rows that are relevant to the query. Keeps what surrounds the rows, and their
number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter

from proxy.fit.relevance.results.json_shrinking import LEFT_OUT, encoded, shrink
from proxy.fit.relevance.results.read_on import NO_CALL, ReadOn
from proxy.fit.relevance.results.tables import COLUMNS, ROWS
from proxy.fit.relevance.text.heuristics import extremes, superlative
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.short_text_bm25 import bm25_scores, fill, largest_fitting, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens, tokens
from proxy.fit.relevance.text.words import STOP, parts, severities, stem, unescaped
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter
from proxy.model.structs import replace

LIST_DEPTH = 4  # levels of objects that are searched for the list of rows; deeper lists belong to one row
FEWEST_ROWS = 3  # a shorter list is not a list of results
FEWEST_ENTRIES = 8  # an object with fewer objects in it is one thing with parts, not a map of things by name
MOST_OF_MAP = 0.5  # share of a map from which a list inside it is taken for the results instead of the map
FILLED = 0.5  # share of filled cells from which rows are shorter as one table: a null costs half a key
SLIMMED = 0.7  # share of the room for the best row if that alone is too long
ABOUT = 0.4  # share of the limit over which what surrounds the rows is shrunk
EXTREME, NAMED, PLACE = 0.5, 1.0, 0.18  # value of an extreme; more if the query names its column; less per rank
LITERAL = 1.0  # value of a row that contains a literal of the query: as much as the best match
TROUBLED = 0.3  # value of a row with an error word, if the query is about errors
ASKED = 0.6  # share of the best row's value from which a row is asked for, so that it stays an object
NEAR, OTHERS = 0.2, 5  # share of the best value from which records are shown as far as they fit; of the others so many
RECORD = 200  # characters of the longest text of a row up to which it is a record, not a passage
NOTE = 30  # tokens of the count and the note
WORTHWHILE = 100  # the fewest tokens to which a long row is shrunk
PREVIEWED = 500  # characters that a preview keeps of a string (seed 004)
SAMPLE = 100  # rows that decide the language if the query is too short to


@dataclass(frozen=True, slots=True)
class ResultRows:
    """A JSON value (`whole`) and the part of it that contains the results (`held`, `size` characters): a list of rows,
    or a map of objects by name, whose entries are the rows. `tabular`: the rows are rendered as a table.
    `call`: how the call can be repeated. `uncounted`: some were cut out of the text before, nobody knows how many."""

    whole: Json
    held: Json
    rows: list[Json]
    tabular: bool
    size: int
    call: ReadOn = NO_CALL
    uncounted: bool = False

    @property
    def named(self) -> bool:
        """Whether the rows are entries of a map: objects with one key, their name."""
        return isinstance(self.held, dict)

    def render(self, shown: Sequence[Json], rest: Sequence[Json] = ()) -> str:
        """The JSON with only those rows, the count of all rows, and a note in the words of seed 004. `rest`: rows that
        follow them as one table."""
        count, call = len(self.rows), self.call
        by, again = (" by a proxy", f"; read with {', '.join(call.rows)}") if call.says_who else ("", "")
        of_page = f" of {call.page}" if call.page else ""
        shown_of = f"{len(shown) + len(rest)} shown{again if call.rows else ''}"
        total = "" if self.uncounted else f"{count} total results{of_page}, "
        note = f"[Truncated{by}: {total}{shown_of}]"
        counted: dict[str, Json] = {} if self.uncounted else {"result_count": count}
        table: Json = as_table(rest) if len(rest) > 1 else list(rest)
        listed: Json = [*shown, table] if shown and len(rest) > 1 else [*shown, *rest] if shown else table
        if self.named:
            listed = {name: value for entry in shown for name, value in entry.items()}
        if self.whole is self.held or not isinstance(self.whole, dict):
            return encoded({**counted, "results_preview": listed, "note": note})
        said = {_free(name, self.whole): value for name, value in {**counted, "note": note}.items()}
        return encoded({**_replaced(self.whole, self.held, listed), **said})

    def cost(self, row: Json, meter: Meter, *, table: bool = False) -> int:
        """Tokens that one more row adds, as it is or in the table."""
        return meter.text(encoded(list(row.values()) if table and isinstance(row, dict) else row)) + 2


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with underscores in front if the result has a key of that name: its own keys are never overwritten."""
    return name if name not in taken else _free(f"_{name}", taken)


def _replaced(value: Json, held: Json, shown: Json) -> Json:
    if value is held:
        return shown
    return {k: _replaced(v, held, shown) for k, v in value.items()} if isinstance(value, dict) else value


def find_rows(whole: Json) -> ResultRows | None:
    """The rows of a result: the longest list within `LIST_DEPTH` levels, or the longest map of objects if that list is
    only a part of it. None if there is neither."""
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
        return ResultRows(whole, map_of_all, entries, False, size_of_map)
    return ResultRows(whole, held, held, is_tabular(held), size) if lists else None


def _is_map(value: Json) -> bool:
    if not isinstance(value, dict) or len(value) < FEWEST_ENTRIES:
        return False
    return all(isinstance(item, dict) and item for item in value.values())


def _longest_of(values: Sequence[Json]) -> tuple[int, Json]:
    return max(((len(encoded(value)), value) for value in values), key=itemgetter(0), default=(0, None))


def is_tabular(rows: Sequence[Json]) -> bool:
    """Whether rows share most of their keys, so that a table is shorter."""
    if len(rows) < 2 or not all(isinstance(row, dict) and row for row in rows):
        return False
    return sum(map(len, rows)) >= FILLED * len({key for row in rows for key in row}) * len(rows)


def as_table(rows: Sequence[Json]) -> Json:
    """Rows as a table with one header. A field that a row never had is null; one that was removed from it is "…"."""
    names = list(dict.fromkeys(key for row in rows for key in row if key != LEFT_OUT))
    return {COLUMNS: names, ROWS: [[row.get(name, row.get(LEFT_OUT) and "…") for name in names] for row in rows]}


def shorten_rows(
    listed: ResultRows,
    limit: int,
    query: ResultQuery,
    meter: Meter,
    fits: Callable[[str], bool],
    preview: int | None = None,
    call: ReadOn = NO_CALL,
) -> str | None:
    """At most `limit` tokens of a result: the rows relevant to the query, in order, at most `preview` of them. None if
    not even one shrunk row fits."""
    words = query.words.keys() - STOP if query.keys()[1] else query.words.keys()
    wanted = words | set(map(stem, words))
    listed = _with_shrunk_surroundings(replace(listed, call=call), limit, wanted, meter)
    worth = row_values(listed.rows, query, named=listed.named)
    order = sorted(range(len(worth)), key=lambda place: (-worth[place], place))
    rows, best = list(listed.rows), order[0]
    if preview is not None:  # a preview shows objects, not a table
        rows, listed = list(map(_brief, rows)), replace(listed, tabular=False)
    room = limit - meter.text(listed.render([rows[best]])) + listed.cost(rows[best], meter) - NOTE
    shown = _shown(listed, rows, worth, order)
    objects = _as_objects(listed, rows, shown, worth, room, meter)

    def cost(place: int, chosen: Collection[int]) -> int:
        return listed.cost(rows[place], meter, table=listed.tabular and place not in objects)

    chosen = fill(shown, cost, room)
    if best not in chosen:  # the best row is too long: shrunk, it is still better than others whole
        others = fill(shown[1:], cost, int((1 - SLIMMED) * room))
        left = room - sum(cost(place, ()) for place in others)
        chosen = others
        for place in shown:  # the same for the following rows, as long as there is room
            if left < WORTHWHILE:
                break
            if place not in others:
                rows[place] = _shrunk(rows[place], listed.named, left, wanted, meter)
                left -= cost(place, ())
                chosen = [place, *chosen] if place == best else [*chosen, place]
        chosen += fill((place for place in shown if place not in chosen), cost, left)  # what shrinking has left
    chosen = chosen[:preview]

    def render(count: int) -> str:
        kept = sorted(chosen[:count])
        whole = [p for p in kept if not listed.tabular or p in objects]
        return listed.render([rows[p] for p in whole], [rows[p] for p in kept if p not in whole])

    return largest_fitting(render, len(chosen), fits)


def _shown(listed: ResultRows, rows: Sequence[Json], worth: Sequence[float], order: Sequence[int]) -> list[int]:
    """The rows to show as far as they fit, the best first: of records those that come near the best, and a preview of
    the others. Of texts, and where nothing stands out, all."""
    best = worth[order[0]]
    if best <= 0 or not listed.tabular or sum(map(_longest, rows[:SAMPLE])) > RECORD * len(rows[:SAMPLE]):
        return list(order)
    near = [place for place in order if worth[place] >= NEAR * best]
    return [*near, *[place for place in order if worth[place] < NEAR * best][:OTHERS]]


def _longest(row: Json) -> int:
    """The characters of the longest text of a row."""
    values = row.values() if isinstance(row, dict) else ()
    return max([len(value) for value in values if isinstance(value, str)], default=0)


def _as_objects(
    listed: ResultRows, rows: Sequence[Json], shown: Sequence[int], worth: Sequence[float], room: int, meter: Meter
) -> frozenset[int]:
    """The rows that keep the form in which they came: all that are shown where the room holds them, else those that are
    asked for. Of many, as many as leave room for all of them: complete as a table is worth more."""
    if not listed.tabular:
        return frozenset(shown)
    left = room
    for place in shown:
        left -= listed.cost(rows[place], meter)
        if left < 0:
            break
    else:
        return frozenset(shown)
    best = worth[shown[0]]
    asked = [place for place in shown if best > 0 and worth[place] >= ASKED * best]
    if len(asked) <= OTHERS:
        return frozenset(asked)
    left, found = room, list[int]()
    for place in asked:
        left -= listed.cost(rows[place], meter, table=True)
        if left < 0:  # not even a table holds them all
            return frozenset()
    for place in asked:
        left -= listed.cost(rows[place], meter) - listed.cost(rows[place], meter, table=True)
        if left < 0:
            break
        found.append(place)
    return frozenset(found)


def _shrunk(row: Json, named: bool, room: int, wanted: Collection[str], meter: Meter) -> Json:
    """The row in at most `room` tokens if possible; an entry of a map keeps its name."""
    if not named:
        return shrink(row, room, wanted, meter)
    return {name: shrink(value, room - meter.text(encoded({name: 0})), wanted, meter) for name, value in row.items()}


def _brief(row: Json) -> Json:
    if isinstance(row, str):
        return row if len(row) <= PREVIEWED else row[:PREVIEWED] + "…"
    if isinstance(row, dict):
        return {key: _brief(value) for key, value in row.items()}
    return list(map(_brief, row)) if isinstance(row, list) else row


def _with_shrunk_surroundings(listed: ResultRows, limit: int, wanted: Collection[str], meter: Meter) -> ResultRows:
    """The result with its surroundings of the rows shrunk if they take more than `ABOUT` of the limit."""
    if listed.whole is listed.held or not isinstance(listed.whole, dict):
        return listed
    about = {k: v for k, v in listed.whole.items() if v is not listed.held}
    if not about or meter.text(listed.render(())) <= ABOUT * limit:
        return listed
    slimmed = shrink(_replaced(about, listed.held, []), int(ABOUT * limit), wanted, meter)
    return replace(listed, whole={**slimmed, "results_preview": listed.held})


def row_values(rows: Sequence[Json], query: ResultQuery, *, named: bool = False) -> list[float]:
    """The value of each row: its BM25 score and literals, and more for extremes and errors if the query asks for them.
    `named`: the rows are entries of a map."""
    texts = [unescaped(encoded(row)) for row in rows]
    said = list(map(tokens, texts))
    keys, english = query.keys("\n".join(texts[:SAMPLE]))
    worth = bm25_scores(said, keys, english)
    unit = max(worth, default=0.0) or 1.0
    worth = [w + LITERAL * unit * exact for w, exact in zip(worth, literal_scores(texts, query.literals), strict=True)]
    direction = superlative(query.prose)
    bare = [value for row in rows for value in row.values()] if named else rows  # a column belongs to all entries
    for path, place, rank in extremes(bare, direction) if direction else ():
        asked_for = sum(word in keys or stem(word) in keys for word in parts(path.rpartition(".")[2]))
        worth[place] += unit * (EXTREME + NAMED * asked_for) * (1 - PLACE * rank)
    if query.about_errors:
        calm = severities(distinct_tokens(said)).keys().isdisjoint
        worth = [w + TROUBLED * unit * (not calm(row)) for w, row in zip(worth, said, strict=True)]
    return worth
