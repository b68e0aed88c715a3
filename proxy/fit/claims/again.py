"""Finds results that refer to an earlier one: an agent asked again, and its tool said that nothing has changed.

Theory of operation
===================

Agents answer a second read of an unchanged file with a stub ("unchanged, see the earlier result"). The stub is worth
nothing where a cut took the earlier text. A result refers to an earlier one if the same call was made before, nothing
that the run shows has changed what it reads, and either the result has the words of a known stub, or the call only
reads, and its result is short and no text of the file. A call that merely recurs (`ls`, `pytest`) is never one: it
reads nothing that it names, so its short results are its own.

Only arguments of calls say what is read. Names in results count for nothing: whoever writes results must not steer
cuts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cache

import msgspec

from proxy.fit.claims.calls import Result
from proxy.fit.relevance.text.heuristics import NUMBERED
from proxy.model.conventions import Conventions

SHORT = 60 * 4  # characters, about 60 tokens, of a result that may refer to another without words of a known stub
HELD = 1000  # characters of a text that results before it may name instead of having it (`drop_repeated`)
KNOWN = 1200  # characters of one that has such words: some stubs say how to read on
LONGER = 4  # times as long is a result at least to which a stub refers
LINES = 4  # lines of a stub at most: more are a short file
CODE = re.compile(r"[{};]\s*$|\w\s=\s|^\w+=\S+$|^\s*(?:#|//|import |from |def |return )", re.M)


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A result `stub`, by its `number` among all, that refers to the earlier result `target`; of a call that returned a
    text again, and of a read that was made again after a change, both are the new result."""

    number: int
    stub: Result
    target: Result


class Seen(msgspec.Struct, frozen=True, gc=False):
    """What the text of a result says: that it `refers` to the newest result of the same call before it, that its call
    `failed`, that it is `long` enough to be referred to. `key`: of a text that is worth a stub where it stands again; 0
    for a shorter one. It follows from the results up to this one."""

    refers: bool
    failed: bool
    long: bool
    key: int = 0


def references(
    results: Iterable[Result], conventions: Conventions, seen: MutableMapping[int, Seen] | None = None
) -> Iterator[Reference]:
    """Yields the results that refer to earlier ones, and those of reads that were made again, in order. Each result is
    read once; linear. `seen`: what is known of the texts of results, by their places among these; those that are not
    known are read, and added."""
    words = phrases(conventions.stubs)
    seen = {} if seen is None else seen
    earlier: dict[str, Result] = {}  # by what was called: the newest whole result
    read = set[str]()  # what was called before what it reads was changed
    texts = set[int]()
    by_path = _Paths()
    for number, result in enumerate(results):
        call = result.call
        target = earlier.get(call.same) if call.same else None
        said = seen.get(number)
        if said is None:
            said = seen[number] = _seen(result, target, words, conventions)
        if target is not None and said.refers:
            yield Reference(number, result, target)
        elif said.failed:
            continue
        else:
            for path in by_path.changed(call.changed, call.text):
                for key in by_path.take(path):
                    read.add(key)
                    earlier.pop(key, None)
            if (said.long and (call.same in earlier or call.same in read)) if call.reads else said.key in texts:
                yield Reference(number, result, result)
            if said.key:
                texts.add(said.key)
            if call.same and said.long:
                earlier[call.same] = result
                if call.path:
                    by_path.add(call.path, call.same)
            elif call.same:
                earlier.pop(call.same, None)  # it is short now, and by its own words


def _seen(result: Result, target: Result | None, words: re.Pattern[str] | None, conventions: Conventions) -> Seen:
    refers = target is not None and _refers(result, target, words, conventions)
    text = result.text
    return Seen(refers, _is_failure(text, conventions), len(text) >= SHORT, hash(text) if len(text) >= HELD else 0)


@cache
def phrases(stubs: Sequence[str]) -> re.Pattern[str] | None:
    """A pattern of the phrases of stubs; None if there are none. A blank stands for any white space."""
    written = ["\\s+".join(map(re.escape, phrase.split())) for phrase in stubs]
    return re.compile("|".join(written), re.I) if written else None


def _refers(result: Result, target: Result, words: re.Pattern[str] | None, conventions: Conventions) -> bool:
    text, before = result.text.strip(), target.text
    if not text or LONGER * len(text) > len(before) or text in before or _is_failure(text, conventions):
        return False
    if len(text) <= KNOWN and words is not None and words.search(text):
        return True
    return bool(result.call.reads) and len(text) <= SHORT and not _is_content(text, before)


def _is_content(text: str, before: str) -> bool:
    """Whether a short text looks like a file that became short: several lines, numbers of lines, a line of the earlier
    text, code, or JSON."""
    lines = text.split("\n")
    if len(lines) > LINES or any(NUMBERED.match(line) for line in lines) or text[0] in "{":
        return True
    if any(len(line.strip()) >= 8 and line.strip() in before for line in lines):
        return True
    return CODE.search(text) is not None and not text.startswith(("<", "["))


def _is_failure(text: str, conventions: Conventions) -> bool:
    start = text[:200].lstrip().casefold()
    return len(text) <= KNOWN and start.startswith(conventions.failures) if conventions.failures else False


class _Paths:
    """What was called, by the path that it read; the paths are found by their last names."""

    def __init__(self) -> None:
        self._calls: dict[str, set[str]] = {}
        self._by_name: dict[str, set[str]] = {}

    def add(self, path: str, call: str) -> None:
        """Adds a call that read a path."""
        self._calls.setdefault(path, set()).add(call)
        self._by_name.setdefault(last_name(path), set()).add(path)

    def take(self, path: str) -> set[str]:
        """Removes a path, and returns the calls that read it."""
        self._by_name[last_name(path)].discard(path)
        return self._calls.pop(path)

    def changed(self, changed: Sequence[str], text: str) -> list[str]:
        """The known paths that a call may have changed: those that it names with a new text, or that its text mentions.
        An absolute path is the same as a relative one that it ends with."""
        found = {path for path in self._calls if path in text} if text else set[str]()
        for other in changed:
            found.update([path for path in self._by_name.get(last_name(other), ()) if same_path(path, other)])
        return [*found]


def last_name(path: str) -> str:
    """What stands behind the last slash of a path. It is equal for two paths that may be one."""
    return path.rpartition("/")[2]


def same_path(one: str, other: str) -> bool:
    """Whether two paths may be one: equal, or the longer ends with the shorter."""
    short, long = sorted((one, other), key=len)
    return bool(short) and (long == short or long.endswith("/" + short))
