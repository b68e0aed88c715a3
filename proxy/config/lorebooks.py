"""Parses a lorebook into entries: SillyTavern's world info, the book of a character card (V2, V3), or Markdown.

It reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy.config.rows import error_text
from proxy.fit.lore import Entry, Logic

CARDS = ("chara_card_v2", "chara_card_v3")
BOOK = "lorebook_v3"  # a V3 book without a card
HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
DECORATOR = re.compile(r"\s*@@+\w[^\n]*(?:\n|$)")  # V3 cards: lines for the client program, before an entry's text
NO_ENTRIES = "no entries: must be a world info file of SillyTavern or a character card with a character_book"

Texts = list[str] | None


class WorldInfoEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a SillyTavern world info file."""

    content: str
    key: Texts = None
    keysecondary: Texts = None
    constant: bool | None = None
    disable: bool | None = None
    selective: bool | None = None
    selective_logic: Logic | None = None
    order: float | None = None
    vectorized: bool | None = None

    @property
    def is_disabled(self) -> bool:
        """Whether the author disabled it."""
        return bool(self.disable)

    def entry(self) -> Entry:
        """The entry as the rest of the program uses it."""
        keys = _keys(self.key)
        return Entry(
            content=_without_decorators(self.content),
            keys=keys,
            secondary=_keys(self.keysecondary) if self.selective else (),
            logic=self.selective_logic or Logic.AND_ANY,
            constant=bool(self.constant),
            searched=bool(self.vectorized) or not keys,
            order=self.order or 0,
        )


class Extensions(msgspec.Struct, frozen=True):
    """Fields that SillyTavern adds to the entries of a card."""

    selective_logic: Logic | None = msgspec.field(name="selectiveLogic", default=None)
    vectorized: bool | None = None


class CardEntry(msgspec.Struct, frozen=True):
    """An entry of a character card's book."""

    content: str
    keys: Texts = None
    secondary_keys: Texts = None
    constant: bool | None = None
    enabled: bool | None = None
    selective: bool | None = None
    insertion_order: float | None = None
    extensions: Extensions | None = None

    @property
    def is_disabled(self) -> bool:
        """Whether the author disabled it."""
        return self.enabled is False

    def entry(self) -> Entry:
        """The entry as the rest of the program uses it."""
        keys, extensions = _keys(self.keys), self.extensions or Extensions()
        return Entry(
            content=_without_decorators(self.content),
            keys=keys,
            secondary=_keys(self.secondary_keys) if self.selective else (),
            logic=extensions.selective_logic or Logic.AND_ANY,
            constant=bool(self.constant),
            searched=bool(extensions.vectorized) or not keys,
            order=self.insertion_order or 0,
        )


def _keys(keys: Texts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.strip() for key in keys or () if key.strip()))


def _without_decorators(content: str) -> str:
    """The text of an entry without its leading decorator lines."""
    while found := DECORATOR.match(content):
        content = content[found.end() :]
    return content.strip()


def parse_json(text: str) -> tuple[Entry, ...]:
    """The enabled entries of a world info file or a character card. Raises `ValueError` for an invalid entry."""
    try:
        table = msgspec.json.decode(text.removeprefix("\ufeff"))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    found: list[WorldInfoEntry | CardEntry] = []
    for label, row in _rows(table):
        kind: type[WorldInfoEntry | CardEntry] = (
            CardEntry if isinstance(row, dict) and "keys" in row else WorldInfoEntry
        )
        try:
            found.append(msgspec.convert(row, kind))
        except ValueError as error:
            raise ValueError(f"entry {label}{_title(row)}: {error_text(error)}") from None
    entries = (row.entry() for row in found if not row.is_disabled)
    return tuple(entry for entry in entries if entry.content)


def _rows(table: Any) -> list[tuple[Any, Any]]:
    """The rows of a book, each with its label for errors: SillyTavern's id, or its number from 1."""
    book = table
    if isinstance(table, Mapping) and table.get("spec") in (*CARDS, BOOK):
        book = table.get("data")
        if table["spec"] in CARDS:
            book = book.get("character_book") if isinstance(book, Mapping) else None
    rows = book.get("entries") if isinstance(book, Mapping) else None
    if isinstance(rows, Mapping):
        return list(rows.items())
    if not isinstance(rows, list):
        raise ValueError(NO_ENTRIES)
    return list(enumerate(rows, 1))


def _title(row: Any) -> str:
    """The comment or name of an entry, for an error."""
    title = (row.get("comment") or row.get("name")) if isinstance(row, Mapping) else None
    return f" ({title})" if isinstance(title, str) else ""


def parse_markdown(text: str) -> tuple[Entry, ...]:
    """The entries of a Markdown file: one for each heading that has text. Its keys are the title's comma-separated
    parts. Such entries are also searched by relevance. Raises `ValueError` for a file without text."""
    found: list[tuple[str, list[str]]] = [("", [])]
    fence = ""
    for line in text.removeprefix("\ufeff").splitlines():
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        heading = None if fence else HEADING.fullmatch(line)
        if heading:
            found.append(((heading[1] or "").strip(), []))
        else:
            found[-1][1].append(line)
    entries = tuple(
        Entry(content, title, _keys(title.split(",")), searched=True)
        for title, lines in found
        if (content := "\n".join(lines).strip())
    )
    if not entries:
        raise ValueError("no entries: each heading with text below it is an entry")
    return entries


PARSERS: Mapping[str, Callable[[str], tuple[Entry, ...]]] = {
    ".json": parse_json,
    ".md": parse_markdown,
    ".markdown": parse_markdown,
}
