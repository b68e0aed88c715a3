"""Shrinks one JSON value to a number of tokens, gentlest first: empty fields, machine links, long strings, deep
parts."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from proxy.fit.relevance.text.words import parts, stem
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter

EMPTY: tuple[Json, ...] = (None, "", [], {})
LENGTHS = (4000, 1500, 600, 250, 120)  # characters that a string keeps at each level of shrinking
LINKS_FROM, DEPTH_FROM, LISTS_FROM = (
    1,
    2,
    3,
)  # the levels from which machine links, inner objects and long lists are removed
FIRST_ITEMS = 3
REMOVED_NOTE = 12  # tokens of the field with the number of removed fields
LEFT_OUT = "…"  # the key of the field with the number of removed fields
LINK_WORDS = frozenset({"url", "urls", "link", "links", "href"})


def encoded(value: Json) -> str:
    """The JSON of a value without white space."""
    return msgspec.json.encode(value).decode()


def shrink(value: Json, room: int, wanted: Collection[str], meter: Meter) -> Json:
    """The value in at most `room` tokens if possible. Removes the least informative parts level by level. If the last
    level is too long, only fields stay: first those that share words with `wanted`, then short ones. An object gets a
    field with the number of removed ones."""
    finer = made = value
    for level, length in enumerate(LENGTHS):
        finer, made = made, _at_level(value, level, length, wanted, True)
        if meter.text(encoded(made)) <= room:
            return _refined(made, finer, value, room, wanted, meter) if isinstance(value, dict) else made
    if isinstance(value, dict):
        return _refined({}, made, value, room, wanted, meter)
    return meter.cut(made, max(1, room - 4)) + "…" if isinstance(made, str) else made


def _refined(
    made: dict[str, Json],
    finer: dict[str, Json],
    value: dict[str, Json],
    room: int,
    wanted: Collection[str],
    meter: Meter,
) -> Json:
    """The value `made`, which fits, with as many fields as possible in the form of the gentler level (`finer`): the
    wanted ones first, then the short ones."""

    def preference(key: str) -> tuple[int, int]:
        item = finer[key]
        return -_shared(f"{key} {item}" if isinstance(item, str) else key, wanted), len(encoded(item))

    kept = dict(made)
    left = room - REMOVED_NOTE - meter.text(encoded(made))
    for key in sorted(finer, key=preference):
        more = meter.text(encoded({key: finer[key]})) - (meter.text(encoded({key: made[key]})) if key in made else 0)
        if 0 < more <= left:
            kept[key] = finer[key]
            left -= more
    gone = sum(key not in kept and item not in EMPTY for key, item in value.items())
    found = {key: kept[key] for key in value if key in kept}
    return found | {LEFT_OUT: f"{gone} fields left out"} if gone else found


def _at_level(value: Json, level: int, length: int, wanted: Collection[str], top: bool) -> Json:
    if isinstance(value, dict):
        full = [(key, item) for key, item in value.items() if item not in EMPTY]
        kept = {
            key: _at_level(item, level, length, wanted, False)
            for key, item in full
            if not _is_removed(str(key), item, level, wanted, top)
        }
        gone = 0 if top else len(full) - len(kept)  # `shrink` counts those of the value itself
        return kept | {LEFT_OUT: f"{gone} more"} if gone else kept
    if isinstance(value, list):
        items = value[:FIRST_ITEMS] if level >= LISTS_FROM else value
        more = [f"… {len(value) - len(items)} more"] if len(items) < len(value) else []
        return [_at_level(item, level, length, wanted, False) for item in items] + more
    if isinstance(value, str) and len(value) > length:
        return value[:length] + "…"
    return value


def _is_removed(key: str, item: Json, level: int, wanted: Collection[str], top: bool) -> bool:
    if level >= LINKS_FROM and not LINK_WORDS & set(wanted) and key.endswith("_url") and key != "html_url":
        return True
    return level >= DEPTH_FROM and not top and isinstance(item, (dict, list)) and not _shared(key, wanted)


def _shared(text: str, wanted: Collection[str]) -> int:
    """The number of words in a text that are wanted."""
    words = parts(text)
    return sum(word in wanted or stem(word) in wanted for word in words)
