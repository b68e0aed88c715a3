"""A lorebook's file as entries: SillyTavern's world info, the book in a character card (V2, V3), or Markdown; it reads
no file itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy.config.window_rules import reason
from proxy.fit.lore import Entry, Logic

CARDS = ("chara_card_v2", "chara_card_v3")
BOOK = "lorebook_v3"  # a V3 book that stands alone
HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
DECORATOR = re.compile(r"\s*@@+\w[^\n]*(?:\n|$)")  # V3 cards: lines for the program before an entry's text
ABSENT = "no entries: it must be a world info of SillyTavern or a character card with a character_book"

Texts = list[str] | None


class Info(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of SillyTavern's world info."""

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
    def is_off(self) -> bool:
        """Whether its author switched it off."""
        return bool(self.disable)

    def entry(self) -> Entry:
        """Its value."""
        keys = _named(self.key)
        return Entry(
            content=_plain(self.content),
            keys=keys,
            secondary=_named(self.keysecondary) if self.selective else (),
            logic=self.selective_logic or Logic.AND_ANY,
            constant=bool(self.constant),
            searched=bool(self.vectorized) or not keys,
            order=self.order or 0,
        )


class Extensions(msgspec.Struct, frozen=True):
    """What SillyTavern adds to the entries of cards that it writes."""

    selective_logic: Logic | None = msgspec.field(name="selectiveLogic", default=None)
    vectorized: bool | None = None


class Card(msgspec.Struct, frozen=True):
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
    def is_off(self) -> bool:
        """Whether its author switched it off."""
        return self.enabled is False

    def entry(self) -> Entry:
        """Its value."""
        keys, more = _named(self.keys), self.extensions or Extensions()
        return Entry(
            content=_plain(self.content),
            keys=keys,
            secondary=_named(self.secondary_keys) if self.selective else (),
            logic=more.selective_logic or Logic.AND_ANY,
            constant=bool(self.constant),
            searched=bool(more.vectorized) or not keys,
            order=self.insertion_order or 0,
        )


def _named(keys: Texts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.strip() for key in keys or () if key.strip()))


def _plain(content: str) -> str:
    """What an entry says to the model."""
    while found := DECORATOR.match(content):
        content = content[found.end() :]
    return content.strip()


def parse_json(text: str) -> tuple[Entry, ...]:
    """The entries of a world info file or of a character card. Raises ValueError with what is wrong, and where."""
    try:
        table = msgspec.json.decode(text.removeprefix("\ufeff"))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    found: list[Info | Card] = []
    for place, row in _rows(table):
        kind: type[Info | Card] = Card if isinstance(row, dict) and "keys" in row else Info
        try:
            found.append(msgspec.convert(row, kind))
        except ValueError as error:
            raise ValueError(f"entry {place}{_title(row)}: {reason(error)}") from None
    entries = (row.entry() for row in found if not row.is_off)
    return tuple(entry for entry in entries if entry.content)


def _rows(table: Any) -> list[tuple[Any, Any]]:
    """The rows of a book with what each is called by: SillyTavern's number, or its place from 1."""
    book = table
    if isinstance(table, Mapping) and table.get("spec") in (*CARDS, BOOK):
        book = table.get("data")
        if table["spec"] in CARDS:
            book = book.get("character_book") if isinstance(book, Mapping) else None
    rows = book.get("entries") if isinstance(book, Mapping) else None
    if isinstance(rows, Mapping):
        return list(rows.items())
    if not isinstance(rows, list):
        raise ValueError(ABSENT)
    return list(enumerate(rows, 1))


def _title(row: Any) -> str:
    """What people call an entry by, for an error."""
    title = (row.get("comment") or row.get("name")) if isinstance(row, Mapping) else None
    return f" ({title})" if isinstance(title, str) else ""


def parse_markdown(text: str) -> tuple[Entry, ...]:
    """The entries of a Markdown file: each heading with the text under it; its title, or the parts of it between
    commas, are its keys. Relevance calls for them too. Raises ValueError where no text stands in it."""
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
        Entry(content, title, _named(title.split(",")), searched=True)
        for title, lines in found
        if (content := "\n".join(lines).strip())
    )
    if not entries:
        raise ValueError("no entries: a heading with text under it is one")
    return entries


PARSERS: Mapping[str, Callable[[str], tuple[Entry, ...]]] = {
    ".json": parse_json,
    ".md": parse_markdown,
    ".markdown": parse_markdown,
}
