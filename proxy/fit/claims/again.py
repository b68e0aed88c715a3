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
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from proxy.fit.claims.calls import Result
from proxy.fit.relevance.text.heuristics import NUMBERED
from proxy.model.conventions import Conventions

SHORT = 60 * 4  # characters, about 60 tokens, of a result that may refer to another without words of a known stub
KNOWN = 1200  # characters of one that has such words: some stubs say how to read on
LONGER = 4  # times as long is a result at least to which a stub refers
LINES = 4  # lines of a stub at most: more are a short file
CODE = re.compile(r"[{};]\s*$|\w\s=\s|^\w+=\S+$|^\s*(?:#|//|import |from |def |return )", re.M)


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A result `stub` that refers to the earlier result `target`; of a read that returned its text again, both are the
    new result."""

    stub: Result
    target: Result


def references(results: Iterable[Result], conventions: Conventions) -> Iterator[Reference]:
    """Yields the results that refer to earlier ones, and those of reads that were made again, in order. Each result is
    read once; linear."""
    words = phrases(conventions.stubs)
    earlier: dict[str, Result] = {}  # by what was called: the newest whole result
    by_path: dict[str, set[str]] = {}
    for result in results:
        call = result.call
        target = earlier.get(call.same) if call.same else None
        if target is not None and _refers(result, target, words, conventions):
            yield Reference(result, target)
        elif _is_failure(result.text, conventions):
            continue
        else:
            for path in _changed(call.changed, call.text, by_path):
                for key in by_path.pop(path, ()):
                    earlier.pop(key, None)
            if call.reads and call.same in earlier and len(result.text) >= SHORT:
                yield Reference(result, result)
            if call.same and len(result.text) >= SHORT:
                earlier[call.same] = result
                if call.path:
                    by_path.setdefault(call.path, set()).add(call.same)
            elif call.same:
                earlier.pop(call.same, None)  # it is short now, and by its own words


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


def _changed(changed: Sequence[str], text: str, known: Iterable[str]) -> list[str]:
    """The known paths that a call may have changed: those that it names with a new text, or that its text mentions. An
    absolute path is the same as a relative one that it ends with."""
    if not changed and not text:
        return []
    return [path for path in known if path in text or any(same_path(path, other) for other in changed)]


def same_path(one: str, other: str) -> bool:
    """Whether two paths may be one: equal, or the longer ends with the shorter."""
    short, long = sorted((one, other), key=len)
    return bool(short) and (long == short or long.endswith("/" + short))
