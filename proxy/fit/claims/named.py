"""Finds what a user's turn names: definitions, paths, ids; and the definitions of a text. It claims nothing."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from proxy.fit.claims.calls import normal
from proxy.fit.relevance.results.definitions import definitions_of
from proxy.fit.relevance.results.text_lines import lines_of
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.words import STOP
from proxy.model.bounded import Bounded
from proxy.model.conventions import Conventions
from proxy.model.conversation import Message

READ = 1500  # characters at either end of a user's turn that are searched for names; a pasted text lies between
MOST = 48  # names of a kind
MARKED = re.compile(r"`([^`\n]{1,120})`|[\"“«']([^\"”»'\n]{2,120})[\"”»']")
WORD = r"[A-Za-z_$][\w$]*"
# A name that no plain word looks like: it has an underscore, a digit, a capital inside, or is called.
NAME = re.compile(rf"(?<![\w$./-]){WORD}(?:(?:\.|::|->){WORD})*(?=(?P<called>\s?\()?)")
INNER = re.compile(r"[a-z0-9][A-Z]|_|\d|\$")
PATH = re.compile(
    r"(?<![\w:/@])(?:\.{0,2}/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/])"
    r"|(?<![\w:/])(?:[\w.@+-]+/)+[\w.@+-]+"
)
ID = re.compile(r"(?<![\w./-])(?=[\w-]*\d)(?:[A-Za-z]{1,12}[-_#])?[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?![\w/-]|\.\w)")
SHORTEST_ID = 4  # characters


class Names(msgspec.Struct, frozen=True, gc=False):
    """What a text names: `definitions` as code writes them (of a dotted name the last part), or the title of a section
    in lower case; `paths`, normal; `ids` as they are written. Each once, in the order in which they are written."""

    definitions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.definitions) + len(self.paths) + len(self.ids)


NO_NAMES = Names()
CACHED, CACHED_BYTES = 20_000, 4 << 20
FOUND: Bounded[int, Names] = Bounded(CACHED, CACHED_BYTES)
FRAME, OF_A_NAME = 300, 60  # bytes of names in memory besides their letters


def names_in(text: str) -> Names:
    """What a user's text names. Of a long text only the ends are read. Cached: each turn is read again at each cut."""
    text = text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"
    key = digest(text)
    found = FOUND.get(key)
    if found is None:
        found = _read_names(text)
        names = [*found.definitions, *found.paths, *found.ids]
        FOUND.put(key, found, FRAME + sum(OF_A_NAME + 4 * len(name) for name in names))
    return found


def _read_names(text: str) -> Names:
    marked = [quoted or other for quoted, other in MARKED.findall(text)]
    paths = [normal(match[0]) for match in PATH.finditer(text)]
    paths += [normal(each) for each in marked if PATH.fullmatch(each.strip())]
    found: dict[str, None] = {}
    for each in marked:
        last = re.split(r"\.|::|->|#", each.strip().removesuffix("()"))[-1]
        if re.fullmatch(WORD, last):
            found[last] = None
        elif not PATH.fullmatch(each.strip()):
            found[each.strip().casefold()] = None
    for match in NAME.finditer(text):
        last = re.split(r"\.|::|->", match[0])[-1]
        if (INNER.search(last) or match["called"] == "(") and last.casefold() not in STOP:
            found[last] = None
    files = {part for path in paths for part in (path, *path.split("/"))}
    definitions = [name for name in found if name not in files and normal(name) not in files]
    ids = [match[0] for match in ID.finditer(text) if len(match[0]) >= SHORTEST_ID and match[0] not in files]
    return Names(*(tuple(dict.fromkeys(each))[:MOST] for each in (definitions, paths, ids)))


def named_definitions(text: str, names: Collection[str], folded: str | None = None) -> dict[str, str]:
    """The texts of the definitions that are among these names. A text without any of the names is not read. `folded`:
    the text without case, where the caller has it."""
    folded = text.casefold() if folded is None else folded
    wanted = [name for name in names if name in text or name in folded]
    if not wanted:
        return {}
    found = definitions_of(text)
    lines = lines_of(text) if any(name in found for name in wanted) else []
    return {
        name: "\n".join(line.text for first, last in found[name] for line in lines[first:last])
        for name in wanted
        if name in found
    }


def text_of(message: Message, conventions: Conventions) -> str:
    """The text in which a user's message may name something: nothing of what a client sent as the user's."""
    text = message.own_text()
    return "" if text.lstrip().casefold().startswith(conventions.sent_by_client) else text
